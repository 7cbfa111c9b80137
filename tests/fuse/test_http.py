"""The HTTP API of real mounts."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kvtool.core.tokens import TokenList, encode
from kvtool.store import stubs
from kvtool.store.layout import Layout
from tests import processes
from tests.api import BEARER, TOKEN, Api, mounted, path_of
from tests.mounts import MountedStore

KiB = 1 << 10
IMPORTS = {"PYTHONPROFILEIMPORTTIME": "1"}  # each process tells all that it imports


@pytest.fixture(scope="module")
def shared() -> Iterator[Api]:
    """One mount for all tests that only add files of their own."""
    if not os.path.exists("/dev/fuse") and "CI" not in os.environ:
        pytest.skip("there is no /dev/fuse here")
    with mounted("--store.gc_interval", "0", limit=300, env=IMPORTS) as api:
        yield api


def save(api: Api, name: str | bytes, data: bytes) -> None:
    path = os.path.join(os.fsencode(api.mount.dir), os.fsencode(name))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def recount(api: Api) -> dict[str, tuple[int, int]]:
    """Unique and shared bytes of every snapshot, from its stub, chunk by chunk."""
    layout = Layout(api.mount.store, api.mount.stubs)
    chunks = {
        stubs.name_of(layout, path): dict(stubs.read_index(path).chunks()) for path in stubs.walk(layout)
    }
    counts: dict[str, tuple[int, int]] = {}
    for name, its in chunks.items():
        others = [other for other_name, other in chunks.items() if other_name != name]
        shared = sum(length for chunk, length in its.items() if any(chunk in other for other in others))
        counts[name] = (sum(its.values()) - shared, shared)
    return counts


def slot(tokens: int) -> bytes:
    """A file that begins as those of llama-server do."""
    return encode(TokenList(4, array("i", range(tokens)))) + bytes(100)


def data_of(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


# -- what there is


def test_the_list_is_sorted_filtered_and_cut_into_pages(shared: Api) -> None:
    for number in range(5):
        save(shared, f"page/{number}", data_of(number, (number + 1) * 100 * KiB))
    shared("/v1/snapshots/page/1", "PATCH", {"labels": {"project": "demo", "keep": ""}})
    shared("/v1/snapshots/page/3", "PATCH", {"labels": {"project": "other"}})

    def names(query: str) -> list[str]:
        rows = shared.get(f"/v1/snapshots?prefix=page/&{query}")["snapshots"]
        return [row["name"].removeprefix("page/") for row in rows]

    assert names("") == ["0", "1", "2", "3", "4"]
    assert names("sort=size&order=down") == ["4", "3", "2", "1", "0"]
    assert names("order=down") == ["4", "3", "2", "1", "0"]
    assert names("limit=2&offset=1&sort=unique_bytes") == ["1", "2"]
    assert names("offset=5") == []
    assert names("label=project") == ["1", "3"]
    assert names("label=project%3Ddemo&label=keep") == ["1"]
    assert names("label=keep%3D") == ["1"]
    page = shared.get("/v1/snapshots?prefix=page/&limit=2")
    assert (page["total"], page["size"], page["damaged"]) == (5, 1500 * KiB, [])
    assert page["unique_bytes"] == sum(
        row["unique_bytes"] for row in shared.snapshots("&prefix=page/").values()
    )


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "offset=-1", "sort=nothing", "order=left", "limit=x", "label=a&" * 17]
)
def test_pages_are_bounded(shared: Api, query: str) -> None:
    answer = shared(f"/v1/snapshots?{query}")
    assert (answer.status, answer.json["error"]["code"]) == (422, "invalid")


def test_names_of_any_bytes_lead_to_their_snapshots(shared: Api) -> None:
    names = [
        b"odd/\xff\xfe",
        b"odd/line\nbreak",
        b"odd/a?b#c%41",
        b"odd/ space \xc3\xbc",
        b"odd/..x",
        b"odd/" + b"n" * 255,
    ]
    for name in names:
        save(shared, name, name)
    rows = shared.get("/v1/snapshots?prefix=odd/")["snapshots"]
    assert {os.fsencode(row["name"]) for row in rows} == set(names)
    for row in rows:
        assert row["href"] == "/v1/snapshots/" + path_of(os.fsencode(row["name"]))
        assert shared.get(row["href"])["name"] == row["name"]
        assert shared.get(row["href"].replace("snapshots", "chunks", 1))["size"] == row["size"]
        assert (
            shared.get("/v1/unique-bytes?name=" + path_of(os.fsencode(row["name"])))["unique_bytes"]
            == row["size"]
        )
        assert shared(row["href"], "DELETE").status == 204
        assert not os.path.lexists(os.path.join(os.fsencode(shared.mount.dir), os.fsencode(row["name"])))


def test_one_snapshot_and_its_chunks(shared: Api) -> None:
    same, own = data_of(10, 700 * KiB), data_of(11, 300 * KiB)
    save(shared, "one/a", same + own)
    save(shared, "one/b", same)
    one = shared.get("/v1/snapshots/one/a")
    assert one["size"] == 1000 * KiB
    assert one["unique_bytes"] + one["shared_bytes"] == 1000 * KiB
    assert one["shared_bytes"] >= 400 * KiB
    found: list[dict[str, Any]] = []
    while len(found) < one["chunks"]:
        page = shared.get(f"/v1/chunks/one/a?limit=3&offset={len(found)}")
        assert (page["name"], page["size"], page["total"]) == ("one/a", 1000 * KiB, one["chunks"])
        found += page["chunks"]
    assert shared.get(f"/v1/chunks/one/a?offset={len(found)}")["chunks"] == []
    assert [chunk["offset"] for chunk in found] == [
        sum(each["length"] for each in found[:number]) for number in range(len(found))
    ]
    assert sum(each["length"] for each in found if each["shared"]) == one["shared_bytes"]
    for chunk in found:
        pack = next((shared.mount.store / "packs").rglob(f"{chunk['pack']}.pack"))
        with pack.open("rb") as file:
            file.seek(chunk["pack_offset"])
            its = file.read(chunk["length"])
        assert its == (same + own)[chunk["offset"] : chunk["offset"] + chunk["length"]]


def test_what_some_together_free_is_more_than_each_alone(shared: Api) -> None:
    data = data_of(12, 500 * KiB)
    for name in ("set/a", "set/b"):
        save(shared, name, data)
    freed = shared.get("/v1/unique-bytes?name=set/a&name=set/b&name=set/a")
    assert freed == {"unique_bytes": 500 * KiB, "snapshots": {"set/a": 0, "set/b": 0}}
    assert shared.get("/v1/unique-bytes?name=set/a")["unique_bytes"] == 0
    assert shared("/v1/unique-bytes?name=set/none").status == 404
    assert shared("/v1/unique-bytes").status == 422


@pytest.mark.parametrize("method", ["GET", "DELETE", "PATCH"])
@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("none", 404),
        ("none/deeper", 404),
        ("..%2F..%2Fetc%2Fpasswd", 400),
        ("../../etc/passwd", 400),
        ("a/../b", 400),
        ("./a", 400),
        ("/etc/passwd", 400),
        (".kvtool/store-id", 400),
        ("a%00b", 400),
        ("a//b", 400),
        ("n" * 256, 400),
        ("link", 404),
        ("linked/target", 404),
        ("linked/..%2ftarget", 400),
    ],
)
def test_no_name_leaves_the_stub_directory(shared: Api, method: str, name: str, status: int) -> None:
    outside = shared.mount.root / "outside"
    outside.mkdir(exist_ok=True)
    target = outside / "target"
    target.write_bytes(b"not yours")
    for link, its in (("link", target), ("linked", outside)):
        if not os.path.lexists(shared.mount.stubs / link):
            (shared.mount.stubs / link).symlink_to(its)
    try:
        body = {"labels": {"x": "1"}} if method == "PATCH" else None
        answer = shared(f"/v1/snapshots/{name}", method, body)
        if (name, method) == ("link", "GET"):  # the listing names it as damaged
            status = 500
        assert answer.status == status, answer
        assert b"not yours" not in answer.body
        assert target.read_bytes() == b"not yours"
        assert os.listxattr(target) == []
    finally:
        for link in ("link", "linked"):
            (shared.mount.stubs / link).unlink()


def test_the_tree_of_prefixes(shared: Api) -> None:
    save(shared, "tree/1", slot(1000))
    save(shared, "tree/2", slot(2000))
    tree = shared.get("/v1/prefix-tree")
    turns = {turn["name"]: node for node in tree["nodes"] for turn in node["snapshots"]}
    assert (turns["tree/1"]["tokens"], turns["tree/2"]["tokens"]) == (1000, 2000)
    assert tree["nodes"][turns["tree/2"]["parent"]] == turns["tree/1"]
    assert shared.get("/v1/snapshots/tree/2")["llama"]["tokens"] == 2000


# -- changes go through the mount


def test_a_deleted_snapshot_is_gone_from_the_mount_and_stays_with_who_has_it_open(shared: Api) -> None:
    data = data_of(20, 300 * KiB)
    save(shared, "gone/a", data)
    path = shared.mount.dir / "gone" / "a"
    with path.open("rb") as file:
        assert file.read(10) == data[:10]
        assert path.stat().st_nlink == 1
        assert shared("/v1/snapshots/gone/a", "DELETE").status == 204
        with pytest.raises(FileNotFoundError):
            path.stat()
        assert os.listdir(path.parent) == []
        assert file.read() == data[10:]
        assert os.fstat(file.fileno()).st_nlink == 0
    assert shared("/v1/snapshots/gone/a", "DELETE").status == 404
    save(shared, "gone/a", b"new")
    assert path.read_bytes() == b"new"
    path.parent.joinpath("a").unlink()
    path.parent.rmdir()


def test_a_directory_is_no_snapshot(shared: Api) -> None:
    save(shared, "folder/a", b"x")
    assert shared("/v1/snapshots/folder", "DELETE").status == 404
    assert (shared.mount.dir / "folder" / "a").read_bytes() == b"x"


def test_labels_are_those_of_the_mount(shared: Api) -> None:
    save(shared, "labels/a", b"data")
    path = shared.mount.dir / "labels" / "a"
    os.setxattr(path, "user.kvtool.label.old", b"1")
    before = path.stat().st_ctime_ns
    answer = shared("/v1/snapshots/labels/a", "PATCH", {"labels": {"new": "caf\u00e9", "old": None}})
    assert (answer.status, answer.json["labels"]) == (200, {"new": "caf\u00e9"})
    assert os.getxattr(path, "user.kvtool.label.new") == "caf\u00e9".encode()
    assert "user.kvtool.label.old" not in os.listxattr(path)
    assert path.stat().st_ctime_ns > before
    path.write_bytes(b"rewritten")
    assert shared.snapshots()["labels/a"]["labels"] == {"new": "caf\u00e9"}
    for wrong in ({"": "1"}, {"gone": None}, {"nul\0": "1"}, {"long": "x" * 60000}):
        assert shared("/v1/snapshots/labels/a", "PATCH", {"labels": wrong}).status == 400, wrong
    for body in ({}, {"labels": {}}, {"labels": {"a": 1}}, {"labels": {"a": "1"}, "more": 1}, b"{", b""):
        assert shared("/v1/snapshots/labels/a", "PATCH", body).status == 422, body
    assert shared.snapshots()["labels/a"]["labels"] == {"new": "caf\u00e9"}


def test_collection(shared: Api) -> None:
    save(shared, "dead/a", data_of(30, 400 * KiB))
    shared("/v1/snapshots/dead/a", "DELETE")
    estimate = shared("/v1/gc", "POST", {"dry_run": True})
    assert estimate.status == 200
    assert estimate.json["bytes"] >= 400 * KiB
    assert shared.get("/v1/gc")["stage"] == ""
    before = shared.mount.pack_bytes
    started = shared("/v1/gc", "POST")
    assert started.status == 202
    assert started.json["stage"] != ""
    deadline = time.monotonic() + 60
    while (progress := shared.get("/v1/gc"))["stage"] and time.monotonic() < deadline:
        pass
    assert progress["last"]["bytes"] >= 400 * KiB
    assert progress["last_error"] == ""
    assert shared.mount.pack_bytes <= before - 400 * KiB
    assert shared("/v1/gc", "POST", {"dry_run": True, "more": 1}).status == 422


# -- the mount


def test_status_health_and_settings(shared: Api) -> None:
    assert shared.get("/v1/health") == {"status": "ok"}
    status = shared.get("/v1/status")
    assert (status["pid"], status["http"]) == (shared.mount.pid, shared.url)
    rows = {row["key"]: row for row in shared.get("/v1/config")["settings"]}
    assert (rows["http.token"]["value"], rows["http.token"]["shown"]) == ("********", "********")
    assert (rows["http.listen"]["value"], rows["http.listen"]["layer"]) == ("127.0.0.1:0", "flag")
    assert TOKEN not in json.dumps(rows)


def test_the_token_is_nowhere_to_be_read(shared: Api) -> None:
    for pid in shared.mount.processes:
        if pid != shared.mount.pid:  # that one was given it as a flag, by this test
            assert TOKEN.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert TOKEN not in "\n".join(shared.mount.log)
    assert TOKEN not in json.dumps(shared.get("/v1/logs"))


def test_logs_by_level_and_by_number(shared: Api) -> None:
    everything = shared.get("/v1/logs")
    first = everything["lines"][0]
    assert (first["number"], first["level"]) == (1, "info")
    assert "the HTTP API listens on" in first["message"]
    assert everything["lost"] == 0
    assert shared.get(f"/v1/logs?after={everything['last']}")["lines"] == []
    assert shared.get("/v1/logs?level=warning")["lines"] == []
    assert shared.get("/v1/logs?since=2100-01-01T00:00:00Z")["lines"] == []
    assert shared.get("/v1/logs?since=2000-01-01T00:00:00Z&limit=1")["lines"] == everything["lines"][-1:]
    for query in ("level=loud", "since=yesterday", "after=-1", "limit=1001"):
        assert shared(f"/v1/logs?{query}").status == 422


def test_metrics_are_what_prometheus_reads(shared: Api) -> None:
    def scrape() -> dict[str, float]:
        answer = shared("/metrics")
        assert answer.headers["content-type"].startswith("text/plain")
        return {
            sample.name + json.dumps(sample.labels, sort_keys=True): sample.value
            for family in text_string_to_metric_families(answer.body.decode())
            for sample in family.samples
        }

    before = scrape()
    save(shared, "metrics/a", data_of(40, 600 * KiB))
    path = shared.mount.dir / "metrics" / "a"
    os.posix_fadvise(os.open(path, os.O_RDONLY), 0, 0, os.POSIX_FADV_DONTNEED)
    assert path.read_bytes() == data_of(40, 600 * KiB)
    after = scrape()

    def grown(name: str) -> float:
        return after[name] - before.get(name, 0.0)

    assert grown("kvtool_saves_total{}") == 1
    assert grown("kvtool_received_bytes_total{}") == grown("kvtool_new_bytes_total{}") == 600 * KiB
    assert grown("kvtool_read_bytes_total{}") == 600 * KiB
    assert grown("kvtool_restores_total{}") == 1
    assert grown("kvtool_segment_misses_total{}") == 1
    assert grown('kvtool_request_seconds_count{"operation": "create"}') == 1
    assert grown("kvtool_commit_seconds_count{}") == 1
    assert after['kvtool_commit_seconds_bucket{"le": "+Inf"}'] == after["kvtool_commit_seconds_count{}"]
    assert after["kvtool_live_bytes{}"] + after["kvtool_dead_bytes{}"] >= before["kvtool_live_bytes{}"]
    assert after['kvtool_info{"version": "0.1.0"}'] == 1


def test_what_it_answers_is_told_as_openapi(shared: Api) -> None:
    document = shared.get("/v1/openapi.json")
    assert "/v1/snapshots/{name}" in document["paths"]
    for path in ("/docs", "/redoc", "/v1/nothing"):
        answer = shared(path)
        assert (answer.status, answer.json["error"]["code"]) == (404, "http")
    assert shared("/v1/snapshots", "POST").status == 405


# -- costs stay exact


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
    (tmp_path / "mnt").mkdir()
    command = [
        sys.executable,
        "-m",
        "kvtool",
        "mount",
        str(tmp_path / "mnt"),
        "--store.path",
        str(tmp_path / "store"),
    ]
    done = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done
    assert re.search(message, done.stderr)
    assert "short" not in done.stderr


def test_a_port_that_is_taken_is_refused_at_start(tmp_path: Path) -> None:
    (tmp_path / "mnt").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [
            sys.executable,
            "-m",
            "kvtool",
            "mount",
            str(tmp_path / "mnt"),
            "--store.path",
            str(tmp_path / "store"),
        ]
        done = subprocess.run(
            [*command, "--http.listen", place], capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 1
    assert f"cannot listen on {place}: Address already in use" in done.stderr
