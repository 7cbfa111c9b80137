"""llama.cpp's own server saves and restores its slots in a mount exactly as in a plain folder."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("xllamacpp", reason="the real server is in the extra `e2e`")

from tests.e2e.models import SMALL_HYBRID, SMALL_PLAIN, Model, write_model
from tests.e2e.scenario import NAMES, Outcome, run
from tests.mounts import MountedStore

CASES = [
    pytest.param(SMALL_PLAIN, 1400, "auto", id="plain"),
    pytest.param(SMALL_HYBRID, 1400, "auto", id="hybrid"),
    pytest.param(SMALL_PLAIN, 900, "off", id="plain without flash attention"),
]


@pytest.mark.parametrize(("model", "tokens", "flash_attention"), CASES)
def test_the_real_server_sees_no_difference(
    mounts: Callable[..., MountedStore], tmp_path: Path, model: Model, tokens: int, flash_attention: str
) -> None:
    path = write_model(str(tmp_path / "model.gguf"), model)
    plain = tmp_path / "plain"
    plain.mkdir()
    mount = mounts(limit=240)

    def in_mount() -> Outcome:
        return run(
            path,
            mount.dir,
            tokens,
            flash_attention=flash_attention,
            stored=lambda: mount.pack_bytes,
            between=mount.remount,
        )

    with ThreadPoolExecutor(2) as pool:
        reference = pool.submit(run, path, plain, tokens, flash_attention=flash_attention)
        through_mount = pool.submit(in_mount)
        expected, got = reference.result(), through_mount.result()

    assert asdict(got) | {"stored": None} == asdict(expected) | {"stored": None}
    assert got.read == got.written
    assert all(reused > tokens // 2 for reused in got.reused.values())
    for name in NAMES:
        assert (mount.dir / name).read_bytes() == (plain / name).read_bytes(), name
        assert (mount.dir / name).stat().st_size == got.written[name]
        assert mount.json("inspect", name)["llama"]["tokens"] == got.tokens[name]

    first, turn, other, again = (after - before for before, after in pairwise(got.stored))
    assert first > 0
    assert again == 0
    if flash_attention == "auto":  # V transposed shares nothing: a turn changes each of its short rows
        assert turn < 0.65 * got.written["next-turn.bin"]
        assert other < 0.85 * got.written["other.bin"]
