"""docs/evict.py, the example of docs/proxies.md, against a mount with its API."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api import TOKEN, Api, data_of, mounted, save

SCRIPT = Path(__file__).parents[2] / "docs" / "evict.py"
PART = 300_000
SCORE = "0 if 'keep' in labels else unique_bytes / (1 + uses)"


@pytest.fixture
def api() -> Iterator[Api]:
    """Two snapshots that share most, one by itself, one to keep."""
    with mounted("--store.gc_interval", "0", "--score.expression", SCORE) as api:
        shared = data_of(1, 2 * PART)
        save(api, "turn 1.bin", shared + data_of(2, PART))
        save(api, "turn 2.bin", shared + data_of(3, PART))
        save(api, os.fsdecode(b"alone\xff.bin"), data_of(4, 2 * PART))
        save(api, "keep.bin", data_of(5, 3 * PART))
        api.mount.kvtool("label", "keep.bin", "keep=yes")
        yield api


def evict(api: Api, budget: int, *flags: str, token: str = TOKEN) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(SCRIPT), "--url", api.url, "--budget", str(budget), *flags],
        env={**os.environ, "KVTOOL_HTTP__TOKEN": token},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def names(api: Api) -> set[str]:
    return set(api.snapshots())


def test_it_only_says_what_it_would_delete(api: Api) -> None:
    before = names(api)
    done = evict(api, 8 * PART)
    assert done.returncode == 1
    assert "would delete 'alone\\udcff.bin'" in done.stdout
    assert names(api) == before
    done = evict(api, 20 * PART)
    assert (done.returncode, done.stderr) == (0, "")


def test_it_deletes_by_score_until_the_budget_is_kept(api: Api, tmp_path: Path) -> None:
    done = evict(api, 8 * PART + PART // 4, "--delete")
    assert (done.returncode, done.stderr) == (0, "")
    assert names(api) == {"turn 1.bin", "turn 2.bin", "keep.bin"}
    assert api.mount.pack_bytes < 8 * PART + PART // 4
    # Both turns have to go for what they share; the token from a file this time.
    (tmp_path / "token").write_text(TOKEN + "\n")
    done = evict(api, 4 * PART, "--delete", "--token-file", str(tmp_path / "token"), token="")
    assert (done.returncode, done.stderr) == (0, ""), done
    assert names(api) == {"keep.bin"}


def test_what_is_to_be_kept_stays(api: Api) -> None:
    done = evict(api, PART, "--delete")
    assert done.returncode == 1
    assert names(api) == {"keep.bin"}


def test_it_says_what_is_wrong(api: Api) -> None:
    done = evict(api, PART, "--delete", token="wrong")  # noqa: S106
    assert (done.returncode, done.stdout) == (2, "")
    assert "answered 401" in done.stderr
    assert len(names(api)) == 4
