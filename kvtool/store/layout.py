"""Where things lie in a store and its stub tree, and how both come to be.

One stub tree a store: both carry the same id. Whatever collects or repairs refuses when the stub tree's
is absent or differs, since an unmounted stub disk must never look like "no snapshot needs anything".
"""

import errno
import os
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from kvtool.core.chunker import ChunkSizes
from kvtool.errors import KvtoolError, NoStore, UsageError
from kvtool.store import format as store_format
from kvtool.store.format import StoreFormat

RESERVED = b".kvtool"


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one store (`root`) and its stub tree (`stubs`)."""

    root: Path
    stubs: Path

    @property
    def format(self) -> Path:
        """The store's parameters, written once."""
        return self.root / "store.toml"

    @property
    def lock(self) -> Path:
        """Its flock is held by the one writer."""
        return self.root / "lock"

    @property
    def catalog(self) -> Path:
        """SQLite: where each chunk lies; a cache of the packs' footers."""
        return self.root / "catalog.sqlite3"

    @property
    def packs(self) -> Path:
        """Sealed packs, in a folder for each first byte of their ids."""
        return self.root / "packs"

    @property
    def incoming(self) -> Path:
        """Packs being written; rubbish after a crash."""
        return self.root / "incoming"

    @property
    def staging(self) -> Path:
        """Plain copies of files written out of order; rubbish after a crash."""
        return self.root / "staging"

    @property
    def quarantine(self) -> Path:
        """Damaged files, put out of the way and never deleted."""
        return self.root / "quarantine"

    @property
    def synced(self) -> Path:
        """Says which packs are known to be on the disk, see `durable`."""
        return self.root / "synced"

    @property
    def bad_copies(self) -> Path:
        """The list of chunks in packs that were found damaged."""
        return self.root / "bad-copies"

    @property
    def control(self) -> Path:
        """The socket of the running mount."""
        return self.root / "control.sock"

    @property
    def log(self) -> Path:
        """The log of a mount in the background."""
        return self.root / "mount.log"

    @property
    def stub_private(self) -> Path:
        """The part of the stub tree that the mount hides: the store's id, and stubs being written."""
        return self.stubs / os.fsdecode(RESERVED)

    @property
    def stub_store_id(self) -> Path:
        """Names the store that the stubs belong to."""
        return self.stub_private / "store-id"

    @property
    def names(self) -> set[str]:
        """What belongs directly into the store's directory: all that the properties above place there."""
        others = (
            name for name, kind in vars(Layout).items() if isinstance(kind, property) and name != "names"
        )
        return {path.name for path in map(self.__getattribute__, others) if path.parent == self.root}

    def pack(self, pack_id: bytes) -> Path:
        """The file of a sealed pack."""
        name = pack_id.hex()
        return self.packs / name[:2] / f"{name}.pack"


