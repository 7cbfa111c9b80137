"""kvtool status: what the running mount of a store does."""

import argparse

from kvtool.cli.call import Call
from kvtool.cli.paths import layout_of
from kvtool.core.units import format_size


def configure(parser: argparse.ArgumentParser) -> None:
    """Has no arguments of its own."""


def run(call: Call) -> int:
    """Asks the mount; exit code 1 when there is none, 10 when there is no store."""
    from kvtool.store import control, format

    layout = layout_of(call.settings)
    format.read(layout.format)
    status = control.ask(layout, "status")
    status.pop("command")
    shared = status["bytes_saved"] - status["bytes_new"]
    text = "\n".join(
        [
            f"store       {status['store']}",
            f"stubs       {status['stubs']}",
            f"mounted on  {status['mountpoint']} for {status['seconds']:.0f} s (process {status['pid']})",
            f"stored      {format_size(status['pack_bytes'])} in {status['packs']} packs, {status['chunks']} chunks",
            f"saved       {format_size(status['bytes_saved'])} since the start, {format_size(status['bytes_new'])} of"
            f" it new, {format_size(shared)} already there",
            f"files       {status['open_files']} open, {status['unfinished_saves']} saves unfinished",
        ]
    )
    call.emit(status, text)
    return 0
