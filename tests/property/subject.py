"""A real directory as a `Subject`: a plain one, or one in a mount.

Every path is taken relative to a descriptor of the root, so its length counts as it is written. Calls that
know no descriptor go through /proc/self/fd of an O_PATH descriptor, which looks the path up and opens
nothing.
"""

import ctypes
import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.property.calls import MAP_LENGTH, Look, Stat
from tests.property.tree import join

_libc = ctypes.CDLL(None, use_errno=True)
_PROT_READ, _PROT_WRITE, _MAP_SHARED, _MAP_FAILED = 1, 2, 1, ctypes.c_void_p(-1).value
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.pread.restype = _libc.pwrite.restype = ctypes.c_ssize_t
_libc.pread.argtypes = _libc.pwrite.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long]
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
_libc.renameat2.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]


def _checked(result: int) -> int:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _stat(found: os.stat_result) -> Stat:
    is_dir = stat.S_ISDIR(found.st_mode)
    return Stat(is_dir, 0 if is_dir else found.st_size, stat.S_IMODE(found.st_mode), found.st_mtime_ns)


class OsSubject:
    """The file system below the directory `root`.

    Of a mount's `root`, `remount` unmounts and mounts it again, and `collect` runs a collection.
    """

    def __init__(
        self,
        root: bytes,
        name: str,
        remount: Callable[[], None] | None = None,
        collect: Callable[[], object] = lambda: None,
    ) -> None:
        self.name = name
        self._path = root
        self._remount, self._collect = remount, collect
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        self._bounce = os.memfd_create("mapping")
        self._handles: dict[int, int] = {}
        self._mappings: dict[int, int] = {}
        self._next = 0

    def shut(self) -> None:
        """Close everything that is still open, for a run that ends early too."""
        for address in self._mappings.values():
            _libc.munmap(address, MAP_LENGTH)
        for descriptor in [*self._handles.values(), self._bounce, self._root]:
            os.close(descriptor)

    def idle(self) -> None:
        pass

    def collect(self) -> None:
        self._collect()

    def remount(self) -> None:
        if self._remount is not None:
            os.close(self._root)
            self._remount()
            self._root = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)

    def _number(self) -> int:
        self._next += 1
        return self._next - 1

    @contextmanager
    def _looked_up(self, path: bytes) -> Iterator[str]:
        descriptor = os.open(path or b".", os.O_PATH | os.O_NOFOLLOW, dir_fd=self._root)
        try:
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)

    # Handles

    def open(self, path: bytes, flags: int, mode: int) -> int:
        descriptor = os.open(path, flags, mode, dir_fd=self._root)
        number = self._number()
        self._handles[number] = descriptor
        return number

    def dup(self, handle: int) -> int:
        descriptor = os.dup(self._handles[handle])
        number = self._number()
        self._handles[number] = descriptor
        return number

    def close(self, handle: int) -> None:
        os.close(self._handles.pop(handle))

    def read(self, handle: int, length: int) -> bytes:
        return os.read(self._handles[handle], length)

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        return os.pread(self._handles[handle], length, offset)

    def write(self, handle: int, data: bytes) -> int:
        return os.write(self._handles[handle], data)

    def pwrite(self, handle: int, data: bytes, offset: int) -> int:
        return os.pwrite(self._handles[handle], data, offset)

    def seek(self, handle: int, offset: int, whence: int) -> int:
        return os.lseek(self._handles[handle], offset, whence)

    def ftruncate(self, handle: int, size: int) -> None:
        os.ftruncate(self._handles[handle], size)

    def fsync(self, handle: int) -> None:
        os.fsync(self._handles[handle])

    def fstat(self, handle: int) -> Stat:
        return _stat(os.fstat(self._handles[handle]))

    def fchmod(self, handle: int, mode: int) -> None:
        os.fchmod(self._handles[handle], mode)

    def futimens(self, handle: int, times: tuple[int, int] | None) -> None:
        os.utime(self._handles[handle], **({"ns": times} if times else {}))

    def fallocate(self, handle: int, size: int) -> None:
        # Not os.posix_fallocate: glibc's writes a byte into each block where the file system refuses.
        _checked(_libc.fallocate(self._handles[handle], 0, 0, size))

    # Mappings: a page that cannot be had answers EFAULT to a system call, where touching it would end the
    # process with SIGBUS. Not the mmap module, which keeps a descriptor of its own, so that one more close
    # would follow the munmap.

    def map(self, handle: int, writable: bool) -> int:
        protection = _PROT_READ | (_PROT_WRITE if writable else 0)
        address = _libc.mmap(None, MAP_LENGTH, protection, _MAP_SHARED, self._handles[handle], 0)
        if address == _MAP_FAILED:
            _checked(-1)
        number = self._number()
        self._mappings[number] = address
        return number

    def map_load(self, mapping: int, offset: int, length: int) -> bytes:
        self._whole(_libc.pwrite(self._bounce, self._mappings[mapping] + offset, length, 0), length)
        return os.pread(self._bounce, length, 0)

    def map_store(self, mapping: int, offset: int, data: bytes) -> None:
        os.pwrite(self._bounce, data, 0)
        self._whole(_libc.pread(self._bounce, self._mappings[mapping] + offset, len(data), 0), len(data))

    def _whole(self, done: int, length: int) -> None:
        if _checked(done) != length:
            raise OSError(errno.EFAULT, f"the mapping ends after {done} of {length} bytes")

    def unmap(self, mapping: int) -> None:
        _checked(_libc.munmap(self._mappings.pop(mapping), MAP_LENGTH))

    # Paths

    def tree(self) -> dict[bytes, Look]:
        found: dict[bytes, Look] = {}
        pending = [b""]
        while pending:
            path = pending.pop()
            status = self.stat(path)
            xattrs = {key: self.getxattr(path, key) for key in self.listxattr(path)}
            names = self.listdir(path) if status.is_dir else None
            found[path] = Look(status, xattrs, names)
            pending += [join(path, name) for name in names or []]
        return found

    def truncate(self, path: bytes, size: int) -> None:
        with self._looked_up(path) as found:
            os.truncate(found, size)

    def stat(self, path: bytes) -> Stat:
        return _stat(os.stat(path or b".", dir_fd=self._root, follow_symlinks=False))

    def atime(self, path: bytes) -> int:
        return os.stat(path or b".", dir_fd=self._root, follow_symlinks=False).st_atime_ns

    def chmod(self, path: bytes, mode: int) -> None:
        os.chmod(path, mode, dir_fd=self._root)

    def utimens(self, path: bytes, times: tuple[int, int] | None) -> None:
        os.utime(path, dir_fd=self._root, **({"ns": times} if times else {}))

    def listdir(self, path: bytes) -> list[bytes]:
        descriptor = os.open(path or b".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._root)
        try:
            return sorted(os.fsencode(name) for name in os.listdir(descriptor))
        finally:
            os.close(descriptor)

    def mkdir(self, path: bytes, mode: int) -> None:
        os.mkdir(path, mode, dir_fd=self._root)

    def rmdir(self, path: bytes) -> None:
        os.rmdir(path, dir_fd=self._root)

    def unlink(self, path: bytes) -> None:
        os.unlink(path, dir_fd=self._root)

    def rename(self, old: bytes, new: bytes, flags: int) -> None:
        if flags:
            _checked(_libc.renameat2(self._root, old, self._root, new, flags))
        else:
            os.rename(old, new, src_dir_fd=self._root, dst_dir_fd=self._root)

    def link(self, old: bytes, new: bytes) -> None:
        os.link(old, new, src_dir_fd=self._root, dst_dir_fd=self._root, follow_symlinks=False)

    def symlink(self, target: bytes, path: bytes) -> None:
        os.symlink(target, path, dir_fd=self._root)

    def mknod(self, path: bytes) -> None:
        os.mknod(path, stat.S_IFIFO | 0o600, dir_fd=self._root)

    def setxattr(self, path: bytes, key: bytes, value: bytes, flags: int) -> None:
        with self._looked_up(path) as found:
            os.setxattr(found, key, value, flags)

    def getxattr(self, path: bytes, key: bytes) -> bytes:
        with self._looked_up(path) as found:
            return os.getxattr(found, key)

    def listxattr(self, path: bytes) -> list[bytes]:
        with self._looked_up(path) as found:
            return sorted(os.fsencode(key) for key in os.listxattr(found))

    def removexattr(self, path: bytes, key: bytes) -> None:
        with self._looked_up(path) as found:
            os.removexattr(found, key)