def fsync_directory(path: Path | bytes) -> None:
    """Makes the names in `path` survive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(path: Path, mode: int = 0o700) -> None:
    """Makes a directory and those above it, where they are not there, so that they survive a power cut."""
    if path.is_dir():
        return
    make_folder(path.parent, 0o777)
    path.mkdir(mode=mode, exist_ok=True)
    with suppress(PermissionError):  # above it may be what we can search and not read
        fsync_directory(path.parent)


def write_aside(path: Path, content: str) -> None:
    """Writes durably, to a file beside it, what is to be at `path`. Only one process may do so at a time."""
    with aside(path).open("w", encoding="utf-8") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def put_in_place(path: Path) -> None:
    """Moves what was written aside to `path`, durably and whole."""
    aside(path).rename(path)
    fsync_directory(path.parent)


def quarantine(layout: Layout, path: Path | bytes, place: str | bytes) -> Path:
    """Moves what lies at `path` to `place`, a path relative to quarantine/, and returns where it is now.

    What is there stays: with something at `place`, the first part of it gets a number. Raises OSError.
    """
    layout.quarantine.mkdir(mode=0o700, exist_ok=True)
    top, _, rest = os.fsdecode(place).partition("/")
    for number in count():
        base = layout.quarantine / (f"{top}.{number}" if number else top)
        target = base / rest if rest else base
        if os.path.lexists(target):
            continue
        with suppress(FileExistsError, NotADirectoryError):  # a file that came earlier is on the way there
            target.parent.mkdir(parents=True, exist_ok=True)
            break
    try:
        os.rename(path, target)
    except OSError as error:
        if error.errno != errno.EXDEV:  # the stub tree may lie on a disk of its own
            raise
        import shutil  # seldom needed, and slow to import

        shutil.move(os.fsdecode(path), target)
    return target


def check_free(layout: Layout) -> str | None:
    """Whether a store can be made: raises UsageError when one of its places holds something else.

    Returns the store id of a creation that was interrupted here, which is to be gone on with.
    """
    begun = None
    with suppress(KvtoolError, OSError):
        begun = store_format.read(aside(layout.format)).store_id
    known = {"lock", aside(layout.format).name}
    if layout.stubs.is_relative_to(layout.root):
        known.add(layout.stubs.relative_to(layout.root).parts[0])
    if begun is not None:
        known |= {folder.name for folder in (layout.packs, layout.incoming, layout.staging)}
    if set(_entries(layout.root)) - known:
        raise UsageError(
            f"{layout.root} is not empty and has no store.toml",
            hint="choose an empty directory with --store.path",
        )
    if layout.stub_store_id.exists() and stub_tree_id(layout) != begun:
        raise UsageError(
            f"the stub tree {layout.stubs} belongs to another store",
            hint="choose another with --store.stubs, or name its store with --store.path",
        )
    if set(_entries(layout.stubs)) - ({layout.stub_private.name} if begun is not None else set()):
        raise UsageError(
            f"the stub tree {layout.stubs} is not empty", hint="choose an empty directory with --store.stubs"
        )
    return begun


def create(layout: Layout, sizes: ChunkSizes) -> StoreFormat:
    """Makes an empty store and its stub tree. Raises UsageError when either place holds something else."""
    fmt = StoreFormat(
        store_id=check_free(layout) or os.urandom(16).hex(),
        min_size=sizes.min_size,
        avg_size=sizes.avg_size,
        max_size=sizes.max_size,
    )
    write_aside(layout.format, store_format.dump(fmt))
    fsync_directory(
        layout.root
    )  # or a power cut leaves folders that nobody takes for the beginning of a store
    for folder in (layout.packs, layout.incoming, layout.staging, layout.stub_private):
        make_folder(folder)
    write_aside(layout.stub_store_id, fmt.store_id + "\n")
    put_in_place(layout.stub_store_id)
    # store.toml comes last: without it there is no store, and the next start goes on from here.
    put_in_place(layout.format)
    return fmt


def check_stub_tree(layout: Layout, fmt: StoreFormat) -> None:
    """Raises NoStore unless the stub tree is there and is this store's."""
    try:
        found = stub_tree_id(layout)
    except (FileNotFoundError, NotADirectoryError):
        raise NoStore(
            f"the stub tree {layout.stubs} of store {layout.root} is not there",
            hint="mount its disk, or name the right directory with --store.stubs",
        ) from None
    if found != fmt.store_id:
        raise NoStore(
            f"the stub tree {layout.stubs} belongs to store {found}, not to {layout.root} ({fmt.store_id})",
            hint="name the right directory with --store.stubs",
        )


def open_or_create(layout: Layout, sizes: ChunkSizes) -> StoreFormat:
    """The store's format, after making the store where there is none. The caller holds the lock."""
    if layout.format.exists():
        fmt = store_format.read(layout.format)
        check_stub_tree(layout, fmt)
        return fmt
    return create(layout, sizes)


def open_existing(layout: Layout) -> StoreFormat:
    """The format of a store that must be there. Raises NoStore, StoreFormatError."""
    fmt = store_format.read(layout.format)
    check_stub_tree(layout, fmt)
    return fmt


def stub_tree_id(layout: Layout) -> str:
    """The id of the store that the stub tree says it belongs to. Raises OSError, StoreFormatError."""
    store_format.check_regular(layout.stub_store_id)
    return layout.stub_store_id.read_text(encoding="utf-8", errors="backslashreplace").strip()


def aside(path: Path) -> Path:
    """Where `write_aside` writes what is to be at `path`."""
    return path.with_name(f".{path.name}.new")


def _entries(path: Path) -> list[str]:
    try:
        return os.listdir(path)
    except FileNotFoundError:
        return []
