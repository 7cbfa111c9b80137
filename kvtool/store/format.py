"""store.toml: what a store is made of, written once when it is created.

```toml
version = 1
store_id = "6f1d0c52a1b94f0c8a3e6d0b9a7f4e21"

[chunk]
chunker = "fastcdc"
min_size = 16384
avg_size = 65536
max_size = 262144
hash = "sha256"
```
Sizes are bytes. The same chunk sizes for the life of a store: with others, nothing would be found again.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from kvtool.core.chunker import ChunkSizes
from kvtool.core.toml_text import TomlError, key_lines, parse_toml
from kvtool.errors import NoStore, StoreFormatError, StoreTooNew

VERSION = 1

_COMMENT = "# Written by kvtool when it made this store. Changing it makes the store unreadable.\n"
_LARGEST = 64 << 10  # bytes
_STORE_ID = re.compile(r"[0-9a-f]{32}")
_SIZES = ("min_size", "avg_size", "max_size")
_HINT = "restore it from a backup, or set store.path to another store"


@dataclass(frozen=True, kw_only=True)
class StoreFormat:
    """The format of one store. `store_id` is 32 hex digits; sizes in bytes, min <= avg <= max."""

    version: int = VERSION
    store_id: str
    chunker: str = "fastcdc"
    min_size: int
    avg_size: int
    max_size: int
    hash: str = "sha256"

    @property
    def sizes(self) -> ChunkSizes:
        """The chunk sizes."""
        return ChunkSizes(self.min_size, self.avg_size, self.max_size)


def dump(fmt: StoreFormat) -> str:
    """The text of store.toml; `parse` reads it back."""
    chunk = {name: getattr(fmt, name) for name in ("chunker", *_SIZES, "hash")}
    return _COMMENT + tomli_w.dumps({"version": fmt.version, "store_id": fmt.store_id, "chunk": chunk})


def parse(text: str, where: str) -> StoreFormat:
    """The format in `text`; `where` names the file in messages.

    Raises StoreFormatError, and nothing else, for text that is none or is of a newer version.
    """
    try:
        document = parse_toml(text)
    except TomlError as error:
        raise StoreFormatError(f"{where}:{error.line}: not TOML: {error.reason}", hint=_HINT) from None
    version = document.get("version")
    if type(version) is not int or version < 1:
        raise StoreFormatError(f"{where}: version is not a number from 1", hint=_HINT)
    if version > VERSION:
        # Said before anything else is looked at: a newer format may have other keys.
        raise StoreTooNew(
            f"{where}: the store is of format {version}, this kvtool reads {VERSION}", hint="upgrade kvtool"
        )
    store_id, chunk = document.get("store_id"), document.get("chunk")
    if not isinstance(store_id, str) or not is_store_id(store_id):
        raise StoreFormatError(f"{where}: store_id is not 32 hex digits", hint=_HINT)
    if not isinstance(chunk, dict):
        raise StoreFormatError(f"{where}: the section chunk is absent", hint=_HINT)
    _check_keys(document, ("version", "store_id", "chunk"), "", where)
    _check_keys(chunk, ("chunker", *_SIZES, "hash"), "chunk.", where)
    for name, known in (("chunker", "fastcdc"), ("hash", "sha256")):
        if chunk.get(name) != known:
            raise StoreFormatError(f'{where}: chunk.{name} is not "{known}"', hint=_HINT)
    sizes = [size for name in _SIZES if type(size := chunk.get(name)) is int]  # a bool is none
    if len(sizes) != len(_SIZES):
        raise StoreFormatError(f"{where}: chunk sizes are not whole numbers of bytes", hint=_HINT)
    least, average, largest = sizes
    if not 0 < least <= average <= largest:
        raise StoreFormatError(f"{where}: chunk sizes are not in order", hint=_HINT)
    return StoreFormat(version=version, store_id=store_id, min_size=least, avg_size=average, max_size=largest)


def read(path: Path) -> StoreFormat:
    """The format in the file `path`, STORE/store.toml.

    Raises NoStore when it is absent, StoreFormatError when it is not usable, OSError when it cannot be read.
    """
    return parse(read_text(path), str(path))


def read_text(path: Path) -> str:
    """The text of the file `path`; for whoever needs `lines` as well. Raises as `read` does."""
    check_regular(path)
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise NoStore(
            f"there is no store at {path.parent}", hint="run `kvtool mount` once, or set store.path"
        ) from None
    if len(content) > _LARGEST:
        raise StoreFormatError(f"{path}: too long for a store.toml", hint=_HINT)
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise StoreFormatError(f"{path}: not UTF-8", hint=_HINT) from None


def check_regular(path: Path) -> None:
    """Raises StoreFormatError for anything else that is there: reading a pipe would wait for ever."""
    if os.path.lexists(path) and not path.is_file():
        raise StoreFormatError(f"{path} is not a regular file", hint=_HINT)


def lines(text: str) -> dict[str, int]:
    """The line, from 1, of each chunk size in text that `parse` took: {"chunk.min_size": 6, ...}."""
    found = key_lines(text)
    return {f"chunk.{name}": found["chunk", name] for name in _SIZES}


def is_store_id(text: str) -> bool:
    """Whether `text` may be a store's id."""
    return _STORE_ID.fullmatch(text) is not None


def _check_keys(table: dict[str, Any], known: tuple[str, ...], prefix: str, where: str) -> None:
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise StoreFormatError(f"{where}: {prefix}'{unknown[0]}' is no key of format {VERSION}", hint=_HINT)
