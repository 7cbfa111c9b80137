"""The process that reads one file of a mount, so that the kernel keeps its pages: a prefetch.

It is not the mount itself, since the kernel asks the mount for what it reads: a mount that waits for its own
answer waits for ever. Each line on standard input lets it read one piece, which it answers with a line; with
the end of the input, or of the file, it ends.
"""

import os
import sys

from kvtool.store import child

PIECE = 16 << 20  # bytes read for each line
_READ = 1 << 20


def main() -> None:
    """The process's start."""
    parser = child.parser("prefetch")
    parser.add_argument("path")
    args = child.begin(parser)
    os.nice(19)  # it reads from no disk itself, so a class of I/O would change nothing
    buffer = bytearray(_READ)
    with child.failure_told(), open(os.fsencode(args.path), "rb", buffering=0) as file:
        while sys.stdin.buffer.readline():
            left = PIECE
            while left and (got := file.readinto(buffer)):
                left -= got
            if left:
                return
            os.write(1, b"\n")


if __name__ == "__main__":
    main()
