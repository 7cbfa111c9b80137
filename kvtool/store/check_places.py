"""fsck, the places: store.toml, the stub tree's id, what belongs into the folders and what does not."""

import os
import stat
from contextlib import suppress
from pathlib import Path

from kvtool.core.chunker import ChunkSizes
from kvtool.errors import NoStore, StoreFormatError, StoreTooNew
from kvtool.store import catalog_files, stubs
from kvtool.store import format as store_format
from kvtool.store import layout as store_layout
from kvtool.store.findings import Code
from kvtool.store.format import StoreFormat
from kvtool.store.layout import Layout
from kvtool.store.look import Look, why


def check_format(look: Look) -> None:
    """Reads store.toml and the stub tree's id; `judge_format` says more once the stubs have been read.

    Raises NoStore where there is no store at all, StoreTooNew, OSError.
    """
    layout = look.layout
    try:
        look.format = store_format.parse(store_format.read_text(layout.format), layout.format.name)
    except (StoreTooNew, PermissionError):
        raise
    except (NoStore, StoreFormatError, OSError) as error:
        if not (layout.packs.exists() or layout.catalog.exists()):
            raise
        look.format_trouble = why(error).removeprefix(f"{layout.root}/")
        if isinstance(error, NoStore):
            look.format_trouble = "store.toml is gone"
    _check_stub_tree(look)


def _check_stub_tree(look: Look) -> None:
    layout = look.layout
    if not layout.stubs.is_dir():
        look.add(
            Code.STUBS_ABSENT, layout.stubs, "there is no stub tree: mount its disk, or name the right one"
        )
        return
    try:
        found = store_layout.stub_tree_id(layout)
    except (FileNotFoundError, NotADirectoryError):
        text = "the stub tree does not say whose it is: is its disk mounted, and is it the right directory?"
        look.add(Code.STUBS_NO_ID, layout.stub_store_id, text)
    except PermissionError:
        raise
    except (StoreFormatError, OSError) as error:
        where = f"{layout.stub_private}/"  # the finding's path has it
        look.add(Code.STUBS_NO_ID, layout.stub_store_id, why(error).removeprefix(where))
    else:
        if not store_format.is_store_id(found):
            look.add(Code.STUBS_NO_ID, layout.stub_store_id, "the stub tree's id of its store is damaged")
        elif look.format is not None and found != look.format.store_id:
            text = f"the stub tree belongs to store {found}, not to {look.format.store_id}"
            look.add(Code.STUBS_OTHER_ID, layout.stub_store_id, text)
        else:
            look.store_id = found


def judge_format(look: Look) -> None:
    """What is wrong with store.toml, now that the stubs' chunk sizes are known, and with those of stubs."""
    layout, fmt = look.layout, look.format
    if fmt is None:
        derived = derived_format(look)
        more = "" if isinstance(derived, StoreFormat) else f", and it cannot be derived: {derived}"
        look.add(Code.STORE_TOML, layout.format, look.format_trouble + more)
        return
    others = {sizes: paths for sizes, paths in look.sizes.items() if sizes != fmt.sizes}
    if sizes_are_wrong(look):
        [sizes] = others
        text = f"its chunk sizes are {_show(fmt.sizes)}, those of all stubs {_show(sizes)}"
        look.add(Code.STORE_TOML_SIZES, layout.format, text)
        return
    for sizes, paths in others.items():
        for path in paths:
            name = stubs.name_of(layout, path)
            text = f"its header names the chunk sizes {_show(sizes)}, the store's are {_show(fmt.sizes)}"
            look.add(Code.STUB_HEADER, path, text, name)


def sizes_are_wrong(look: Look) -> bool:
    """Whether store.toml is alone against all stubs, of which there is more than one."""
    if look.format is None or len(look.sizes) != 1:
        return False
    [(sizes, paths)] = look.sizes.items()
    return sizes != look.format.sizes and len(paths) > 1


def derived_format(look: Look) -> StoreFormat | str:
    """What store.toml must have said, by the stub tree; a text with the reason when that cannot be told."""
    if look.store_id is None:
        return "the stub tree does not name its store either"
    if len(look.sizes) != 1:
        return "the stubs do not agree on the chunk sizes" if look.sizes else "no stub names the chunk sizes"
    [sizes] = look.sizes
    fmt = StoreFormat(
        store_id=look.store_id, min_size=sizes.min_size, avg_size=sizes.avg_size, max_size=sizes.max_size
    )
    try:
        return store_format.parse(store_format.dump(fmt), "the stubs")
    except StoreFormatError as error:
        return error.message


def check_folder(look: Look) -> None:
    """What lies in the store's directory: of the right type, and nothing else."""
    layout = look.layout
    for folder in (layout.packs, layout.incoming, layout.staging):
        if not folder.is_dir():
            text = "is no directory" if os.path.lexists(folder) else "is gone"
            look.add(Code.FOLDER_LOST, folder, f"the folder {folder.name} {text}")
    for path in in_the_way(layout):
        look.add(Code.IN_THE_WAY, path, f"{path.name} is not what must be there; move it away")
    if not look.in_use and _is_socket(layout.control):
        look.add(Code.LEFTOVER, layout.control, "the control socket of a mount that is gone")
    belonging = layout.names | {file.name for file in catalog_files.files(layout.catalog)}
    if layout.stubs.is_relative_to(layout.root):
        belonging.add(layout.stubs.relative_to(layout.root).parts[0])
    asides = {store_layout.aside(path).name for path in (layout.format, layout.bad_copies)}
    _check_names(look, layout.root, belonging, asides)
    for folder in (layout.incoming, layout.staging):
        if folder.is_dir() and not look.in_use:
            for name in sorted(os.listdir(folder)):
                look.add(Code.LEFTOVER, folder / name, "left by a save that did not end")
    if layout.stub_private.is_dir():
        asides = {store_layout.aside(layout.stub_store_id).name}
        _check_names(look, layout.stub_private, {layout.stub_store_id.name}, asides)


def _check_names(look: Look, folder: Path, belonging: set[str], asides: set[str]) -> None:
    for name in sorted(os.listdir(folder)):
        if name in belonging:
            continue
        is_leftover = name in asides or (
            folder == look.layout.stub_private and os.fsencode(name).startswith(stubs.ASIDE)
        )
        if not is_leftover:
            look.add(Code.FOREIGN, folder / name, "is not kvtool's")
        elif not look.in_use:
            look.add(Code.LEFTOVER, folder / name, "left by a commit that did not end")


def in_the_way(layout: Layout) -> list[Path]:
    """What lies in place of something else that the store needs, or a mount makes."""
    return [
        path
        for path, is_right in (
            (layout.lock, layout.lock.is_file()),
            (layout.log, layout.log.is_file()),
            (layout.synced, layout.synced.is_file()),
            (layout.bad_copies, layout.bad_copies.is_file()),
            (layout.control, _is_socket(layout.control)),
            (layout.quarantine, layout.quarantine.is_dir()),
        )
        if os.path.lexists(path) and not is_right
    ]


def _is_socket(path: Path) -> bool:
    with suppress(OSError):
        return stat.S_ISSOCK(path.lstat().st_mode)
    return False


def _show(sizes: ChunkSizes) -> str:
    return f"{sizes.min_size}, {sizes.avg_size}, {sizes.max_size}"
