"""The answers of kvtool inspect for people."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kvtool.cli.table import table
from kvtool.core.text import counted, printable
from kvtool.core.units import format_size

if TYPE_CHECKING:
    from kvtool.store.anatomy import Anatomy
    from kvtool.store.kinship import Tree
    from kvtool.store.snapshots import Listing

_COLUMNS = ("NAME", "SIZE", "UNIQUE", "SHARED", "USES", "LAST USED", "CREATED", "SCORE", "LABELS")


def listing_text(listing: "Listing") -> str:
    """One line a snapshot, whatever its name holds."""
    rows = [
        (
            printable(row.name),
            format_size(row.size),
            format_size(row.unique_bytes),
            format_size(row.shared_bytes),
            str(row.uses),
            _time(row.last_used),
            _time(row.created),
            f"{row.score:.2f}",
            labels_text(row.labels),
        )
        for row in listing.snapshots
    ]
    return table(_COLUMNS, rows, left={"NAME", "LAST USED", "CREATED", "LABELS"})


def labels_text(labels: Mapping[str, str]) -> str:
    """Labels on one line."""
    return ", ".join(f"{printable(key)}={printable(value)}" for key, value in labels.items())


def anatomy_text(found: "Anatomy") -> str:
    """What there is to say about one snapshot."""
    return "\n".join(_anatomy_lines(found))


def _anatomy_lines(found: "Anatomy") -> Iterator[str]:
    packs = counted(found.packs, "pack")
    lines = [
        ("name", printable(found.name)),
        ("size", f"{found.size} ({format_size(found.size)})"),
        ("unique", f"{format_size(found.unique_bytes)}: what deleting it frees"),
        ("shared", f"{format_size(found.shared_bytes)}: what other snapshots need too"),
        (
            "chunks",
            f"{found.chunks}, {found.distinct_chunks} of them distinct{_each(found.size, found.chunks)}",
        ),
        ("fragmentation", f"{packs}, {counted(found.runs, 'run')}{_each(found.size, found.runs)}"),
        ("uses", str(found.uses)),
        ("last used", _time(found.last_used)),
        ("created", _time(found.created)),
        ("modified", _time(found.modified)),
        ("labels", labels_text(found.labels) or "none"),
        ("score", f"{found.score:.2f}"),
    ]
    if found.llama is not None:
        kind = "session" if found.llama.session else "slot"
        tokens = counted(found.llama.tokens, "token")
        lines.append(("llama.cpp", f"{kind} file, format {found.llama.version}, {tokens}"))
        more = " ..." if found.llama.tokens > len(found.llama.first_tokens) else ""
        lines.append(("first tokens", " ".join(map(str, found.llama.first_tokens)) + more))
    if found.missing is not None:
        lines.append(("missing", printable(found.missing)))
    yield from (f"{key:<14} {value}".rstrip() for key, value in lines)
    if found.parts:
        yield ""
        yield table(
            ("STORED", "NEW CHUNKS", "NEW BYTES", "PACK"),
            [
                (_time(part.sealed), str(part.chunks), format_size(part.bytes), part.pack)
                for part in found.parts
            ],
            left={"STORED", "PACK"},
        )


def tree_text(tree: "Tree") -> str:
    """One line a snapshot or branching, indented below what it begins with."""
    rows = []
    depths: list[int] = []
    for node in tree.nodes:
        depth = 0 if node.parent is None else depths[node.parent] + 1
        depths.append(depth)
        indent = "  " * max(depth - 1, 0)
        freed = format_size(node.freed_bytes)
        if not node.snapshots and node.parent is not None:
            rows.append((str(node.tokens), freed, "", f"{indent}({node.below} snapshots begin so)"))
        for turn in node.snapshots:
            rows.append((str(node.tokens), freed, format_size(turn.new_bytes), indent + printable(turn.name)))
            freed = ""  # it is the node's
    parts = [table(("TOKENS", "FREES", "NEW", "SNAPSHOT"), rows, left={"SNAPSHOT"})] if rows else []
    if tree.without_tokens:
        parts.append(
            "\n".join(["without a token list:", *(f"  {printable(name)}" for name in tree.without_tokens)])
        )
    return "\n\n".join(parts)


def _each(size: int, count: int) -> str:
    return f", {format_size(round(size / count))} each on average" if count else ""


def _time(text: str) -> str:
    return printable(text) or "never"  # as with a snapshot that was never restored
