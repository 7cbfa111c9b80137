"""kvtool fsck: check a store for damage, and mend it."""

import argparse
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

from kvtool.cli.call import Call
from kvtool.cli.parser import examples
from kvtool.cli.paths import layout_of
from kvtool.cli.progress import progress
from kvtool.cli.table import paint
from kvtool.core.text import counted, printable
from kvtool.errors import Damage, UsageError

if TYPE_CHECKING:
    from kvtool.store.findings import Finding, Report

_FLAGS = ("dry_run", "adopt_stubs", "quarantine_snapshots")
_SHOWN_NAMES = 5
_COLOURS = {"damage": "red", "fixable": "yellow", "info": "dim"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("--repair", action="store_true", help="mend what can be mended; no mount may run")
    parser.add_argument("--dry-run", action="store_true", help="with --repair: say what would be done")
    parser.add_argument(
        "--adopt-stubs",
        action="store_true",
        help="with --repair: take a stub tree that does not name this store for its own",
    )
    parser.add_argument(
        "--quarantine-snapshots",
        action="store_true",
        help="with --repair: move the stubs of snapshots that lost bytes to quarantine/stubs/",
    )
    examples(
        parser,
        ("kvtool fsck", "what is damaged; also beside a mount"),
        ("kvtool fsck --repair --dry-run", "what a repair would do"),
        ("kvtool fsck --repair", "mend it, without a mount"),
    )


def run(call: Call) -> int:
    """Checks, beside a running mount or without one, or repairs. Exit code 3 when damage is found."""
    from kvtool.store.check import check_store
    from kvtool.store.repair import repair

    args = call.args
    for flag in _FLAGS:
        if getattr(args, flag) and not args.repair:
            raise UsageError(f"--{flag.replace('_', '-')} goes with --repair")
    # What store.toml says must not matter: it may be what is damaged.
    layout = layout_of(call.values_without_store)
    shown = "repair: {repair}" if args.repair else ""
    if args.repair and not args.dry_run:
        with progress(call, "fsck: repairing"):
            report = repair(
                layout, adopt_stubs=args.adopt_stubs, quarantine_snapshots=args.quarantine_snapshots
            )
        shown = "repair: {repair} ({outcome})"
    else:
        with progress(call, "fsck", unit="packs and snapshots") as watch:
            report = check_store(layout, watch=watch)
    call.emit(asdict(report), "\n".join(_lines(report, shown)))
    if not report.clean and not args.repair:
        advice = "`kvtool fsck --repair` mends what can be mended; " if report.mendable else ""
        call.note(f"{advice}docs/fsck.md explains every word, and what is left to you")
    return 0 if report.clean else Damage.exit_code


def _lines(report: "Report", shown: str) -> list[str]:
    """The findings, those of the store first, then by snapshot; and what was looked at.

    `shown` is how to show the repair of each.
    """
    from kvtool.store.findings import Severity

    lines: list[str] = []
    by_snapshot: dict[str, list[Finding]] = {}
    for found in report.findings:
        if found.code.is_of_stub and found.snapshots:
            by_snapshot.setdefault(found.snapshots[0], []).append(found)
        else:
            lines += _finding_lines(found, found.path, shown)
    for name, findings in sorted(by_snapshot.items()):
        lines.append(f"snapshot {printable(name)}")
        lines += [f"  {line}" for found in findings for line in _finding_lines(found, "", shown)]
    counts = [
        f"{sum(found.severity is severity for found in report.findings)} {severity}" for severity in Severity
    ]
    numbers = ((report.snapshots, "snapshot"), (report.packs, "pack"), (report.chunks, "chunk"))
    looked_at = ", ".join(counted(number, thing) for number, thing in numbers)
    return [*lines, f"{looked_at}: {', '.join(counts)}" if report.findings else f"{looked_at}: clean"]


def _finding_lines(found: "Finding", path: str, shown: str) -> Iterable[str]:
    where = f"{printable(path)}: " if path else ""
    yield f"{paint(found.severity, _COLOURS[found.severity])} {found.code}: {where}{printable(found.message)}"
    if path and found.snapshots:
        names = [printable(name) for name in found.snapshots[:_SHOWN_NAMES]]
        more = len(found.snapshots) - len(names)
        yield f"  concerns {', '.join(names)}" + (f" and {more} more" if more else "")
    if shown:
        yield "  " + shown.format(repair=found.repair, outcome=found.outcome)
