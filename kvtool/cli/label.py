"""kvtool label: set, remove or list a snapshot's labels."""

import argparse
from dataclasses import asdict

from kvtool.cli.call import Call
from kvtool.cli.parser import examples
from kvtool.cli.paths import existing_stub, layout_of
from kvtool.core.text import printable
from kvtool.errors import UsageError
from kvtool.store import layout as store_layout
from kvtool.store.labels import Labels, change
from kvtool.store.layout import Layout


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("name", metavar="NAME", help="the snapshot, as it is named in the mount")
    parser.add_argument(
        "labels",
        metavar="KEY=VALUE",
        nargs="*",
        default=[],  # else argparse names it among those that are missing
        help="set this label; with nothing after the = remove it (default: list all)",
    )
    parser.add_argument("--delete", metavar="KEY", action="append", default=[], help="remove this label")
    examples(
        parser,
        ("kvtool label chat.bin", "list them"),
        ("kvtool label chat.bin project=demo keep=yes", "set two"),
        ("kvtool label chat.bin --delete keep", "remove one, as does keep="),
    )


def run(call: Call) -> int:
    """Has the running mount change them, or does it under the lock when none runs."""
    layout = layout_of(call.values)
    store_layout.open_existing(layout)
    name: str = call.args.name
    path = existing_stub(layout, name)
    changes = _changes(call.args)
    found = Labels(name, _change(call, layout, changes) if changes else change(path, {}))
    call.emit(
        asdict(found), "\n".join(f"{printable(key)}={printable(found.labels[key])}" for key in found.labels)
    )
    return 0


def _changes(args: argparse.Namespace) -> dict[str, str | None]:
    changes: dict[str, str | None] = {}
    for text in args.labels:
        key, sign, value = text.partition("=")
        if not sign:
            raise UsageError(f"'{text}' is not a label", hint="write it like project=demo")
        changes[key] = value or None
    return changes | dict.fromkeys(args.delete, None)


def _change(call: Call, layout: Layout, changes: dict[str, str | None]) -> dict[str, str]:
    from kvtool.store import control, recover

    try:
        answer: dict[str, str] = control.ask(layout, "label", name=call.args.name, changes=changes)["labels"]
        return answer
    except control.NotRunning:
        with recover.writer(layout, sync=call.values["store.durability"] == "power"):
            return change(existing_stub(layout, call.args.name), changes)
