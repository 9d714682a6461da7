"""`python -m automate` is `flock-hpc`."""

import sys

from automate.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
