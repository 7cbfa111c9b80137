"""The demo: three snapshots of a conversation through a mount, beside the same in a plain folder.

Everything happens in one temporary folder, which is removed at the end, on Ctrl-C and after a failure too.
Standard library only; kvtool is driven by its command line.
"""

import argparse
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.llamaio import read_like_llama, save_like_proxy, write_like_llama
from tests.mounts import MountedStore, MountFailed, ignore_interrupts, interrupt_once, temporary_folder
from tests.synth import PLAIN, Conversation, Shape, Snapshot
from tests.timing import MIB, drop_caches, table, timed

ROOM = 2 << 30


@dataclass
class Row:
    """One line of the table; times in seconds."""

    name: str
    size: int
    new: int
    save: float
    save_plain: float
    save_synced: float
    restore: float = 0
    restore_plain: float = 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--tokens", type=int, default=3200, help="tokens of the first snapshot, 32 KiB each")
    tokens = parser.parse_args().tokens
    interrupt_once()
    try:
        with temporary_folder() as folder:
            if shutil.disk_usage(folder).free < ROOM:
                print(
                    f"demo: less than {ROOM >> 30} GiB free in {folder.parent}; set TMPDIR", file=sys.stderr
                )
                return 1
            run(folder, tokens)
    except KeyboardInterrupt:
        print("\ndemo: interrupted, everything is cleared away", file=sys.stderr)
        return 130
    except MountFailed as problem:
        print(f"demo: {problem}", file=sys.stderr)
        return 1
    print("Unmounted; nothing is left behind.")
    return 0


def run(folder: Path, tokens: int) -> None:
    """Save, restore, compare, and show what kvtool says about it."""
    plain = folder / "plain"
    plain.mkdir()
    with MountedStore(folder, limit=600) as mount:
        print(f"A store, a mount of it and a plain folder in {folder}\n")
        print("Saving as llama-server does (NAME.tmp, then a rename), and again into the plain folder:")
        rows, ends = [], {}
        for name, snapshot in conversation(PLAIN, tokens):
            rows.append(save(mount, plain, name, snapshot))
            ends[name] = snapshot.state_end
            print(f"  {name}: {rows[-1].new / MIB:.1f} of {rows[-1].size / MIB:.1f} MiB were new")
        show(mount, "status")
        print("Restoring through a fresh mount, and comparing every byte:")
        mount.remount()
        cold = False
        for row in rows:
            cold = restore(mount, plain, row, ends[row.name])
            print(f"  {row.name}: identical")
        print(f"\n{report(rows, cold)}")
        if not cold:
            print("Restores are warm: only root may empty the page cache.")
        show(mount, "inspect")
        show(mount, "inspect", rows[1].name)
        ignore_interrupts()


def show(mount: MountedStore, *command: str) -> None:
    print(f"\n$ kvtool {' '.join(command)} --store.path STORE\n{mount.kvtool(*command).stdout}")


def conversation(shape: Shape, tokens: int) -> list[tuple[str, Snapshot]]:
    """A conversation, its next turn, and another one that begins the same."""
    first = Conversation(shape, seed=1).turn(tokens)
    opening = first.snapshot()
    other = first.branch(tokens * 6 // 10, seed=2).turn(tokens * 4 // 10)
    return [
        ("first.bin", opening),
        ("next-turn.bin", first.turn(600).snapshot()),
        ("same-prefix.bin", other.snapshot()),
    ]


def save(mount: MountedStore, plain: Path, name: str, snapshot: Snapshot) -> Row:
    """Save into the mount and twice into the plain folder, the second time with fsync."""
    before = mount.pack_bytes
    seconds, _ = timed(lambda: save_like_proxy(str(mount.dir), name, snapshot))
    new = mount.pack_bytes - before
    os.sync()  # so that nobody pays for another's dirty pages
    unsynced, _ = timed(lambda: save_like_proxy(str(plain), name, snapshot))
    os.sync()
    synced, _ = timed(lambda: write_like_llama(str(plain / "synced"), snapshot, sync=True))
    os.unlink(plain / "synced")
    return Row(name, snapshot.size, new, seconds, unsynced, synced)


def restore(mount: MountedStore, plain: Path, row: Row, state_end: int) -> bool:
    """Read both back, from the disk if we may. Returns whether it was from the disk."""
    drop_caches()
    row.restore_plain, expected = timed(lambda: read_like_llama(str(plain / row.name), state_end))
    cold = drop_caches()
    row.restore, got = timed(lambda: read_like_llama(str(mount.dir / row.name), state_end))
    if got != expected:
        raise MountFailed(f"{row.name} came back different from what was saved")
    return cold


def report(rows: list[Row], cold: bool) -> str:
    """The table: sizes in MiB, times in seconds."""
    how = "cold" if cold else "warm"
    heading = [
        *("snapshot", "MiB", "new MiB", "new"),
        *("save s", "plain s", "plain+fsync s", f"{how} restore s", f"plain {how} s"),
    ]
    total = Row("all three", *(sum(getattr(row, f) for row in rows) for f in list(Row.__annotations__)[1:]))
    return table(
        [
            heading,
            *(
                [
                    *(row.name, f"{row.size / MIB:.1f}", f"{row.new / MIB:.1f}", f"{row.new / row.size:.0%}"),
                    *(f"{row.save:.2f}", f"{row.save_plain:.2f}", f"{row.save_synced:.2f}"),
                    *(f"{row.restore:.2f}", f"{row.restore_plain:.2f}"),
                ]
                for row in [*rows, total]
            ),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
