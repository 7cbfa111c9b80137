"""kvtool status: what the running mount of a store does."""

import argparse

from kvtool.cli.call import Call
from kvtool.cli.parser import examples
from kvtool.cli.paths import layout_of
from kvtool.core.text import counted, printable
from kvtool.core.units import format_duration, format_size


def configure(parser: argparse.ArgumentParser) -> None:
    """Has no arguments of its own."""
    examples(parser, ("kvtool status", "open files, unfinished saves, what was saved and what of it was new"))


def run(call: Call) -> int:
    """Asks the mount; exit code 1 when there is none, 10 when there is no store."""
    from kvtool.store import control, format

    layout = layout_of(call.values)
    format.read(layout.format)
    status = control.ask(layout, "status")
    status.pop("command")
    shared = status["bytes_saved"] - status["bytes_new"]
    stored, saved, new = (format_size(status[key]) for key in ("pack_bytes", "bytes_saved", "bytes_new"))
    packs = counted(status["packs"], "pack")
    uptime = format_duration(round(status["seconds"]))
    text = "\n".join(
        [
            f"store       {printable(status['store'])}",
            f"stubs       {printable(status['stubs'])}",
            f"mounted on  {printable(status['mountpoint'])} for {uptime} (process {status['pid']})",
            f"stored      {stored} in {packs}, {counted(status['chunks'], 'chunk')}",
            f"saved       {saved} since the start, {new} of it new, {format_size(shared)} already there",
            f"files       {status['open_files']} open, {status['unfinished_saves']} saves unfinished",
        ]
    )
    call.emit(status, text)
    return 0
