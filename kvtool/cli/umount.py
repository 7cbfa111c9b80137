"""kvtool umount: finish what is being written, then unmount."""

import argparse
from dataclasses import asdict

from kvtool.cli.answers import Unmounted
from kvtool.cli.call import Call
from kvtool.cli.parser import examples
from kvtool.cli.paths import directory_argument
from kvtool.core.text import printable
from kvtool.errors import UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("mountpoint", metavar="MOUNTPOINT", help="where the store is mounted")
    examples(parser, ("kvtool umount /srv/kv/mnt", "returns when all is committed"))


def run(call: Call) -> int:
    """Returns when all is committed and the mount's process has ended."""
    from kvtool.store import control, mounts
    from kvtool.store.layout import Layout

    place = directory_argument(call.args.mountpoint)
    mounted = mounts.find(place)
    if mounted is None:
        raise UsageError(
            f"no kvtool mount is at {place}", hint="`kvtool status` names the mountpoint of a store"
        )
    # The socket is in the store; where the stubs are does not matter here.
    layout = Layout(mounted.store, mounted.store)
    try:
        control.ask(layout, "umount", wait_for_end=True)
    except control.NotRunning:
        # Its process was killed: nothing is left to finish.
        mounts.take_down(place)
    answer = Unmounted(mountpoint=str(place), store=str(mounted.store))
    call.emit(asdict(answer), printable(f"{mounted.store} is no longer on {place}"))
    return 0
