"""kvtool export beside a running mount, and import, which wants the store for itself."""

from pathlib import Path

from tests.mounts import MountedStore
from tests.synth import random_bytes

DATA = random_bytes(700_000)


def test_export_and_import_beside_a_mount(mount: MountedStore, tmp_path: Path) -> None:
    (mount.dir / "chat").mkdir()
    (mount.dir / "chat" / "a").write_bytes(DATA)
    [row] = mount.json("export", "chat/a", "--to", str(tmp_path))["snapshots"]
    assert (row["size"], row["new_bytes"]) == (len(DATA), len(DATA))
    found = {path.name: path.read_bytes() for path in (tmp_path / "default.castr").glob("*/*")}
    index = Path(row["index"]).read_bytes()
    ids = [index[at : at + 32].hex() for at in range(72, len(index) - 40, 40)]
    assert b"".join(found[chunk_id] for chunk_id in ids) == DATA
    store = ("--store", str(tmp_path / "default.castr"))
    [row] = mount.json("import", row["index"], *store, "--dry-run")["snapshots"]
    assert row["new_chunks"] == 0
    refused = mount.kvtool("import", str(tmp_path / "chat" / "a.caibx"), *store, check=False)
    assert refused.returncode == 11
    assert "is in use by process" in str(refused.stderr)
    assert "work in its mount" in str(refused.stderr)
    inside = mount.kvtool("export", "chat/a", "--to", str(mount.dir / "chat"), check=False)
    assert inside.returncode == 2
    assert f"lies in {mount.dir}" in str(inside.stderr)
    assert sorted(path.name for path in mount.dir.iterdir()) == ["chat"]
