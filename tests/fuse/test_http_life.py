"""The HTTP API of real mounts: costs after every change, bad clients, the process from start to end."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import processes
from tests.api import (
    BEARER,
    IMPORTS,
    TOKEN,
    Api,
    KiB,
    data_of,
    mounted,
    recount,
    save,
    shared_api,
    slot,
)
from tests.mounts import MountedStore

shared = pytest.fixture(shared_api, scope="module")


def test_costs_are_exact_after_every_kind_of_change(shared: Api) -> None:
    """Against a recount, over HTTP and as extended attributes of the mount."""
    rng = random.Random(7)
    folder = shared.mount.dir / "exact"
    folder.mkdir()
    parts = [data_of(100 + number, 200 * KiB) for number in range(4)]

    def change() -> None:
        there = sorted(os.listdir(folder))
        kind = rng.choice(["save", "save", "rename", "delete", "append", "rewrite"])
        if kind == "save" or not there:
            (folder / f"s{rng.randrange(6)}").write_bytes(b"".join(rng.choices(parts, k=3)))
        elif kind == "rename":
            (folder / rng.choice(there)).rename(folder / f"s{rng.randrange(6)}")
        elif kind == "delete":
            assert shared(f"/v1/snapshots/exact/{rng.choice(there)}", "DELETE").status == 204
        elif kind == "append":
            with (folder / rng.choice(there)).open("ab") as file:
                file.write(rng.choice(parts))
        else:
            with (folder / rng.choice(there)).open("r+b") as file:
                file.seek(rng.randrange(200 * KiB))
                file.write(rng.randbytes(1000))

    for step in range(12):
        change()
        counts = recount(shared)
        rows = shared.snapshots()
        assert {name: (row["unique_bytes"], row["shared_bytes"]) for name, row in rows.items()} == counts
        if step % 3 == 0:
            for name in os.listdir(folder):
                path = folder / name
                unique, common = counts[f"exact/{name}"]
                assert os.getxattr(path, "user.kvtool.unique_bytes") == b"%d" % unique
                assert os.getxattr(path, "user.kvtool.shared_bytes") == b"%d" % common
                assert float(os.getxattr(path, "user.kvtool.score")) >= 0


def test_the_computed_attributes_follow_every_change(shared: Api) -> None:
    folder = shared.mount.dir / "follow"
    folder.mkdir()
    data = data_of(60, 100 * KiB)

    def unique(name: str) -> int:
        return int(os.getxattr(folder / name, "user.kvtool.unique_bytes"))

    def copy() -> None:
        (folder / "b").write_bytes(data)
        assert unique("a") == 0

    (folder / "a").write_bytes(data)
    assert unique("a") == 100 * KiB
    copy()
    (folder / "b").unlink()
    assert unique("a") == 100 * KiB
    copy()
    (folder / "b").write_bytes(b"rewritten")
    assert unique("a") == 100 * KiB
    copy()
    (folder / "c").write_bytes(b"another")
    (folder / "c").rename(folder / "b")
    assert unique("a") == 100 * KiB
    copy()
    os.truncate(folder / "b", 0)
    assert unique("a") == 100 * KiB
    (folder / "a").rename(folder / "d")
    assert unique("d") == 100 * KiB


def test_the_computed_attributes_are_neither_listed_nor_set_nor_there_for_what_is_no_snapshot(
    shared: Api,
) -> None:
    save(shared, "attributes/a", b"data")
    path = shared.mount.dir / "attributes" / "a"
    assert not [name for name in os.listxattr(path) if "kvtool" in name]
    with pytest.raises(PermissionError):
        os.setxattr(path, "user.kvtool.score", b"1")
    for other in (path.parent, shared.mount.dir):
        with pytest.raises(OSError, match="No data"):
            os.getxattr(other, "user.kvtool.score")
    with path.open("rb") as file:
        path.unlink()
        with pytest.raises(OSError, match="No data"):
            os.getxattr(file.fileno(), "user.kvtool.unique_bytes")


def test_a_score_of_ones_own(mounts: Callable[..., MountedStore]) -> None:
    place = mounts("--score.expression", "0 if labels['keep'] else tokens + uses / 10")
    (place.dir / "a").write_bytes(slot(1234))
    (place.dir / "b").write_bytes(b"no tokens")
    os.setxattr(place.dir / "b", "user.kvtool.label.keep", b"yes")
    (place.dir / "a").read_bytes()
    assert os.getxattr(place.dir / "a", "user.kvtool.score") == b"1234.1"
    assert os.getxattr(place.dir / "b", "user.kvtool.score") == b"0"
    flags = ("--score.expression", "tokens + size")
    rows = {
        row["name"]: row["score"]
        for row in json.loads(place.kvtool("inspect", *flags, "--json").stdout)["snapshots"]
    }
    assert rows == {"a": 1234 + (place.dir / "a").stat().st_size, "b": 9}


# -- who does not behave


def test_a_client_that_sends_half_a_request_is_cut_off(shared: Api) -> None:
    with shared.connect() as slow:
        slow.sendall(b"GET /v1/health HTTP/1.1\r\nHost: local")
        began = time.monotonic()
        assert slow.recv(1000) == b""
        assert time.monotonic() - began < 30


def test_too_large_a_head_or_body_is_refused(shared: Api) -> None:
    with shared.connect() as large:
        large.sendall(b"GET /v1/health HTTP/1.1\r\nX: " + b"x" * (1 << 17))
        assert large.recv(100).startswith(b"HTTP/1.1 431")
    assert shared("/v1/gc", "POST", b"x" * (65 << 10)).status == 413
    assert shared("/v1/unique-bytes?" + "name=a&" * 1001).status == 422


def test_other_sites_and_names_are_refused(shared: Api) -> None:
    assert shared("/v1/snapshots", headers={"Host": "evil.example"}).status == 421
    assert shared("/v1/snapshots", headers={"Origin": "http://evil.example"}).status == 403
    assert shared("/v1/gc", "POST", headers={}).status == 401
    assert shared("/v1/gc", "POST", headers={**BEARER, "Origin": "null"}).status == 403
    assert "access-control-allow-origin" not in shared("/v1/health").headers


# -- life


def test_the_process_comes_back_after_its_death_and_goes_with_the_mount() -> None:
    with mounted() as api:
        api.mount.expect_log("the HTTP API's process ended .*another starts")
        server = next(
            pid
            for pid in api.mount.processes
            if b"kvtool.http.main" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
        os.kill(server, signal.SIGKILL)
        assert api.get("/v1/health") == {"status": "ok"}  # connects at once, and is answered by the next one
        family = api.mount.processes
        assert server not in family
        logged = api.get("/v1/logs?level=error")["lines"]
        assert len(logged) == 1
        assert "exit code -9" in logged[0]["message"]
        api.mount.umount()
        processes.wait_gone(family, 30)
        with pytest.raises(ConnectionRefusedError):
            api.connect()


def test_nothing_of_http_is_imported_when_it_is_off(
    shared: Api, mounts: Callable[..., MountedStore], tmp_path: Path
) -> None:
    with MountedStore(tmp_path / "m", env=IMPORTS) as place:
        (place.dir / "a").write_bytes(b"x" * 100_000)
        os.getxattr(place.dir / "a", "user.kvtool.score")
        place.umount()
        off = imported(place)
    web = {"fastapi", "starlette", "hypercorn", "prometheus_client", "anyio", "h11", "kvtool.http"}
    assert {"trio", "pyfuse3", "kvtool.fs.mount", "kvtool.store.ingest"} <= off
    assert not off & web
    assert web <= imported(shared.mount)


def imported(place: MountedStore) -> set[str]:
    """The modules that the processes of a mount have imported since its start, and their packages."""
    lines = [line.rpartition("|")[2].strip() for line in place.log if line.startswith("import time:")]
    return set(lines) | {name.partition(".")[0] for name in lines}


def refused(root: Path, *flags: str) -> "subprocess.CompletedProcess[str]":
    """A mount that does not come to be."""
    (root / "mnt").mkdir()
    command = [
        sys.executable,
        "-m",
        "kvtool",
        "mount",
        str(root / "mnt"),
        "--store.path",
        str(root / "store"),
    ]
    return subprocess.run([*command, *flags], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("flags", "message", "code"),
    [
        (["--http.listen", "0.0.0.0:0"], "http.token", 2),
        (["--http.listen", "127.0.0.1"], "is not HOST:PORT", 2),
        (["--http.listen", "203.0.113.7:1", "--http.token", TOKEN], "cannot listen on 203.0.113.7:1", 1),
        (["--http.token", "short"], "http.token: \\*+ is not 16 to 256", 2),
        (["--score.expression", "size / unique"], "wrong at character 8 \\('unique'\\)", 2),
    ],
)
def test_what_cannot_work_is_refused_at_start(
    tmp_path: Path, flags: list[str], message: str, code: int
) -> None:
    done = refused(tmp_path, *flags)
    assert done.returncode == code, done
    assert re.search(message, done.stderr)
    assert "short" not in done.stderr


def test_a_port_that_is_taken_is_refused_at_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        done = refused(tmp_path, "--http.listen", place)
    assert done.returncode == 1
    assert f"cannot listen on {place}: Address already in use" in done.stderr
