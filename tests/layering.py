"""Any settings in any layers, for property tests: values, files and environment made of them."""

from pathlib import Path
from typing import Any

import tomli_w
from hypothesis import strategies as st

from kvtool.settings.fields import FIELDS, bounds, choices, env_name, kind
from kvtool.settings.layers import Resolved, resolve
from kvtool.settings.sources import ConfigFile, Given, StoreLayer

FILES = {"etc": "etc.toml", "user": "user/kvtool/config.toml", "config": "config.toml"}
SOURCES = (*FILES, "env", "flag")

# What a file name may hold: any bytes but two.
_PARTS = st.binary(min_size=1, max_size=8).map(
    lambda name: name.translate(None, b"\0/").decode(errors="surrogateescape") or "x"
)
_PATHS = st.sampled_from(["/srv/a", "/srv/b", "~/c"]) | _PARTS.map(lambda part: f"/srv/{part}/x")


def values_of(key: str) -> st.SearchStrategy[str]:
    """Any value that is right by itself, as text; of sizes also in other spellings."""
    limits = bounds(key)
    match kind(key):
        case "size":
            assert limits is not None
            least, most = int(limits[0]), int(limits[1])
            rounded = st.integers(-(-least // 1024), most // 1024).map(lambda size: f"{size} KiB")
            return st.integers(least, most).map(str) | rounded
        case "duration":
            return st.integers(0, 86400).map(str) | st.sampled_from(["90s", "1h30m", "2d", "0.0000001s"])
        case "count":
            assert limits is not None
            return st.integers(int(limits[0]), int(limits[1])).map(str)
        case "path":
            return _PATHS
        case "address":
            return st.sampled_from(["", "127.0.0.1:8700", "[::1]:0", "localhost:65535"])
        case "expression":
            return st.sampled_from(["size", "idle * 2", "1 if uses else 0"])
        case "secret":
            return st.sampled_from(["", "0123456789abcdef", "x" * 256])
        case _:
            return st.sampled_from(choices(key))


def any_of(key: str) -> st.SearchStrategy[str]:
    """Right or wrong values."""
    return values_of(key) | st.sampled_from(["", "much", "-1", "0", "99999999999999", "\x1b[1m\n"])


def assignments(*, wrong: bool = False, store: bool = True) -> st.SearchStrategy[dict[tuple[str, str], str]]:
    """Any keys in any layers: (source, key) to text. Sources are SOURCES, and "store" for what it fixes."""
    return st.fixed_dictionaries(
        {},
        optional={
            (source, key): values_of(key) if source == "store" or not wrong else any_of(key)
            for source in (*SOURCES, *(["store"] if store else []))
            for key in FIELDS
            if source != "store" or key.startswith("chunk.")
        },
    )


def layer(given: dict[tuple[str, str], str], source: str) -> dict[str, str]:
    """What one source says."""
    return {key: value for (its, key), value in given.items() if its == source}


def toml(values: dict[str, str]) -> str:
    """A settings file."""
    document: dict[str, dict[str, str]] = {}
    for key, value in values.items():
        section, name = key.split(".")
        document.setdefault(section, {})[name] = value
    return tomli_w.dumps(document)


def write(path: Path, text: str) -> None:
    """Writes a file, with any bytes of names in it as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="surrogateescape", newline="")


def environment(root: Path, values: dict[str, str]) -> dict[str, str]:
    """A process's environment with these settings, and homes below `root`."""
    homes = {"XDG_CONFIG_HOME": f"{root}/user", "XDG_DATA_HOME": f"{root}/data"}
    return {**homes, **{env_name(key): value for key, value in values.items()}}


def store_layer(values: dict[str, tuple[Any, str]]) -> StoreLayer:
    """What a store fixes: key to value and where."""
    given = {key: Given(value, "store", where) for key, (value, where) in values.items()}
    return StoreLayer(ConfigFile(Path("/srv/kv/store.toml"), "read"), given)


def resolved(root: Path, given: dict[tuple[str, str], str]) -> Resolved:
    """All layers of an assignment, with files below `root`."""
    for source, name in FILES.items():
        write(root / name, toml(layer(given, source)))
    fixed = {key: (value, "store.toml:1") for key, value in layer(given, "store").items()}
    return resolve(
        layer(given, "flag"),
        environ=environment(root, layer(given, "env")),
        config_file=root / FILES["config"],
        store=store_layer(fixed),
        etc_file=root / FILES["etc"],
    )
