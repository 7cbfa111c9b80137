"""kvtool prefetch: have the running mount read snapshots into the kernel's page cache."""

import argparse
from dataclasses import asdict

from kvtool.cli.answers import Prefetched
from kvtool.cli.call import Call, printable
from kvtool.cli.parser import examples
from kvtool.cli.paths import existing_stub, layout_of
from kvtool.errors import KvtoolError


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("names", metavar="NAME", nargs="+", help="paths relative to the mount")
    examples(
        parser,
        ("kvtool prefetch chat.bin", "it is restored soon"),
        ("kvtool prefetch --wait a.bin b.bin", "returns when both are in the page cache"),
    )
    parser.add_argument("--wait", action="store_true", help="return when they are there")


def run(call: Call) -> int:
    """Asks the mount, which reads one after the other. Exit code 1 when one will not or could not be read."""
    from kvtool.store import control
    from kvtool.store import layout as store_layout

    layout = layout_of(call.values)
    store_layout.open_existing(layout)
    names = list(dict.fromkeys(call.args.names))
    for name in names:
        existing_stub(layout, name)
    given_up: dict[str, str] = {}
    for name in names:
        try:
            trouble = control.ask(layout, "prefetch", name=name, wait=bool(call.args.wait))["trouble"]
        except control.NotRunning:
            raise
        except KvtoolError as error:
            trouble = error.message
        if trouble:
            given_up[name] = trouble
    text = f"{len(names) - len(given_up)} of {len(names)} snapshots are " + (
        "in the page cache" if call.args.wait else "in line to be read"
    )
    lines = [f"{printable(name)}: given up: {printable(why)}" for name, why in given_up.items()]
    answer = Prefetched(names=names, read=bool(call.args.wait), given_up=given_up)
    call.emit(asdict(answer), "\n".join([*lines, text]))
    return 1 if given_up else 0
