"""The program: `python -m kvtool` and the script `kvtool`."""

import signal
import sys


def main() -> int:
    """Runs the command line of this process. Returns the exit code."""
    # Ctrl-C while modules are imported is the end and no traceback: nothing has been done yet. The command
    # itself is interrupted by an exception (see cli.main). Who was started to ignore it still does.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from kvtool.cli.main import entry

    return entry()


if __name__ == "__main__":
    sys.exit(main())
