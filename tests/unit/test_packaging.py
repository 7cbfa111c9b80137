"""What is packed: the wheel, the source distribution and the wheel built from it; and kvtool without FUSE."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests import data
from tests.stores import flags_of

pytest.importorskip("hatchling", reason="it is in the extra `dev`")
ROOT = Path(__file__).parents[2]


def build(kind: str, tree: Path, target: Path) -> Path:
    """Has the build backend make one, as pip and build do."""
    code = f"import hatchling.build as b; print(b.build_{kind}({str(target)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tree, capture_output=True, text=True, timeout=60, check=True
    )
    return target / done.stdout.split()[-1]


def held(wheel: Path) -> dict[str, int]:
    with zipfile.ZipFile(wheel) as archive:
        return {entry.filename: entry.CRC for entry in archive.infolist()}


def test_the_wheel_is_the_package_alone_and_the_sources_make_the_same(tmp_path: Path) -> None:
    wheel = held(build("wheel", ROOT, tmp_path))
    top = {name.partition("/")[0] for name in wheel}
    assert top == {"kvtool", next(name for name in top if name.endswith(".dist-info"))}
    assert {"kvtool/py.typed", "kvtool/schemas/settings.json", "kvtool/cli/main.py"} <= wheel.keys()
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "kvtool").rglob("*.py")}
    assert modules == {name for name in wheel if name.endswith(".py")}
    sources = build("sdist", ROOT, tmp_path)
    with tarfile.open(sources) as archive:
        for member in archive.getmembers():
            if (content := archive.extractfile(member)) is not None:
                path = tmp_path / "sources" / member.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.read())
    [tree] = (tmp_path / "sources").iterdir()
    for name in ("tests/data/store-1.tar.xz", ".ci/setup", "Makefile", "docs/evict.py"):
        assert (tree / name).exists(), name
    assert held(build("wheel", tree, tmp_path / "sources")) == wheel


def test_the_container_is_built_from_all_that_the_wheel_is_made_of(tmp_path: Path) -> None:
    tree = tmp_path / "usr/src/kvtool"
    for line in (ROOT / "docs/Containerfile").read_text().splitlines():
        words = line.split()
        if words[:1] != ["COPY"] or words[1].startswith("--from"):
            continue
        *sources, target = words[1:]
        for source in sources:
            place = tmp_path / target.lstrip("/") / (source if target.endswith("/") else "")
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place)
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, place)
    assert held(build("wheel", tree, tmp_path)) == held(build("wheel", ROOT, tmp_path / "usr"))


OFFLINE = [
    ["inspect"],
    ["inspect", "first.bin"],
    ["inspect", "--tree"],
    ["cat", "first.bin", "--output", "{root}/first.bin"],
    ["chunk", "{root}/new.bin"],
    ["label", "first.bin", "a=b"],
    ["verify"],
    ["fsck"],
    ["fsck", "--repair"],
    ["gc"],
    ["config", "--explain"],
]
WITHOUT_FUSE = """
import sys
sys.modules["pyfuse3"] = sys.modules["trio"] = None
from kvtool.cli.main import entry
sys.exit(entry())
"""


def without_fuse(tmp_path: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_FUSE, *arguments],
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_offline_commands_need_neither_pyfuse3_nor_trio(tmp_path: Path) -> None:
    layout = data.unpack(1, tmp_path)
    shutil.copy(sys.executable, tmp_path / "new.bin")
    for words in OFFLINE:
        done = without_fuse(tmp_path, *(word.format(root=tmp_path) for word in words), *flags_of(layout))
        assert done.returncode == 0, (words, done)


@pytest.mark.parametrize("flags", [[], ["--background"]])
def test_mount_says_what_it_needs(tmp_path: Path, flags: list[str]) -> None:
    (tmp_path / "mnt").mkdir()
    (tmp_path / "pyfuse3.py").write_text("raise ImportError('pyfuse3 is not here')\n")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "kvtool",
            "mount",
            str(tmp_path / "mnt"),
            *flags,
            "--store.path",
            str(tmp_path / "store"),
        ],
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "kvtool: error: cannot load FUSE: pyfuse3 is not here;"
        " apt-get install fuse3 libfuse3-dev pkg-config gcc python3-dev, then pip install pyfuse3\n"
    )
    assert not (tmp_path / "store").exists()
