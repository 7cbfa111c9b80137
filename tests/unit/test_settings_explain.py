"""The tables of `config --explain`."""

import json
from pathlib import Path

import pytest

from kvtool.settings import fields
from kvtool.settings.explain import changed, explain, explain_key
from kvtool.settings.layers import Resolved, resolve
from kvtool.settings.sources import ConfigFile, Given, StoreLayer
from kvtool.settings.tables import page, table


@pytest.fixture
def etc_file(tmp_path: Path) -> Path:
    path = tmp_path / "etc.toml"
    path.write_text('[store]\n# where the disks are\npath = "/srv/kv"\n\n[mount]\nread_ahead = "48 MiB"\n')
    return path


@pytest.fixture
def resolved(etc_file: Path, monkeypatch: pytest.MonkeyPatch) -> Resolved:
    monkeypatch.setenv("HOME", "/home/me")
    return resolve(
        {},
        environ={"KVTOOL_MOUNT__READ_AHEAD": "64M", "KVTOOL_MOUNT__READAHED": "1"},
        store=StoreLayer(
            ConfigFile(Path("/srv/kv/store.toml"), "read"),
            {"chunk.avg_size": Given(65536, "store", "/srv/kv/store.toml:7")},
        ),
        etc_file=etc_file,
    )


def test_the_table(resolved: Resolved, etc_file: Path) -> None:
    lines = table(changed(explain(resolved))).split("\n")
    assert [line.split() for line in lines] == [
        ["Files,", "lowest", "first:"],
        [str(etc_file), "read"],
        ["~/.config/kvtool/config.toml", "not", "found"],
        ["/srv/kv/store.toml", "read"],
        [],
        ["SETTING", "VALUE", "FROM", "WHERE", "INSTEAD", "OF"],
        ["store.path", "/srv/kv", "file", f"{etc_file}:3", "default", "~/.local/share/kvtool"],
        ["chunk.avg_size", "64", "KiB", "store", "/srv/kv/store.toml:7"],
        ["mount.read_ahead", "64", "MiB", "env", "KVTOOL_MOUNT__READ_AHEAD", "file", "48", "MiB"],
        [],
        [
            "warning:",
            "KVTOOL_MOUNT__READAHED",
            "is",
            "not",
            "a",
            "setting",
            "(did",
            "you",
            "mean",
            "KVTOOL_MOUNT__READ_AHEAD?)",
        ],
    ]
    assert (
        len(
            {
                line.index(word)
                for line, word in zip(lines[5:9], ("FROM", "file", "store", "env"), strict=True)
            }
        )
        == 1
    )


def test_all_settings_unless_changed(resolved: Resolved) -> None:
    assert [row["key"] for row in explain(resolved)["settings"]] == list(fields.FIELDS)


def test_the_data_is_json_with_exact_values(resolved: Resolved, etc_file: Path) -> None:
    data = json.loads(json.dumps(explain(resolved)))
    row = next(row for row in data["settings"] if row["key"] == "mount.read_ahead")
    assert row["value"] == 64 << 20
    assert [(each["value"], each["layer"], each["where"]) for each in row["overridden"]] == [
        (48 << 20, "file", f"{etc_file}:6"),
        (32 << 20, "default", ""),
    ]


def test_a_wrong_value_is_shown_in_its_row_and_marked(tmp_path: Path) -> None:
    wrong = resolve({"mount.workers": "many"}, environ={}, etc_file=tmp_path / "none")
    text = table(changed(explain(wrong)))
    assert "! mount.workers  many   flag  --mount.workers  default 8" in text
    assert text.endswith(
        "error: mount.workers: 'many' is not a whole number from 1 to 64 (flag --mount.workers)"
    )
    assert "\n! mount.workers " in table(explain(wrong))
    assert "\n  mount.cache " in table(explain(wrong))


def test_both_rows_of_a_broken_relation_are_marked(tmp_path: Path) -> None:
    wrong = resolve({"mount.cache": "1 MiB"}, environ={}, etc_file=tmp_path / "none")
    marked = [row["key"] for row in changed(explain(wrong))["settings"] if row["wrong"]]
    assert marked == ["mount.read_ahead", "mount.cache"]


def test_one_setting_in_full(resolved: Resolved, etc_file: Path) -> None:
    data = explain_key(explain(resolved), "mount.read_ahead", [])
    assert data["type"] == "size"
    assert data["bounds"] == (1 << 20, 16 << 30)
    text = page(data)
    assert "bytes fetched ahead of a sequential reader" in text
    assert "a size from 1 MiB to 16 GiB" in text
    assert "--mount.read_ahead VALUE" in text
    assert [line.split() for line in text.split("\n")[-3:]] == [
        ["64", "MiB", "env", "KVTOOL_MOUNT__READ_AHEAD"],
        ["48", "MiB", "file", f"{etc_file}:6"],
        ["32", "MiB", "default"],
    ]


@pytest.mark.parametrize("key", list(fields.FIELDS))
def test_every_setting_has_a_page(resolved: Resolved, key: str) -> None:
    data = explain_key(explain(resolved), key, [])
    assert data["meaning"]
    assert data["bounds"] is None or data["type"] in ("size", "duration", "count")
    json.dumps(data)
