"""The command inspect without a mount: the list, one snapshot in depth, and the tree."""

import json
import os
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kvtool.core.text import printable
from kvtool.store.layout import Layout
from tests import schemas
from tests.cli import Cli
from tests.stores import flags_of, flip, layout_in, open_store, pack_paths, save
from tests.synth import Conversation, Shape, random_bytes

ODD = "ne\nw \udcff\\n\x1b"
SHAPE = Shape(layers=2, row=64)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Three plain snapshots of which two share most, with uses and labels."""
    with open_store(tmp_path) as store:
        save(store, random_bytes(9000, 1), "a")
        (store.layout.stubs / "b").mkdir()
        save(store, random_bytes(9000, 1) + random_bytes(3000, 2), "b/c")
        save(store, random_bytes(5000, 3), ODD)
    stub = layout_in(tmp_path).stubs
    for name, uses, label in (("a", b"3", b"x"), ("b/c", b"1", b"y")):
        os.setxattr(stub / name, "user.kvtool.uses", uses)
        os.setxattr(stub / name, "user.kvtool.label.kind", label)
    return layout_in(tmp_path)


@pytest.fixture
def cli(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Cli:
    store = layout_in(tmp_path)
    return Cli(tmp_path, capsysbinary, monkeypatch, *flags_of(store))


def answer(cli: Cli, *arguments: str, code: int = 0) -> Any:
    """What it answers with --json, as the schema has it."""
    done = cli("inspect", *arguments, "--json")
    assert (done.returncode, done.stderr) == (code, ""), done
    found = json.loads(done.stdout)
    jsonschema.validate(found, json.loads((schemas.FOLDER / "inspect.json").read_text()))
    return found


def names(cli: Cli, *arguments: str) -> list[str]:
    return [row["name"] for row in answer(cli, *arguments)["snapshots"]]


def lines(cli: Cli, *arguments: str) -> list[str]:
    done = cli("inspect", *arguments)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout.decode().splitlines()


def test_a_line_a_snapshot_and_no_two_names_look_alike(layout: Layout, cli: Cli) -> None:
    with open_store(layout.root.parent) as store:
        save(store, b"", printable(ODD))
    found = lines(cli)
    assert " ".join(found[0].split()) == "NAME SIZE UNIQUE SHARED USES LAST USED CREATED SCORE LABELS"
    assert len(found) == 5
    assert r"ne\nw \udcff\\n\x1b " in found[3]
    assert r"ne\\nw \\udcff\\\\n\\x1b " in found[4]
    assert found[1].endswith("kind=x")


def test_unique_and_shared_bytes_and_the_score(layout: Layout, cli: Cli) -> None:
    past = time.time() - 7200
    for name in ("a", "b/c"):
        os.setxattr(layout.stubs / name, "user.kvtool.created", b"2001-01-01T00:00:00Z")
        os.utime(layout.stubs / name, (past, past))
    a, b, _ = sorted(answer(cli)["snapshots"], key=lambda row: row["name"])
    assert a["unique_bytes"] + a["shared_bytes"] == 9000
    assert a["shared_bytes"] == b["shared_bytes"] > 8000
    assert a["score"] == pytest.approx(a["unique_bytes"] / 9000 * 2 / 4, rel=0.01, abs=0.001)
    assert b["score"] == pytest.approx(b["unique_bytes"] / 12000 * 2 / 2, rel=0.01)
    os.setxattr(
        layout.stubs / "b/c", "user.kvtool.last_used", time.strftime("%FT%TZ", time.gmtime()).encode()
    )
    [row] = answer(cli, "--match", "b/c")["snapshots"]
    assert row["score"] < 0.01


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ([], ["a", "b/c", ODD]),
        (["--reverse"], [ODD, "b/c", "a"]),
        (["--sort", "size"], ["b/c", "a", ODD]),
        (["--sort", "size", "--reverse"], [ODD, "a", "b/c"]),
        (["--sort", "unique"], [ODD, "b/c", "a"]),
        (["--sort", "shared"], ["a", "b/c", ODD]),
        (["--sort", "uses"], ["a", "b/c", ODD]),
        (["--sort", "labels"], [ODD, "a", "b/c"]),
        (["--sort", "last-used"], ["a", "b/c", ODD]),
        (["--limit", "2"], ["a", "b/c"]),
        (["--limit", "0"], []),
        (["--match", "*c"], ["b/c"]),
        (["--match", "?"], ["a"]),
        (["--label", "kind"], ["a", "b/c"]),
        (["--label", "kind=y"], ["b/c"]),
        (["--label", "kind=y", "--label", "other"], []),
        (["--unused", "1h"], []),
    ],
)
def test_order_and_filters(layout: Layout, cli: Cli, arguments: list[str], wanted: list[str]) -> None:
    assert names(cli, *arguments) == wanted


def test_what_was_not_used_for_long(layout: Layout, cli: Cli) -> None:
    path = layout.stubs / "a"
    os.setxattr(path, "user.kvtool.created", b"2001-01-01T00:00:00Z")
    os.utime(path, (0, 0))
    assert names(cli, "--unused", "1h") == ["a"]
    os.setxattr(path, "user.kvtool.last_used", b"2999-01-01T00:00:00Z")
    assert names(cli, "--unused", "1h") == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a", "--tree"], "--tree is about all snapshots"),
        (["a", "--sort", "size"], "--sort goes with the list"),
        (["--tree", "--limit", "3"], "--limit goes with the list"),
        (["a", "--limit", "0"], "--limit goes with the list"),
        (["--tree", "--match", ""], "--match goes with the list"),
        (["--unused", "soon"], "is not a duration"),
        (["--limit", "-1"], "--limit takes a number"),
        (["--sort", "colour"], "invalid choice"),
    ],
)
def test_flags_that_make_no_sense(layout: Layout, cli: Cli, arguments: list[str], words: str) -> None:
    done = cli("inspect", *arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert words in done.stderr


def test_one_snapshot_in_depth(layout: Layout, cli: Cli) -> None:
    found = answer(cli, "b/c")
    [row] = answer(cli, "--match", "b/c")["snapshots"]
    assert {key: found[key] for key in row} == row
    assert (found["packs"], found["runs"], found["llama"], found["missing"]) == (2, 2, None, None)
    # The first pack is what the save of `a` stored, the second what this one added.
    assert [part["bytes"] for part in found["parts"]] == [found["shared_bytes"], found["unique_bytes"]]
    assert sum(part["chunks"] for part in found["parts"]) == found["distinct_chunks"] == found["chunks"]
    text = lines(cli, "b/c")
    assert text[0] == "name           b/c"
    assert text[-3].split() == ["STORED", "NEW", "CHUNKS", "NEW", "BYTES", "PACK"]
    assert text[-1].endswith(found["parts"][1]["pack"])


def test_the_head_of_a_llama_file(layout: Layout, cli: Cli) -> None:
    talk = Conversation(SHAPE).turn(500)
    with open_store(layout.root.parent) as store:
        save(store, talk.snapshot().data, "slot")
    found = answer(cli, "slot")
    assert found["llama"] == {"version": 4, "session": False, "tokens": 500, "first_tokens": talk.tokens[:16]}
    text = lines(cli, "slot")
    assert "llama.cpp      slot file, format 4, 500 tokens" in text
    assert f"first tokens   {' '.join(map(str, talk.tokens[:16]))} ..." in text


def test_damage_is_told(layout: Layout, cli: Cli) -> None:
    (layout.stubs / "fo\nreign").write_text("x")
    done = cli("inspect")
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)
    assert r"fo\nreign" in done.stderr
    assert answer(cli, code=3)["damaged"][0]["name"] == "fo\nreign"
    assert answer(cli, "--tree", code=3)["damaged"][0]["name"] == "fo\nreign"
    for path in pack_paths(layout):
        path.unlink()
    found = answer(cli, "a", code=3)
    assert ("is missing" in found["missing"], found["parts"], found["packs"]) == (True, [], 0)
    assert answer(cli, "--tree", code=3)["without_tokens"] == ["a", ODD, "b/c"]


def test_the_tree_of_a_conversation_and_what_branches_off(layout: Layout, cli: Cli) -> None:
    first = Conversation(SHAPE).turn(500)
    data = {"t1": first.snapshot().data}
    data["side"] = first.branch(200, seed=2).turn(100).snapshot().data
    data["t2"] = first.turn(100).snapshot().data
    with open_store(layout.root.parent) as store:
        for name in ("t1", "t2", "side"):
            save(store, data[name], name)
        save(store, data["t2"], "again")
    tree = answer(cli, "--tree")
    unique = {row["name"]: row["unique_bytes"] for row in answer(cli)["snapshots"]}
    nodes = {
        (node["tokens"], tuple(turn["name"] for turn in node["snapshots"])): node for node in tree["nodes"]
    }
    assert set(nodes) == {(0, ()), (200, ()), (300, ("side",)), (500, ("t1",)), (600, ("again", "t2"))}
    parents = {key[0]: tree["nodes"][node["parent"]]["tokens"] for key, node in nodes.items() if key[0]}
    assert parents == {200: 0, 300: 200, 500: 200, 600: 500}
    assert [nodes[key]["below"] for key in ((0, ()), (200, ()), (500, ("t1",)))] == [4, 4, 2]
    assert nodes[300, ("side",)]["freed_bytes"] == unique["side"]
    assert unique["t2"] == unique["again"] == 0 < nodes[600, ("again", "t2")]["freed_bytes"]
    turns = {turn["name"]: turn for node in tree["nodes"] for turn in node["snapshots"]}
    assert turns["t1"]["new_bytes"] == turns["t1"]["size"]
    assert 0 < turns["t2"]["new_bytes"] < turns["t2"]["size"]
    # Deleting all of it frees all but what others need: nothing.
    assert nodes[200, ()]["freed_bytes"] == nodes[0, ()]["freed_bytes"]
    assert sorted(tree["without_tokens"]) == sorted(["a", "b/c", ODD])
    text = lines(cli, "--tree")
    assert text[1].endswith("(4 snapshots begin so)")
    assert any(line.split()[0] == "500" and line.endswith("  t1") for line in text)
    assert any(line.split()[0] == "600" and line.endswith("    t2") for line in text)
    assert text[-4:] == ["without a token list:", "  a", rf"  {printable(ODD)}", "  b/c"]


def test_a_damaged_head_has_no_token_list(layout: Layout, cli: Cli) -> None:
    with open_store(layout.root.parent) as store:
        before = set(pack_paths(store))
        save(store, Conversation(SHAPE).turn(50).snapshot().data, "slot")
        [path] = set(pack_paths(store)) - before
    flip(path, 4096 + 20)
    assert answer(cli, "slot")["llama"] is None
    assert "slot" in answer(cli, "--tree")["without_tokens"]


def test_an_empty_store(cli: Cli, tmp_path: Path) -> None:
    with open_store(tmp_path):
        pass
    assert answer(cli) == {"snapshots": [], "damaged": []}
    assert len(lines(cli)) == 1
    assert answer(cli, "--tree")["without_tokens"] == []
    assert lines(cli, "--tree") == [""]
