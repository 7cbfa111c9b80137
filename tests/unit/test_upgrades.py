"""A store of an earlier format opens; one of a later format is refused, and nothing is written to it."""

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kvtool.core import pack
from kvtool.errors import CatalogDamaged, PackDamaged, StoreTooNew
from kvtool.store import recover
from kvtool.store.catalog import Catalog
from kvtool.store.layout import Layout
from tests import data
from tests.cli import Cli
from tests.stores import flags_of, listing, pack_paths

OFFLINE = ["inspect", "verify", "fsck", "gc", "cat first.bin", "label first.bin a=b"]
INDEX = "chunk_place"


@pytest.fixture
def old(tmp_path: Path) -> Layout:
    return data.unpack(1, tmp_path)


@pytest.fixture
def cli(
    old: Layout, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Cli:
    return Cli(tmp_path, capfdbinary, monkeypatch, *flags_of(old))


def sql(layout: Layout, *statements: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(layout.catalog)) as db, db:
        return [row for statement in statements for row in db.execute(statement).fetchall()]


def make_pack_newer(layout: Layout) -> str:
    """A pack that the catalog does not know yet: nobody reads the header of one that it knows."""
    path = pack_paths(layout)[0]
    sql(layout, f"DELETE FROM pack WHERE id = x'{path.stem}'")  # noqa: S608
    with path.open("r+b") as file:
        file.seek(8)
        file.write((pack.VERSION + 1).to_bytes(4, "little"))
    return f"pack {path.stem} is of version {pack.VERSION + 1}, this kvtool reads {pack.VERSION}"


def make_format_newer(layout: Layout) -> str:
    layout.format.write_text(layout.format.read_text().replace("version = 1", "version = 2"))
    return "store.toml: the store is of format 2, this kvtool reads 1"


def make_catalog_newer(layout: Layout) -> str:
    sql(layout, "PRAGMA user_version = 3")
    return f"{layout.catalog} is of schema 3, this kvtool knows 2"


def contents(layout: Layout) -> dict[str, object]:
    """All but what a look at a catalog leaves beside it, and the lock's text."""
    left_out = (str(layout.catalog) + "-", str(layout.lock))
    found = listing(layout.root, layout.stubs)
    return {path: what for path, what in found.items() if not path.startswith(left_out)}


def test_every_snapshot_of_the_first_format_is_what_it_was(old: Layout, cli: Cli) -> None:
    for name, held in data.manifest(1).items():
        done = cli("cat", name)
        assert (done.returncode, hashlib.sha256(done.stdout).hexdigest()) == (0, held["sha256"]), name
    rows = {row["name"]: row for row in cli.json("inspect")["snapshots"]}
    assert {name: row["size"] for name, row in rows.items()} == {
        name: held["size"] for name, held in data.manifest(1).items()
    }
    assert {name: row["labels"] for name, row in rows.items()} == {
        name: held["labels"] for name, held in data.manifest(1).items()
    }
    assert rows["next-turn.bin"]["uses"] >= 1


def test_the_first_format_checks_out(cli: Cli) -> None:
    assert cli("verify").returncode == 0
    assert cli("fsck").returncode == 0
    assert cli.json("gc")["packs"] >= 1  # what deleted.bin left
    assert cli("verify").returncode == 0


def test_what_is_stored_again_is_not_new(cli: Cli, tmp_path: Path) -> None:
    again = tmp_path / "again.bin"
    again.write_bytes(cli("cat", "first.bin").stdout)
    assert [row["new_bytes"] for row in cli.json("chunk", str(again))["snapshots"]] == [0]


@pytest.mark.parametrize("make", [make_format_newer, make_catalog_newer, make_pack_newer])
@pytest.mark.parametrize("command", ["fsck", "fsck --repair", "verify", "gc", "chunk ./x"])
def test_a_later_format_is_refused(
    old: Layout, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: object, command: str
) -> None:
    """With the version found, the one known, the next step and exit code 10; nothing is changed."""
    monkeypatch.chdir(tmp_path)
    Path("x").write_bytes(b"new")
    message = make(old)  # type: ignore[operator]
    before = contents(old)
    done = cli(*command.split())
    assert done.returncode == 10, done
    assert message in done.stderr
    assert "upgrade kvtool" in done.stderr
    assert contents(old) == before


def test_a_flipped_bit_is_no_later_format(old: Layout) -> None:
    head = pack_paths(old)[0].read_bytes()[: pack.HEADER_SIZE]
    for bit in range(32):
        version = (pack.VERSION ^ 1 << bit).to_bytes(4, "little")
        with pytest.raises(PackDamaged):
            pack.decode_header(head[:8] + version + head[12:])
    with pytest.raises(StoreTooNew):
        pack.decode_header(head[:8] + (pack.VERSION + 1).to_bytes(4, "little") + head[12:])


def test_a_catalog_without_the_second_index_gets_it(old: Layout, cli: Cli) -> None:
    """It came later, with no change of the version: a reader does without, the next writer makes it."""
    sql(old, f"DROP INDEX {INDEX}")
    assert cli("inspect", "first.bin").returncode == 0
    assert cli("verify").returncode == 0
    assert cli("fsck").returncode == 0
    with recover.writer(old, sync=False):
        pass
    assert (INDEX,) in sql(old, "SELECT name FROM sqlite_schema WHERE type = 'index'")
    assert cli("verify").returncode == 0


def test_a_catalog_without_a_version_is_complete(old: Layout, cli: Cli) -> None:
    """Those of the first days have none."""
    sql(old, "PRAGMA user_version = 0")
    assert cli("verify").returncode == 0
    with recover.writer(old, sync=False):
        pass
    assert cli("fsck").returncode == 0


def test_a_catalog_in_the_making_is_the_writers_to_finish(old: Layout) -> None:
    sql(old, "PRAGMA user_version = 2")
    with pytest.raises(CatalogDamaged, match="start `kvtool mount`"):
        Catalog(old.catalog, writable=False)
    with recover.writer(old, sync=False):
        pass
    assert sql(old, "PRAGMA user_version") == [(1,)]


def test_a_catalog_that_is_moved_away_is_made_anew(old: Layout, cli: Cli) -> None:
    """What the refusal of a later schema tells to do."""
    make_catalog_newer(old)
    for file in old.root.glob("catalog.sqlite3*"):
        file.unlink()
    assert "kvtool mount" in cli("inspect", "first.bin").stderr
    with recover.writer(old, sync=False) as writer:
        assert writer.recovered.packs_taken_in == len(pack_paths(old))
    assert cli("verify").returncode == 0
