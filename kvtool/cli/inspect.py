"""kvtool inspect: list snapshots with what they cost, or show one."""

import argparse
from typing import TYPE_CHECKING, Any

from kvtool.cli.call import Call, printable
from kvtool.cli.paths import existing_stub, layout_of, shown_name
from kvtool.core.units import format_size
from kvtool.errors import ChunkMissing, Damage, IndexDamaged
from kvtool.store import layout as store_layout
from kvtool.store import stubs
from kvtool.store.layout import Layout

if TYPE_CHECKING:
    from kvtool.core.index import Index
    from kvtool.store.store import Store


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="show this snapshot (default: list all)")


def run(call: Call) -> int:
    """Reads the stubs, beside a running mount or without one. Exit code 3 when one is damaged."""
    layout = layout_of(call.settings)
    store_layout.open_existing(layout)
    if call.args.name is not None:
        return _show(call, layout)
    return _list(call, layout)


def _list(call: Call, layout: Layout) -> int:
    from kvtool.core.usage import usage

    indexes, damaged = {}, []
    for path in stubs.walk(layout):
        try:
            if stubs.get(path, stubs.INCOMPLETE) is None:
                indexes[path] = stubs.read_index(path)
        except IndexDamaged as error:
            damaged.append({"name": shown_name(layout, path), "message": str(error)})
        except FileNotFoundError:
            continue  # deleted or renamed while we looked
    used = usage(indexes)
    rows = []
    for path, index in indexes.items():
        try:
            attributes = stubs.attributes(path)
        except FileNotFoundError:
            continue
        rows.append(
            {
                "name": shown_name(layout, path),
                "size": index.size,
                "chunks": len(index),
                "unique_bytes": used[path].unique,
                "shared_bytes": used[path].shared,
                "uses": attributes.uses,
                "created": attributes.created,
                "last_used": attributes.last_used,
                "labels": attributes.labels,
            }
        )
    call.emit({"snapshots": rows, "damaged": damaged}, _table(rows))
    for entry in damaged:
        call.note(f"damaged: {entry['message']}")
    return IndexDamaged.exit_code if damaged else 0


def _table(rows: list[dict[str, Any]]) -> str:
    header = ("NAME", "SIZE", "UNIQUE", "SHARED", "USES", "CREATED")
    cells = [header] + [
        (
            printable(row["name"]),
            format_size(row["size"]),
            format_size(row["unique_bytes"]),
            format_size(row["shared_bytes"]),
            str(row["uses"]),
            row["created"],
        )
        for row in rows
    ]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = []
    for name, *numbers, created in cells:
        columns = [name.ljust(widths[0])]
        columns += [text.rjust(width) for text, width in zip(numbers, widths[1:-1], strict=True)]
        lines.append("  ".join([*columns, created]).rstrip())
    return "\n".join(lines)


def _show(call: Call, layout: Layout) -> int:
    from kvtool.store import fetch
    from kvtool.store.store import Store

    path = existing_stub(layout, call.args.name)
    index = stubs.read_index(path)
    attributes = stubs.attributes(path)
    store = Store.open(layout, writable=False)
    missing = None
    packs = runs = 0
    try:
        placement = fetch.plan_file(store, index).placement
    except ChunkMissing as error:
        missing = str(error)
    else:
        packs = len(set(placement.packs))
        runs = sum(
            i == 0
            or placement.packs[i] != placement.packs[i - 1]
            or placement.offsets[i] != placement.offsets[i - 1] + index.length(i - 1)
            for i in range(len(index))
        )
    data = {
        "name": call.args.name,
        "size": index.size,
        "tokens": None if missing else _token_count(store, index),
        "chunks": len(index),
        "distinct_chunks": len({chunk_id for chunk_id, _ in index.chunks()}),
        "packs": packs,
        "runs": runs,
        "uses": attributes.uses,
        "created": attributes.created,
        "last_used": attributes.last_used,
        "labels": attributes.labels,
        "missing": missing,
    }
    lines = [
        f"{key.replace('_', ' '):<16} {_shown(key, value)}"
        for key, value in data.items()
        if value is not None
    ]
    call.emit(data, "\n".join(lines))
    return ChunkMissing.exit_code if missing else 0


def _token_count(store: "Store", index: "Index") -> int | None:
    """The tokens of a llama.cpp snapshot; None for any other file, and where its beginning is damaged."""
    from kvtool.core import tokens
    from kvtool.store import fetch

    head = b""
    try:
        for piece in fetch.read_file(store, index):
            head += piece
            if len(head) >= tokens.header_size(head):
                break
        return len(tokens.decode(head).tokens)
    except (tokens.NoTokens, Damage):
        return None


def _shown(key: str, value: Any) -> str:
    if key == "size":
        return f"{value} ({format_size(value)})"
    if isinstance(value, dict):
        return ", ".join(f"{name}={text}" for name, text in value.items()) or "none"
    return str(value) if value != "" else "never"
