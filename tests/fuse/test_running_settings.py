"""`kvtool config --running`: what a mount was started with, whatever has become of files and variables."""

import json
from collections.abc import Callable

from tests import schemas
from tests.mounts import MountedStore


def test_the_settings_of_the_mount_that_runs(mounts: Callable[..., MountedStore]) -> None:
    mount = mounts("--mount.cache", "64 MiB", "--chunk.max_size", "128 KiB")
    found = mount.json("config", "--running", "--explain", "chunk.max_size")
    assert (found["value"], found["layer"]) == (128 << 10, "store")
    config = mount.root / "config/kvtool/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[mount]\nworkers = 3\n")
    mount.remount()
    config.write_text("[mount]\nworkers = 0\n")  # what it has become must not matter

    def running(*arguments: str) -> dict[str, object]:
        answer = mount.json("config", "--running", *arguments)
        schemas.check(["config", "--running", *arguments], answer)
        return answer  # type: ignore[no-any-return]

    values = running()
    assert values["mount"]["workers"] == 3  # type: ignore[index]
    rows = {row["key"]: row for row in running("--explain")["settings"]}  # type: ignore[attr-defined]
    origin = {key: (row["value"], row["layer"], row["where"]) for key, row in rows.items()}
    assert origin["mount.workers"] == (3, "file", f"{config}:2")
    assert origin["mount.cache"] == (64 << 20, "flag", "--mount.cache")
    assert origin["chunk.max_size"][:2] == (128 << 10, "store")
    assert [each["layer"] for each in rows["chunk.max_size"]["overridden"]] == ["flag", "default"]
    page = running("--explain", "mount.workers")
    assert (page["value"], page["problems"]) == (3, [])
    changed = {row["key"] for row in running("--explain", "--changed")["settings"]}  # type: ignore[attr-defined]
    assert {"mount.workers", "mount.cache"} <= changed
    assert "log.level" not in changed
    text = mount.kvtool("config", "--running").stdout
    assert "workers = 3\n" in text
    # It can be fed back: another mount gets the same.
    config.unlink()
    (mount.root / "fed.toml").write_text(text)
    assert mount.json("config", "--config", str(mount.root / "fed.toml")) == values
    schemas.check(["status"], mount.json("status"))
    mount.umount()
    done = mount.kvtool("config", "--running", "--json", check=False)
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (1, "not_mounted")
    mount.store.rename(mount.root / "elsewhere")
    assert mount.kvtool("config", "--running", check=False).returncode == 10
