"""The HTTP API of real mounts: what it answers, and what it changes."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kvtool.errors import KvtoolError
from kvtool.store import control
from kvtool.store.layout import Layout
from tests.api import (
    TOKEN,
    Api,
    KiB,
    data_of,
    path_of,
    save,
    shared_api,
    slot,
)

shared = pytest.fixture(shared_api, scope="module")


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
    halves: list[dict[str, str | None]] = [{"\ud800": "1"}, {"half": "\udfff"}]
    for wrong in ({"": "1"}, {"gone": None}, {"nul\0": "1"}, {"long": "x" * 60000}, *halves):
        refused = shared("/v1/snapshots/labels/a", "PATCH", {"labels": wrong})
        assert (refused.status, "bad request" in refused.json["error"]["message"]) == (400, False), wrong
    long = json.dumps({"labels": {"long": "\u00fc" * 30000}}, ensure_ascii=False).encode()
    assert "does not fit" in shared("/v1/snapshots/labels/a", "PATCH", long).json["error"]["message"]
    for body in ({}, {"labels": {}}, {"labels": {"a": 1}}, {"labels": {"a": "1"}, "more": 1}, b"{", b""):
        assert shared("/v1/snapshots/labels/a", "PATCH", body).status == 422, body
    assert shared.snapshots()["labels/a"]["labels"] == {"new": "caf\u00e9"}


def test_a_request_that_is_too_long_for_the_mount_is_told_so(shared: Api) -> None:
    with pytest.raises(KvtoolError, match="at most"):
        control.ask(Layout(shared.mount.store, shared.mount.stubs), "delete", name="x" * (1 << 20))


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
    for path in ("/v1/health", "/"):
        head = shared(path, "HEAD", headers={})
        assert (head.status, head.body) == (200, b"")
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
    answer = shared("/v1/nothing")
    assert (answer.status, answer.json["error"]["code"]) == (404, "http")
    for path in ("/docs", "/redoc"):
        answer = shared(path)
        assert (answer.status, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert shared("/v1/snapshots", "POST").status == 405


# -- costs stay exact
