"""docs/proxies.md, from start to restore: its lines as they stand, but for paths; with the real server."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("xllamacpp", reason="the real server is in the extra `e2e`")

from tests.api import TOKEN, mounted
from tests.e2e.client import Server
from tests.e2e.models import SMALL_PLAIN, write_model

PAGE = Path(__file__).parents[2] / "docs" / "proxies.md"
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_from_start_to_restore(tmp_path: Path) -> None:
    assert len(BLOCKS) == 3
    if not shutil.which("curl") or not shutil.which("setfattr"):
        pytest.skip("there is no curl or no setfattr here")
    program = tmp_path / "kvtool"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kvtool "$@"\n')
    program.chmod(0o755)
    model = write_model(str(tmp_path / "model.gguf"), SMALL_PLAIN)
    with mounted("--store.gc_interval", "0") as api, Server(model, api.mount.dir) as server:
        outputs = []
        for block in BLOCKS:
            text = block.replace("/srv/kv/mnt", str(api.mount.dir)).replace(
                "--store.path /srv/kv/store", " ".join(api.mount.settings)
            )
            done = subprocess.run(
                ["sh", "-ec", text],
                env=api.mount.environment
                | {"LLAMA": server.address, "API": api.url, "KVTOOL_HTTP__TOKEN": TOKEN}
                | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
                capture_output=True,
                text=True,
                timeout=100,
                check=False,
            )
            assert done.returncode == 0, done
            outputs.append(done.stdout)
        assert '"n_written"' in outputs[0]
        assert '"n_restored"' in outputs[1]
        assert '"project": "demo"' in outputs[2]
        assert os.listdir(api.mount.dir) == []
