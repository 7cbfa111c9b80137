"""Two stores, of which one is exported and the other has nothing yet."""

from pathlib import Path

import pytest

from kvtool.store.layout import Layout
from tests.cli import Cli
from tests.exchange import FILES, SIZES
from tests.stores import (
    flags_of,
    layout_in,
    open_store,
    save,
)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    with open_store(tmp_path, SIZES) as store:
        (tmp_path / "stubs" / "chat").mkdir()
        for name, data in FILES.items():
            save(store, data, name)
    return layout_in(tmp_path)


@pytest.fixture
def other(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A command line for a store of its own, with other chunk sizes, which has nothing yet."""
    flags = flags_of(layout_in(tmp_path / "other"))
    return Cli(tmp_path, capsysbinary, monkeypatch, *flags, "--chunk.max_size", "128KiB")


@pytest.fixture
def to(cli: Cli, tmp_path: Path) -> Path:
    """The directory of an export of all snapshots."""
    cli.json("export", *FILES, "--to", str(tmp_path / "to"))
    return tmp_path / "to"
