"""The rules of the state machine: one for each call of `calls.Subject`, and some for what programs commonly
do with them.
"""

import os

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from tests.property import draws
from tests.property.calls import MAP_LENGTH
from tests.property.draws import FILE_MAX, Blob, Pick, Place, indexes, picks
from tests.property.machine import Comparison
from tests.property.tree import RENAME_EXCHANGE, RENAME_NOREPLACE, File, join

_any_handle = precondition(lambda self: self.model.handles)
_file_handle = precondition(lambda self: self.handle(0, files=True) is not None)
_mapping = precondition(lambda self: self.model.mappings)
_kvtool = precondition(lambda self: not self.quirks.special)


class Machine(Comparison):
    """Every rule."""

    @initialize(
        files=st.lists(st.tuples(st.booleans(), draws.names, draws.blobs), max_size=4),
        opened=st.lists(st.tuples(picks("file"), draws.usual_flags), max_size=4),
    )
    def populate(self, files: list[tuple[bool, bytes, Blob]], opened: list[tuple[Pick, int]]) -> None:
        """Begin with something, so that most picks find what they look for."""
        for inside, name, blob in files:
            if inside:
                self.do("mkdir", b"dir", 0o755)
            self.put(b"dir/" + name if inside else name, [blob], os.O_TRUNC)
        for pick, flags in opened:
            self.do("open", pick.path(self.model), flags, 0o644)

    # Handles

    @rule(pick=picks("file", "file", "file", "new"), flags=draws.open_flags, mode=draws.modes)
    def open(self, pick: Pick, flags: int, mode: int) -> None:
        if len(self.model.handles) < 8:
            self.do("open", pick.path(self.model), flags, mode)

    @_any_handle
    @rule(index=indexes)
    def dup(self, index: int) -> None:
        if len(self.model.handles) < 8:
            self.do("dup", self.handle(index))

    @_any_handle
    @rule(index=indexes)
    def close(self, index: int) -> None:
        handle = self.handle(index)
        node = self.model.handles[handle].node
        self.do("close", handle)
        if isinstance(node, File):
            self.touched(node)

    @_any_handle
    @rule(index=indexes, length=draws.lengths)
    def read(self, index: int, length: int) -> None:
        self.do("read", self.handle(index), length)

    @_file_handle
    @rule(index=indexes, length=draws.lengths, place=draws.places)
    def pread(self, index: int, length: int, place: Place) -> None:
        handle = self.handle(index, files=True)
        self.do("pread", handle, length, place.within(len(self.file_of(handle).data)))

    @_file_handle
    @rule(index=indexes, place=draws.places, whence=st.sampled_from([os.SEEK_SET, os.SEEK_END, os.SEEK_CUR]))
    def seek(self, index: int, place: Place, whence: int) -> None:
        handle = self.handle(index, files=True)
        size = len(self.file_of(handle).data)
        self.do("seek", handle, place.within(size) if whence == os.SEEK_SET else place.delta, whence)

    @_file_handle
    @rule(index=indexes, blob=draws.blobs)
    def write(self, index: int, blob: Blob) -> None:
        handle = self.writer(index)
        found = self.model.handles[handle]
        end = len(self.file_of(handle).data) if found.flags & os.O_APPEND else found.offset
        if end + blob.length <= FILE_MAX:
            self.do("write", handle, blob.bytes())
            self.touched(self.file_of(handle))

    @_file_handle
    @rule(index=indexes, blob=draws.patches, place=draws.places)
    def pwrite(self, index: int, blob: Blob, place: Place) -> None:
        handle = self.writer(index)
        size = len(self.file_of(handle).data)
        if max(size, place.within(size)) + blob.length <= FILE_MAX:
            self.do("pwrite", handle, blob.bytes(), place.within(size))
            self.touched(self.file_of(handle))

    @_file_handle
    @rule(index=indexes, place=draws.places, negative=st.integers(0, 20))
    def ftruncate(self, index: int, place: Place, negative: int) -> None:
        handle = self.writer(index)
        size = place.within(len(self.file_of(handle).data))
        self.do("ftruncate", handle, size if negative < 20 else -1)
        self.touched(self.file_of(handle))

    @_any_handle
    @rule(
        index=indexes,
        call=st.sampled_from(["fsync", "fchmod", "futimens"]),
        mode=draws.modes,
        times=draws.times,
    )
    def set_by_handle(self, index: int, call: str, mode: int, times: tuple[int, int] | None) -> None:
        argument = {"fsync": (), "fchmod": (mode,), "futimens": (times,)}[call]
        self.do(call, self.handle(index), *argument)

    # Mappings

    @_any_handle
    @rule(index=indexes, writable=st.booleans(), place=draws.places, blob=draws.blobs)
    def map(self, index: int, writable: bool, place: Place, blob: Blob) -> None:
        if len(self.model.mappings) < 4:
            number = self.do("map", self.handle(index), writable)
            if isinstance(number, int):
                self.use(number, place, blob, writable)

    @rule(pick=picks("file"), place=draws.places, blob=draws.blobs)
    def store_after_close(self, pick: Pick, place: Place, blob: Blob) -> None:
        """What is stored through a mapping comes after the flush of the last close."""
        handle = self.do("open", pick.path(self.model), os.O_RDWR, 0)
        if isinstance(handle, int):
            number = self.do("map", handle, True)
            self.do("close", handle)
            if isinstance(number, int):
                self.use(number, place, blob, True)
                self.do("unmap", number)

    @_mapping
    @rule(index=indexes, place=draws.places, blob=draws.blobs, store=st.booleans())
    def use_mapping(self, index: int, place: Place, blob: Blob, store: bool) -> None:
        number = list(self.model.mappings)[index % len(self.model.mappings)]
        self.use(number, place, blob, store and self.model.mappings[number].writable)

    def use(self, number: int, place: Place, blob: Blob, store: bool) -> None:
        """Store the blob into the mapping, or load as much, within the file's size."""
        file = self.model.mappings[number].file
        size = min(len(file.data), MAP_LENGTH)
        offset = min(place.within(size), size * 7 // 8)
        data = blob.bytes()[: size - offset]
        if data and store:
            self.do("map_store", number, offset, data)
            self.touched(file)
        elif data:
            self.do("map_load", number, offset, len(data))

    @_mapping
    @rule(index=indexes)
    def unmap(self, index: int) -> None:
        number = list(self.model.mappings)[index % len(self.model.mappings)]
        file = self.model.mappings[number].file
        self.do("unmap", number)
        self.touched(file)

    # Names and attributes

    @rule(pick=picks("file"), place=draws.places)
    def truncate(self, pick: Pick, place: Place) -> None:
        path = pick.path(self.model)
        file = dict(self.model.walk()).get(path)
        self.do("truncate", path, place.within(len(file.data) if isinstance(file, File) else 0))
        if isinstance(file, File):
            self.touched(file)

    @rule(pick=picks("file", "file", "dir"), mode=st.none() | draws.modes, times=draws.times)
    def attributes(self, pick: Pick, mode: int | None, times: tuple[int, int] | None) -> None:
        path = pick.path(self.model)
        if mode is not None:
            self.do("chmod", path, mode)
            return
        self.do("utimens", path, times)
        if times and path in dict(self.model.walk()):
            self.do("atime", path)

    @rule(pick=picks("new", "dir"), mode=draws.modes)
    def mkdir(self, pick: Pick, mode: int) -> None:
        self.do("mkdir", pick.path(self.model), mode)

    @rule(pick=picks("dir"), names=st.lists(draws.names, min_size=2, max_size=6))
    def dig(self, pick: Pick, names: list[bytes]) -> None:
        path = pick.path(self.model)
        for name in names:
            if path.count(b"/") < 12:
                path = join(path, name)
                self.do("mkdir", path, 0o755)
            if path not in dict(self.model.walk()):
                return

    @rule(pick=picks("dir"), remove=st.booleans())
    def rmdir_or_list(self, pick: Pick, remove: bool) -> None:
        self.do("rmdir" if remove else "listdir", pick.path(self.model))

    @rule(pick=picks("file"))
    def unlink(self, pick: Pick) -> None:
        self.do("unlink", pick.path(self.model))

    @rule(
        old=picks("file", "file", "dir"),
        new=picks("file", "new", "dir", "file", "new", "inside"),
        flags=st.sampled_from([0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE]),
        reverse=st.sampled_from([False, False, False, True]),
    )
    def rename(self, old: Pick, new: Pick, flags: int, reverse: bool) -> None:
        one = old.path(self.model)
        two = new.path(self.model) if new.how != "inside" else join(one, new.name)
        self.do("rename", *((two, one) if reverse else (one, two)), flags)

    # Extended attributes

    @rule(
        pick=picks("file", "file", "dir"),
        call=st.sampled_from(["setxattr", "setxattr", "getxattr", "removexattr"]),
        key=st.sampled_from(draws.XATTR_KEYS),
        value=draws.xattr_values,
        flags=draws.xattr_flags,
    )
    def xattr(self, pick: Pick, call: str, key: bytes, value: bytes, flags: int) -> None:
        path = pick.path(self.model)
        node = dict(self.model.walk()).get(path)
        if call != "setxattr" and node is not None and node.xattrs and flags:
            key = min(node.xattrs)
        self.do(call, path, key, *((value, flags) if call == "setxattr" else ()))

    @_kvtool
    @rule(
        pick=picks("file"),
        key=st.sampled_from(draws.LABEL_KEYS * 2 + draws.OWN_KEYS),
        value=draws.xattr_values,
        remove=st.booleans(),
    )
    def own_xattr(self, pick: Pick, key: bytes, value: bytes, remove: bool) -> None:
        call, arguments = ("removexattr", ()) if remove else ("setxattr", (value, 0))
        self.do(call, pick.path(self.model), key, *arguments)

    # What a kvtool mount refuses

    @_kvtool
    @rule(
        call=st.sampled_from(["link", "symlink", "mknod", "fallocate"]),
        old=picks("file"),
        new=picks("new", "new", "file"),
    )
    def refused(self, call: str, old: Pick, new: Pick) -> None:
        if call == "fallocate":
            handle = self.handle(old.index, files=True)
            if handle is not None:
                self.do(call, handle, 1 << 20)
            return
        before = {"link": (old.path(self.model),), "symlink": (b"target",), "mknod": ()}[call]
        self.do(call, *before, new.path(self.model))

    # What programs do

    @rule(
        pick=picks("file", "new"),
        parts=st.lists(draws.blobs, max_size=5),
        flags=st.sampled_from([os.O_TRUNC, os.O_APPEND]),
    )
    def save(self, pick: Pick, parts: list[Blob], flags: int) -> None:
        """As fopen(path, "wb") or "ab" does, fwrite and fclose."""
        self.put(pick.path(self.model), parts, flags)

    def put(self, path: bytes, parts: list[Blob], flags: int) -> None:
        handle = self.do("open", path, os.O_WRONLY | os.O_CREAT | flags, 0o644)
        if not isinstance(handle, int):
            return
        file = self.file_of(handle)
        start = len(file.data)
        for part in parts:
            if start + sum(p.length for p in parts) <= FILE_MAX:
                self.do("write", handle, part.bytes())
        self.do("close", handle)
        self.touched(file)

    @rule(pick=picks("file", "new"), parts=st.lists(draws.blobs, min_size=2, max_size=6))
    def append_many_times(self, pick: Pick, parts: list[Blob]) -> None:
        path = pick.path(self.model)
        for part in parts:
            self.put(path, [part], os.O_APPEND)

    @rule(
        pick=picks("file", "new"),
        parts=st.lists(draws.blobs, max_size=3),
        sync=st.booleans(),
        label=st.sampled_from(draws.LABEL_KEYS),
    )
    def replace(self, pick: Pick, parts: list[Blob], sync: bool, label: bytes) -> None:
        """As an editor or a proxy does: write aside, rename over. What is replaced may have a label."""
        path = pick.path(self.model)
        aside = path + b".tmp"
        if self.quirks.own_xattrs:
            self.do("setxattr", path, label, b"a label", 0)
        self.put(aside, parts, os.O_TRUNC)
        if sync:
            handle = self.do("open", aside, os.O_RDONLY, 0)
            if isinstance(handle, int):
                self.do("fsync", handle)
                self.do("close", handle)
        self.do("rename", aside, path, 0)

    @rule(
        pick=picks("file"),
        edits=st.lists(st.tuples(draws.places, st.none() | draws.patches), min_size=1, max_size=4),
        flags=st.sampled_from([os.O_RDWR, os.O_RDWR, os.O_RDWR | os.O_APPEND]),
    )
    def edit(self, pick: Pick, edits: list[tuple[Place, Blob | None]], flags: int) -> None:
        """As an editor in place does: writes and truncations anywhere."""
        handle = self.do("open", pick.path(self.model), flags, 0)
        if not isinstance(handle, int):
            return
        file = self.file_of(handle)
        for place, blob in edits:
            at = place.within(len(file.data))
            if blob is None:
                self.do("ftruncate", handle, at)
            elif max(at, len(file.data)) + blob.length <= FILE_MAX:
                self.do("pwrite", handle, blob.bytes(), at)
            self.do("fstat", handle)
        self.do("close", handle)
        self.touched(file)

    @rule(pick=picks("file"), tail=st.integers(1, 64))
    def restore(self, pick: Pick, tail: int) -> None:
        """As llama-server does: look at the tail, then read it all from the start in pieces."""
        path = pick.path(self.model)
        handle = self.do("open", path, os.O_RDONLY, 0)
        if not isinstance(handle, int):
            return
        if isinstance(self.model.handles[handle].node, File):
            size = len(self.file_of(handle).data)
            self.do("seek", handle, max(0, size - tail), os.SEEK_SET)
            self.do("read", handle, tail)
            self.do("seek", handle, 0, os.SEEK_SET)
            while self.do("read", handle, 300_000):
                pass
        self.do("close", handle)

    @_kvtool
    @rule(call=st.sampled_from(["idle", "idle", "collect"]))
    def settle(self, call: str) -> None:
        self.do(call)

    @precondition(lambda self: self.remounts < 2)
    @rule(among=st.integers(0, 4))
    def remount(self, among: int) -> None:
        if among == 0:
            self.remounts += 1
            self.close_all()
            self.do("remount")
            self.compare_all()

    # A rule with two names is drawn twice as often: most of what can go wrong goes wrong here.
    open_too, write_too, pwrite_too, pwrite_yet_again = open, write, pwrite, pwrite
    ftruncate_too, use_mapping_too = ftruncate, use_mapping
    save_too, rename_too, replace_too, edit_too = save, rename, replace, edit
