"""A terminal's other screen, for a view that stays: only lines that changed are written.

Leaves the terminal as it was, however it ends. Never reads more than single keys."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from types import FrameType

from rich.console import Console
from rich.text import Text

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
"""Other screen, cursor hidden, no wrapping at the right edge; and back."""
STEP = 0.5
"""Seconds between two looks at the terminal's size and at the keyboard."""


class Screen:
    """Draws lines of text on the other screen. `console` must be a terminal's."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._drawn: list[str] = []
        self._size: tuple[int, int] = (0, 0)
        self._keys: list[object] | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows now."""
        return self.console.size.width, self.console.size.height

    @property
    def resized(self) -> bool:
        return self.size != self._size

    @contextlib.contextmanager
    def on(self) -> Iterator[Screen]:
        """The other screen until the end of the block, whatever ends it: also SIGTERM, SIGHUP and Ctrl-Z."""
        def end(number: int, frame: FrameType | None) -> None:
            raise SystemExit(128 + number)

        def pause(number: int, frame: FrameType | None) -> None:
            self._leave()
            os.kill(os.getpid(), signal.SIGSTOP)
            self._enter()

        handlers = {signal.SIGTERM: end, signal.SIGHUP: end, signal.SIGTSTP: pause}
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        self._enter()
        try:
            yield self
        finally:
            self._leave()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _enter(self) -> None:
        self._size = (0, 0)
        with contextlib.suppress(termios.error, ValueError, OSError):
            self._keys = list(termios.tcgetattr(sys.stdin))
            quiet = termios.tcgetattr(sys.stdin)
            quiet[3] &= ~(termios.ECHO | termios.ICANON)
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, quiet)
        self._write(ENTER)

    def _leave(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # the terminal is gone
            self._write(LEAVE)
        if self._keys is not None:
            with contextlib.suppress(termios.error, ValueError, OSError):
                termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._keys)  # type: ignore[arg-type]

    def _write(self, text: str) -> None:
        if text:
            self.console.file.write(text)
            self.console.file.flush()

    def draw(self, lines: Sequence[Text]) -> int:
        """Show these lines from the top; returns how many characters were written."""
        width, height = self.size
        fresh = [self._line(line, width) for line in lines[:height]]
        out = []
        if self.resized:
            out.append("\x1b[2J")
            self._size, self._drawn = (width, height), []
        for i in range(max(len(fresh), len(self._drawn))):
            line = fresh[i] if i < len(fresh) else ""
            if i >= len(self._drawn) or line != self._drawn[i]:
                out.append(f"\x1b[{i + 1};1H\x1b[K{line}\x1b[0m")
        self._drawn = fresh
        text = "".join(out)
        self._write(text)
        return len(text)

    def _line(self, line: Text, width: int) -> str:
        """A line with its colours as the terminal takes them."""
        cut = line.copy()
        cut.truncate(width, overflow="crop")
        with self.console.capture() as said:
            self.console.print(cut, end="", soft_wrap=True, markup=False, highlight=False, emoji=False)
        return said.get()

    def wait(self, seconds: float) -> str:
        """Wait until a key is pressed, the terminal has another size, or the time is over; returns the key or ''."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self.resized:
            key = self._key(min(STEP, left))
            if key:
                return key
        return ""

    def _key(self, seconds: float) -> str:
        if self._keys is None:
            time.sleep(seconds)
            return ""
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        if not ready:
            return ""
        key = os.read(sys.stdin.fileno(), 64).decode("utf-8", "replace")
        if not key:
            raise EOFError("the terminal is gone")
        return key
