"""The shared memory between the mount and its ingest worker: slots that the mount fills with a save's bytes.

A slot is headroom, where the worker puts the uncut tail of the bytes before, and then the data, so that the
chunker always sees one contiguous buffer and only the tail is ever copied.
"""

import mmap
import os

DATA_SIZE = 2 << 20
_PAGE = 4096


class Slots:
    """`count` slots in the memory file `fd`, each of `headroom` (in whole pages) and DATA_SIZE bytes."""

    def __init__(self, fd: int, headroom: int, count: int) -> None:
        self.headroom = -(-headroom // _PAGE) * _PAGE
        self.count = count
        self._stride = self.headroom + DATA_SIZE
        self._memory = mmap.mmap(fd, self.size)

    def slot(self, number: int) -> memoryview:
        """The whole slot; its data begins at `headroom`."""
        start = self.position(number)
        return memoryview(self._memory)[start : start + self._stride]

    def position(self, number: int) -> int:
        """Where that slot begins in the memory."""
        return self._stride * number

    @property
    def size(self) -> int:
        """The bytes of the memory."""
        return self._stride * self.count

    def close(self) -> None:
        """Lets the memory go, unless somebody still holds a slot."""
        self._memory.close()


def count_for(queue: int, headroom: int) -> int:
    """How many slots a write queue of `queue` bytes has; two at least, one to fill and one to take."""
    return max(2, queue // (headroom + DATA_SIZE))


def create(headroom: int, count: int) -> tuple[int, Slots]:
    """New shared memory: its descriptor, to be inherited by the worker, and the slots on it."""
    size = (-(-headroom // _PAGE) * _PAGE + DATA_SIZE) * count
    fd = os.memfd_create("kvtool-slots", os.MFD_CLOEXEC)
    os.ftruncate(fd, size)
    return fd, Slots(fd, headroom, count)
