"""kvtool verify: hash what is stored, and say which snapshots are damaged."""

import argparse
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from kvtool.cli.call import Call
from kvtool.cli.parser import examples
from kvtool.cli.paths import existing_stub, layout_of
from kvtool.cli.progress import progress
from kvtool.core.text import counted, printable
from kvtool.core.units import format_size
from kvtool.errors import Damage, KvtoolError, reason

if TYPE_CHECKING:
    from kvtool.store.badlist import Copy
    from kvtool.store.layout import Layout
    from kvtool.store.verify import BadChunk, Verified


_REQUEST = 250  # copies in one request to the mount, which may have 64 KiB


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    names = "hash what these snapshots need (default: every chunk in every pack)"
    parser.add_argument("names", metavar="NAME", nargs="*", help=names)
    parser.add_argument(
        "--repair", action="store_true", help="have the next save of the same bytes replace what is damaged"
    )
    examples(
        parser,
        ("kvtool verify", "hash every chunk, on all cores; also beside a mount"),
        ("kvtool verify chat.bin", "what one snapshot needs"),
        ("kvtool verify --repair", "have the next save of the same bytes replace what is damaged"),
    )


def run(call: Call) -> int:
    """Verifies beside a running mount or without one. Exit code 3 when something is damaged, and left so."""
    from kvtool.store.store import Store
    from kvtool.store.verify import Verification

    layout = layout_of(call.values)
    store = Store.open(layout, writable=False)
    paths = [existing_stub(layout, name) for name in dict.fromkeys(call.args.names)]
    work = Verification(store, paths or None)
    with progress(call, "verify", work.total) as watch:
        found = work.run(watch.done)
    if call.args.repair and work.copies:
        try:
            found = replace(found, marked=_mark(layout, work.copies))
        except (KvtoolError, OSError) as error:  # what was found took long to find: it is told all the same
            found = replace(found, failure=reason(error) if isinstance(error, OSError) else str(error))
    call.emit(asdict(found), "\n".join(_lines(found)))
    if found.failure is not None:
        call.note(f"nothing was marked: {printable(found.failure)}")
    is_dealt_with = found.marked == len(work.copies) and not any(chunk.places for chunk in found.bad)
    return 0 if is_dealt_with and not found.damaged else Damage.exit_code


def _mark(layout: "Layout", copies: list["Copy"]) -> int:
    """Has the running mount condemn the bad copies, or does it under the lock when none runs."""
    from kvtool.store import badlist, control, recover

    try:
        return sum(
            control.ask(layout, "condemn", copies=badlist.to_json(copies[at : at + _REQUEST]))["marked"]
            for at in range(0, len(copies), _REQUEST)
        )
    except control.NotRunning:
        with recover.writer(layout, sync=True) as (store, _, _):
            return badlist.condemn(store, copies)


def _lines(found: "Verified") -> Iterator[str]:
    """What is bad, by snapshot, and the summary."""
    by_snapshot: dict[str, list[tuple[int, BadChunk]]] = {}
    for chunk in found.bad:
        for place in chunk.places:
            by_snapshot.setdefault(place.snapshot, []).append((place.offset, chunk))
    for name, chunks in sorted(by_snapshot.items()):
        yield f"snapshot {printable(name)}"
        yield from (f"  at {offset}: {_shown(chunk)}" for offset, chunk in sorted(chunks, key=lambda c: c[0]))
    unneeded = [chunk for chunk in found.bad if not chunk.places]
    if unneeded:
        yield "needed by no snapshot"
        yield from (f"  {_shown(chunk)}" for chunk in unneeded)
    for file in found.damaged:
        yield f"damaged {file.kind} {printable(file.path)}: {printable(file.message)}"
    rate = f"{format_size(round(found.bytes / found.seconds))}/s" if found.seconds else "at once"
    verdict = f"{len(found.bad)} bad" if found.bad else "all chunks good" if found.damaged else "all good"
    if by_snapshot:
        verdict += f", in {counted(len(by_snapshot), 'snapshot')}"
    if found.damaged:
        verdict += f"; {counted(len(found.damaged), 'damaged file')}"
    if found.marked:
        yield f"{found.marked} bad copies marked: saving the same bytes again heals what needs them"
    hashed = counted(found.chunks, "chunk")
    yield f"{hashed}, {format_size(found.bytes)} in {found.seconds:.1f} s ({rate}): {verdict}"


def _shown(chunk: "BadChunk") -> str:
    where = f" in {printable(chunk.pack)} at {chunk.offset}" if chunk.pack is not None else ""
    return f"{chunk.kind} chunk {chunk.chunk} ({chunk.length} bytes){where}: {chunk.reason}"
