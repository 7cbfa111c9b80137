"""`python -m kvtool`."""

import sys

from kvtool.cli.main import entry

if __name__ == "__main__":
    sys.exit(entry())
