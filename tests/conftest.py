"""For all tests: what they start can be ended by Ctrl-C, however the tests themselves were started."""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background, and inherited by what tests start
    signal.signal(signal.SIGINT, signal.default_int_handler)
