"""What the files of a mount share."""

from kvtool.fs.inodes import Inode, InodeTable
from kvtool.fs.reader import Reader
from kvtool.fs.writer import IngestWorker
from kvtool.store.store import Store


class Environment:
    """What every file needs: the store, the worker, the readers, the names, and the kernel's cache.

    What a prefetch reads goes through `background`, so that nobody waits for it.
    """

    def __init__(
        self,
        store: Store,
        worker: IngestWorker,
        reader: Reader,
        inodes: InodeTable,
        background: Reader | None = None,
    ) -> None:
        self.store = store
        self.worker = worker
        self.reader = reader
        self.background = background or reader
        self.inodes = inodes
        self.meters = reader.meters
        self.changes = 0  # commits, renames and deletions: what was counted before them no longer holds
        self.noted: set[Inode] | None = None  # while a collection looks: committed or renamed since
        self.commits = 0
        self.bytes_saved = 0
        self.bytes_new = 0

    def note(self, inode: Inode) -> None:
        """Has a collection that is under way spare what the inode refers to: its name or content is new."""
        self.changes += 1
        if self.noted is not None:
            self.noted.add(inode)

    def drop_pages_soon(self, inode: Inode) -> None:
        """Has the kernel forget the file's pages, soon; a mount overrides both."""

    async def drop_pages(self, inode: Inode) -> None:
        """The same, done."""

    async def attributes_changed(self, inode: Inode) -> None:
        """Has the kernel forget a file's times and mode; a mount overrides it."""

    async def name_gone(self, directory: Inode, name: bytes, inode: Inode | None) -> None:
        """Has the kernel forget a name that went otherwise than at its request; a mount overrides it."""
