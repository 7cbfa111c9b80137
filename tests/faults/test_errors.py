"""Calls that fail at any place: the caller learns it, the last commit stays, the next try works."""

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.errors import Fault, FaultyMount, faulty_mount, run_failing
from tests.faults.operations import write
from tests.faults.runs import Prepared
from tests.faults.scenarios import SCENARIOS
from tests.faults.shim import Kind

ANY_OPEN = Kind.OPEN | Kind.CREATE
SAVING = [
    *(Fault(ANY_OPEN, code, at) for code in (errno.EMFILE, errno.ENOSPC, errno.EIO) for at in (1, 2, 4)),
    *(Fault(Kind.WRITE, code, at) for code in (errno.ENOSPC, errno.EIO, 0) for at in (1, 2, 3, 9, 13)),
    *(Fault(Kind.SYNC, code, at) for code in (errno.ENOSPC, errno.EIO) for at in (1, 2, 3, 4, 5)),
    *(Fault(Kind.RENAME, code, at) for code in (errno.ENOSPC, errno.EIO) for at in (1, 2)),
    *(Fault(Kind.ATTR, errno.ENOSPC, at) for at in (1, 3, 5)),
    Fault(Kind.NAME, errno.EIO),
    *(
        Fault(kind, errno.ENOSPC, lasting=True)
        for kind in (ANY_OPEN, Kind.WRITE, Kind.SYNC, Kind.RENAME, Kind.ATTR)
    ),
]
READING = [
    *(Fault(ANY_OPEN, code) for code in (errno.EMFILE, errno.ENOSPC, errno.EIO)),
    *(Fault(Kind.READ, errno.EIO, at) for at in (1, 2)),
    Fault(Kind.READ, 0),
    Fault(Kind.READ, errno.EIO, lasting=True),
]
COLLECTING = [
    *(Fault(Kind.WRITE, code, 4) for code in (errno.ENOSPC, errno.EIO, 0)),
    *(Fault(kind, errno.EIO, at) for kind in (ANY_OPEN, Kind.READ) for at in (1, 8)),
    Fault(Kind.NAME, errno.EIO),
]
COMMANDS = [
    ("gc", Fault(ANY_OPEN, errno.EIO, 6)),
    ("gc", Fault(Kind.WRITE, errno.ENOSPC, 9)),
    ("mend", Fault(Kind.NAME, errno.EIO, 1)),
    ("chunk", Fault(Kind.WRITE, errno.ENOSPC, 12)),
    ("create", Fault(Kind.RENAME, errno.ENOSPC, 2)),
]


@pytest.fixture(scope="module")
def faulty(library: Path, prepared: Prepared) -> Iterator[FaultyMount]:
    with faulty_mount(library, prepared) as mount:
        yield mount


def overwrite(faulty: FaultyMount, _old: bytes, new: bytes) -> bytes:
    faulty.save("file", new)
    return new


def replace(faulty: FaultyMount, _old: bytes, new: bytes) -> bytes:
    faulty.save("aside", new)
    os.rename(faulty.path("aside"), faulty.path("file"))
    return new


def append(faulty: FaultyMount, old: bytes, new: bytes) -> bytes:
    write(faulty.path("file"), new, os.O_APPEND)
    return old + new


@pytest.mark.parametrize("fault", SAVING, ids=str)
def test_a_save_that_fails(faulty: FaultyMount, fault: Fault) -> None:
    met = faulty.met
    for save in (overwrite, replace, append):
        old, new = faulty.content(), faulty.content()
        faulty.save("file", old)
        content = None
        with faulty.failing(fault):
            content = save(faulty, old, new)
        committed = faulty.committed("file")
        assert committed == content if content is not None else committed in {old, new, old + new}
        with suppress(FileNotFoundError):
            os.unlink(faulty.path("aside"))
        faulty.save("file", new)
        assert faulty.read("file") == faulty.committed("file") == new
    assert faulty.met > met, "no call has failed"


@pytest.mark.parametrize("fault", READING, ids=str)
def test_a_read_that_fails(faulty: FaultyMount, fault: Fault) -> None:
    met = faulty.met
    for number in range(3):
        content = faulty.content()
        faulty.save(f"file{number}", content)
        with faulty.failing(fault):
            assert faulty.read(f"file{number}") == content
        assert faulty.read(f"file{number}") == content
    assert faulty.met > met, "no call has failed"


@pytest.mark.parametrize("fault", COLLECTING, ids=str)
def test_a_collection_that_fails(faulty: FaultyMount, fault: Fault) -> None:
    met = faulty.met
    kept, dead = faulty.content(), faulty.content()
    faulty.save("kept", kept)
    faulty.save("dead", dead)
    os.unlink(faulty.path("dead"))
    with faulty.failing(fault):
        faulty.collect()
    assert faulty.met > met, "no call has failed"
    faulty.save("file", dead)
    faulty.collect()
    assert faulty.read("kept") == kept
    assert faulty.read("file") == dead


@pytest.mark.parametrize(("name", "fault"), COMMANDS, ids=str)
def test_a_command_that_fails(library: Path, prepared: Prepared, name: str, fault: Fault) -> None:
    assert run_failing(SCENARIOS[name], fault, library, prepared), "no call has failed"
