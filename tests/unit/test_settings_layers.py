"""Layers: the highest wins, with its origin, and everything wrong is said at once with where it stands."""

import os
import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Secret, ValidationError

from kvtool.core.toml_text import TomlError, key_lines, parse_toml
from kvtool.errors import SettingsError
from kvtool.settings.explain import explain
from kvtool.settings.fields import FIELDS, env_name, kind, read
from kvtool.settings.layers import Resolved, resolve
from kvtool.settings.model import Settings
from tests import layering

few = settings(derandomize=True, max_examples=50, deadline=None)


def resolve_in(
    tmp_path: Path,
    flags: dict[str, str] | None = None,
    *,
    etc: str | None = None,
    user: str | None = None,
    config: str | None = None,
    env: dict[str, str] | None = None,
    store: dict[str, tuple[Any, str]] | None = None,
) -> Resolved:
    """resolve() with the files given as text, all below `tmp_path`."""
    files = {"etc.toml": etc, "user/kvtool/config.toml": user, "config.toml": config}
    for name, text in files.items():
        if text is not None:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
    return resolve(
        flags or {},
        environ={"XDG_CONFIG_HOME": f"{tmp_path}/user", "XDG_DATA_HOME": f"{tmp_path}/data", **(env or {})},
        config_file=tmp_path / "config.toml" if config is not None else None,
        store=layering.store_layer(store) if store is not None else None,
        etc_file=tmp_path / "etc.toml",
    )


def messages(resolved: Resolved) -> list[str]:
    return [problem.message for problem in resolved.problems]


def plain(value: Any) -> Any:
    return value.get_secret_value() if isinstance(value, Secret) else value


