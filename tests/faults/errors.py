"""Calls that fail: what a mount's caller may see of it, and that nothing else comes of it."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kvtool.errors import KvtoolError
from kvtool.store import control, recover, stubs
from kvtool.store.layout import Layout
from tests import stores
from tests.faults.operations import write
from tests.faults.runs import Prepared, running
from tests.faults.scenarios import SCENARIOS, Scenario
from tests.faults.shim import Action, Kind, Shim
from tests.faults.verify import check_after_kill
from tests.mounts import MountedStore, temporary_folder
from tests.property.check import check_store
from tests.stores import layout_in
from tests.synth import random_bytes

# What a mount may say of a call that failed under it.
_LOGGED = r"(saving|opening|reading) .* failed: |collection: |chunk \w+ cannot be checked: |catalog"
_FOR_EVER = 1 << 60


class Fault(NamedTuple):
    """Of the calls of a kind, number `at`, or all from there on, fails with an errno; for errno 0 a read or
    write does half of what it should.
    """

    kind: Kind
    error: int
    at: int = 1
    lasting: bool = False

    def __str__(self) -> str:
        what = errno.errorcode[self.error] if self.error else "short"
        return f"{self.kind.name}-{what}-{'from' if self.lasting else 'at'}-{self.at}"

    def set(self, shim: Shim) -> None:
        """From here on it fails."""
        action = Action.FAIL if self.error else Action.SHORTEN
        until = _FOR_EVER if self.lasting else self.at
        shim.watch(self.kind, action, self.at, until=until, error=self.error)


@dataclass
class FaultyMount:
    """A mount under the shim, and how many faults it has met."""

    mount: MountedStore
    shim: Shim
    layout: Layout
    met: int = 0
    _saves: int = 0

    def content(self) -> bytes:
        """Bytes that were never saved."""
        self._saves += 1
        return random_bytes(150_000, 1000 + self._saves)

    @contextmanager
    def failing(self, fault: Fault) -> Iterator[None]:
        """Calls fail as `fault` says until the block ends. The block may end with that errno or with EIO."""
        fault.set(self.shim)
        try:
            yield
        except OSError as error:
            if error.errno not in {fault.error, errno.EIO}:
                raise
        except KvtoolError:  # of the control socket, without an errno
            pass
        finally:
            self.shim.stop()
            self.met += self.shim.fired

    def path(self, name: str) -> Path:
        return self.mount.dir / name

    def save(self, name: str, content: bytes) -> None:
        write(self.path(name), content, os.O_CREAT | os.O_TRUNC)

    def read(self, name: str) -> bytes:
        """The file's bytes, which the kernel has to ask for."""
        fd = os.open(self.path(name), os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            return os.read(fd, 1 << 20)
        finally:
            os.close(fd)

    def committed(self, name: str) -> bytes:
        """What is on the disk, past the mount."""
        with stores.opened(self.layout, writable=False) as store:
            return stores.read(store, stubs.read_index(stores.stub(store, name)))

    def collect(self) -> None:
        control.ask(self.layout, "gc", dry_run=False)


@contextmanager
def faulty_mount(library: Path, prepared: Prepared) -> Iterator[FaultyMount]:
    """Checks at its end that nothing half-done is left, and that the log tells of nothing else."""
    flags = ("--store.gc_interval", "0", "--store.durability", "power")
    with temporary_folder() as root, Shim(library, root) as shim:
        prepared.copy(SCENARIOS["save"], root)
        with MountedStore(root, *flags, env=shim.environment) as mount:
            mount.expect_log(_LOGGED)
            yield FaultyMount(mount, shim, layout_in(root))
        with recover.writer(layout_in(root), sync=False):
            pass  # a read that was cut short may look like damage in the catalog: it is made anew
        check_store(layout_in(root).root, layout_in(root).stubs)


def run_failing(scenario: Scenario, fault: Fault, library: Path, prepared: Prepared) -> bool:
    """A command whose call fails: it says so in one line, and leaves what a kill there would leave.

    Returns whether it has met the fault.
    """
    with temporary_folder() as root:
        tree = prepared.copy(scenario, root)
        with running(scenario, library, root, tree) as run:
            fault.set(run.shim)
            run.play()
            met = run.shim.fired > 0
        if run.error is not None:
            code, said = run.error.args
            assert code in {1, 3}
            assert "Traceback" not in said
            assert said.splitlines()[-1].startswith("kvtool: error: "), said
        check_after_kill(root, run.trees)
    return met