@few
@given(layering.assignments(wrong=True))
def test_the_highest_layer_wins_and_the_rest_follow_in_order(given: dict[tuple[str, str], str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        resolved = layering.resolved(root, given)
        lines = {source: key_lines(layering.toml(layering.layer(given, source))) for source in layering.FILES}
    rows = {row["key"]: row for row in explain(resolved)["settings"]}
    for key, origin in resolved.origins.items():
        expected = []
        for source in ("store", *reversed(layering.SOURCES)):
            if (source, key) not in given:
                continue
            value = given[source, key]
            if source in layering.FILES:
                line = lines[source][tuple(key.split("."))]
                place = ("file", f"{root / layering.FILES[source]}:{line}")
            elif source == "store":
                place = ("store", "store.toml:1")
            else:
                place = (source, env_name(key) if source == "env" else f"--{key}")
                if kind(key) == "path" and value and not value.startswith("~"):
                    value = os.path.join(os.getcwd(), value)
            expected.append((value, *place))
        chain = [(plain(each.value), each.layer, each.where) for each in (origin, *origin.overridden)]
        assert chain[:-1] == expected
        assert chain[-1][1:] == ("default", "")
        row = rows[key]
        assert [(each["layer"], each["where"]) for each in (row, *row["overridden"])] == [
            each[1:] for each in chain
        ]
        if key in resolved.values:
            assert resolved.values[key] == read(key, chain[0][0])
        else:
            assert row["wrong"]
            assert any(origin.place in message for message in resolved.messages)
    if not resolved.problems:
        assert resolved.settings.flat() == resolved.values


def test_defaults(tmp_path: Path) -> None:
    resolved = resolve_in(tmp_path)
    model = resolved.settings
    assert model.store.path == tmp_path / "data/kvtool"
    assert model.store.stubs == tmp_path / "data/kvtool/stubs"
    assert (model.chunk.min_size, model.chunk.avg_size, model.chunk.max_size) == (
        16 << 10,
        64 << 10,
        256 << 10,
    )
    assert model.store.gc_interval == 3600
    assert [file.state for file in resolved.files] == ["not found", "not found"]
    assert model.mount == Settings().mount


def test_stubs_follow_the_store(tmp_path: Path) -> None:
    assert resolve_in(tmp_path, {"store.path": "/srv/kv"}).settings.store.stubs == Path("/srv/kv/stubs")
    apart = resolve_in(tmp_path, {"store.path": "/srv/kv", "store.stubs": "/ssd/stubs"})
    assert apart.settings.store.stubs == Path("/ssd/stubs")


def test_a_relative_path_counts_from_here_but_not_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve_in(tmp_path, {"store.path": "kv"}).settings.store.path == tmp_path / "kv"
    wrong = resolve_in(tmp_path, user='store.path = "kv"')
    assert messages(wrong) == [
        "store.path: 'kv' is not an absolute path, or one that begins with ~/"
        f" (file {tmp_path}/user/kvtool/config.toml:1)"
    ]


def test_every_problem_is_reported_at_once(tmp_path: Path) -> None:
    resolved = resolve_in(
        tmp_path,
        {"log.level": "loud", "x": "1"},
        etc='[mount]\n\nworkers = 0\nread_ahed = "1 MiB"\n[paths]\nstore = 1\n',
        user="mount = 3\n[chunk\n",
        env={"KVTOOL_CHUNK__MIN_SIZE": "1 MiB", "KVTOOL_MOUNT__CACHE": "true"},
    )
    with pytest.raises(SettingsError) as caught:
        _ = resolved.settings
    assert caught.value.exit_code == 2
    etc, user = tmp_path / "etc.toml", tmp_path / "user/kvtool/config.toml"
    assert caught.value.message.split("\n  ") == [
        "8 settings are wrong:",
        f"{etc}:4: mount.read_ahed is not a setting (did you mean mount.read_ahead?)",
        f"{etc}:6: paths.store is not a setting",
        f"{user}:2: not TOML: Expected ']' at the end of a table declaration",
        "--x is not a setting",
        f"mount.workers: 0 is not a whole number from 1 to 64 (file {etc}:3)",
        "mount.cache: 'true' is not a size from 1 MiB to 1 TiB (env KVTOOL_MOUNT__CACHE)",
        "log.level: 'loud' is not one of debug, info, warning, error (flag --log.level)",
        "chunk.min_size: 1 MiB (env KVTOOL_CHUNK__MIN_SIZE) is larger than chunk.avg_size: 64 KiB (default)",
    ]


@pytest.mark.parametrize(
    ("flags", "otherwise"),
    [
        ({"chunk.min_size": "65 KiB"}, "is larger than"),
        ({"chunk.avg_size": "257 KiB"}, "is larger than"),
        ({"mount.read_ahead": "257 MiB"}, "is larger than"),
        ({"chunk.max_size": "33 MiB"}, "is larger than"),
        ({"chunk.max_size": "9M", "mount.write_queue": "8M"}, "is larger than"),
        ({"store.path": "/srv/kv", "store.stubs": "/srv/kv"}, "holds, or lies among"),
        ({"store.path": "/srv/kv", "store.stubs": "/srv"}, "holds, or lies among"),
        ({"store.path": "/srv/kv", "store.stubs": "/srv/kv/packs/x"}, "holds, or lies among"),
        ({"store.path": "/srv/kv", "store.stubs": "//srv/kv"}, "holds, or lies among"),
        ({"store.path": "/srv/kv", "store.stubs": "/srv/kv/x/../packs/y"}, "holds, or lies among"),
        ({"store.path": "/srv/../srv/kv", "store.stubs": "/srv/kv"}, "holds, or lies among"),
        ({"store.path": "/srv/kv", "store.stubs": "/proc/self/root/srv"}, "holds, or lies among"),
    ],
)
def test_relations(tmp_path: Path, flags: dict[str, str], otherwise: str) -> None:
    (message,) = messages(resolve_in(tmp_path, flags))
    assert otherwise in message
    assert all(f"(flag --{key})" in message for key in flags)
    sections: dict[str, dict[str, str]] = {}
    for key, value in flags.items():
        sections.setdefault(key.split(".")[0], {})[key.split(".")[1]] = value
    with pytest.raises(ValidationError, match=otherwise):
        Settings.model_validate(sections)


@pytest.mark.parametrize(
    ("key", "raw"),
    [
        ("chunk.min_size", 63),
        ("chunk.avg_size", 255),
        ("chunk.max_size", 1023),
        ("mount.write_queue", (8 << 20) - 1),
        ("mount.workers", 65),
        ("mount.workers", True),
        ("mount.workers", 2.0),
        ("mount.cache", [1]),
        ("store.gc_interval", -1),
        ("store.gc_interval", float("inf")),
        ("store.gc_interval", False),
        ("mount.workers", "8.0"),
        ("mount.workers", " 8"),
        ("mount.cache", "268_435_456"),
        ("mount.allow_other", "perhaps"),
        ("mount.allow_other", "yes"),
        ("mount.allow_other", 1),
        ("store.path", ""),
        ("store.path", "/a\0b"),
        ("store.path", 5),
        ("log.level", "\udcff"),
        ("store.durability", None),
    ],
)
def test_what_is_out_of_bounds_or_of_another_type(key: str, raw: object) -> None:
    with pytest.raises(ValueError, match=r"is not (a|one of|true)"):
        read(key, raw)


@few
@given(st.sampled_from(sorted(FIELDS)), st.text() | st.integers() | st.floats() | st.lists(st.integers()))
def test_any_raw_value_is_read_or_refused(key: str, raw: object) -> None:
    try:
        assert read(key, read(key, raw)) == read(key, raw)
    except ValueError as error:
        assert str(error)  # noqa: PT017  (either outcome is right)


def test_an_unknown_variable_is_a_warning_with_the_nearest_name(tmp_path: Path) -> None:
    names = ("KVTOOL_MOUNT__READAHED", "KVTOOL_X", "Kvtool_Mount__Cache", "OTHER")
    resolved = resolve_in(tmp_path, env=dict.fromkeys(names, "1"))
    assert not resolved.problems
    assert resolved.warnings == (
        "KVTOOL_MOUNT__READAHED is not a setting (did you mean KVTOOL_MOUNT__READ_AHEAD?)",
        "KVTOOL_X is not a setting",
        "Kvtool_Mount__Cache is not a setting (did you mean KVTOOL_MOUNT__CACHE?)",
    )


def test_a_file_with_wrong_tables(tmp_path: Path) -> None:
    text = 'cache = 1\n"log\\n" = 1\n[[mount]]\n[chunks]\n[store]\n"a.b" = 1\n'
    etc = tmp_path / "etc.toml"
    assert messages(resolve_in(tmp_path, etc=text)) == [
        f"{etc}:1: cache is not a setting (did you mean mount.cache?)",
        f"{etc}:2: log\n is not a setting",
        f"{etc}:3: mount is a section, not a setting",
        f"{etc}:4: chunks is not a section (did you mean chunk?)",
        f"{etc}:6: store.a.b is not a setting (did you mean store.path?)",
    ]


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    missing = resolve({}, environ={}, config_file=tmp_path / "nowhere", etc_file=tmp_path / "directory")
    assert messages(missing) == [
        f"{tmp_path}/directory: not a regular file",
        f"{tmp_path}/nowhere: No such file or directory (flag --config)",
    ]
    assert missing.files[0].state == "not usable"
    with pytest.raises(SettingsError, match="nowhere"):
        _ = missing.settings


@pytest.mark.parametrize("what", ["fifo", "socket", "/dev/zero", "/dev/stdin", "loop"])
def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path, what: str) -> None:
    path = tmp_path / what if what[0] != "/" else Path(what)
    with socket.socket(socket.AF_UNIX) as listener:
        match what:
            case "fifo":
                os.mkfifo(path)
            case "socket":
                listener.bind(str(path))
            case "loop":
                path.symlink_to(path)
        for refused in (
            resolve({}, environ={}, config_file=path, etc_file=tmp_path / "none"),
            resolve({}, environ={}, etc_file=path),
        ):
            (message,) = messages(refused)
            assert message.startswith(f"{path}: ")
            assert "not usable" in {file.state for file in refused.files}


def test_the_users_file_is_where_xdg_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    for home, path in (
        (f"{tmp_path}/x", f"{tmp_path}/x/kvtool/config.toml"),
        ("relative", "/home/me/.config/kvtool/config.toml"),
        ("", "/home/me/.config/kvtool/config.toml"),
    ):
        found = resolve({}, environ={"XDG_CONFIG_HOME": home}, etc_file=tmp_path / "none")
        assert [str(file.path) for file in found.files] == [f"{tmp_path}/none", path]


def test_a_path_of_any_bytes_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_bytes(b'store.path = "/srv/\xff"\n')
    resolved = resolve({}, environ={}, config_file=tmp_path / "config.toml", etc_file=tmp_path / "none")
    assert resolved.settings.store.path == Path("/srv/\udcff")


def test_the_store_outranks_all_and_a_difference_names_both(tmp_path: Path) -> None:
    store = {"chunk.avg_size": (128 << 10, "/srv/kv/store.toml:6")}
    assert resolve_in(tmp_path, store=store).settings.chunk.avg_size == 128 << 10
    same = resolve_in(tmp_path, {"chunk.avg_size": "128K"}, etc='chunk.avg_size = "99 KiB"', store=store)
    assert not same.problems
    for text in ("64 KiB", "131073"):
        different = resolve_in(tmp_path, {"chunk.avg_size": text}, store=store)
        (message,) = messages(different)
        assert "(flag --chunk.avg_size)" in message
        assert "(store /srv/kv/store.toml:6)" in message
        assert different.values["chunk.avg_size"] == 128 << 10
    (message,) = messages(resolve_in(tmp_path, {"chunk.avg_size": "much"}, store=store))
    assert message == "chunk.avg_size: 'much' is not a size from 256 B to 256 MiB (flag --chunk.avg_size)"


def test_lines_of_keys() -> None:
    text = '# [mount]\na = """\n[x]\nb = 1\n"""\n\n[mount]  # here\ncache = [\n 1,\n]\nworkers = 3\n'
    text += "[mount.x.y]\nz = {u = 1}\n"
    assert key_lines(text) == {
        ("a",): 2,
        ("mount",): 7,
        ("mount", "cache"): 8,
        ("mount", "workers"): 11,
        ("mount", "x"): 12,
        ("mount", "x", "y"): 12,
        ("mount", "x", "y", "z"): 13,
        ("mount", "x", "y", "z", "u"): 13,
    }
    assert key_lines("\r\n[a]\r\nb = 1\r\n")["a", "b"] == 3


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a = 1\n\na = 2\n", 3),
        ("a = 1\nb = '''\n", 3),
        ("\n\na = 0x" + "f" * 5000, 3),
        ("a = " + "1" * 5000, 1),
        ("a = " + "[" * 5000, 1),
        ("\n" + ".".join("a" * 3000) + " = 1", 2),
        ("\ufeffa = 1", 1),
    ],
)
def test_what_is_no_toml_is_refused_with_its_line(text: str, line: int) -> None:
    with pytest.raises(TomlError) as caught:
        parse_toml(text)
    assert caught.value.line == line


def test_the_model_is_frozen() -> None:
    with pytest.raises(ValidationError):
        Settings().mount.workers = 3  # type: ignore[misc]
