"""The log of a real mount over HTTP: its own lines and those of the processes that it starts."""

import os
import time
from pathlib import Path

from tests.api import TOKEN, Api, data_of, save, wait_until_healthy
from tests.mounts import MountedStore

_EACH_SAYS_ONE = """
import logging
from kvtool.store import child

begin = child.begin

def begin_and_say(parser):
    args = begin(parser)
    logging.getLogger("kvtool.said").warning("hello from %s", parser.prog)
    return args

child.begin = begin_and_say
"""
_LIMIT = 60.0


def test_lines_of_every_process_are_in_the_log_once(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(_EACH_SAYS_ONE)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    flags = ("--http.listen", "127.0.0.1:0", "--http.token", TOKEN, "--store.gc_interval", "0")
    with MountedStore(tmp_path / "m", *flags, env={"PYTHONPATH": path}) as mount:
        mount.expect_log("hello from ")
        api = Api(mount)
        wait_until_healthy(api)
        save(api, "a", data_of(1, 1000))
        os.getxattr(mount.dir / "a", "user.kvtool.unique_bytes")
        mount.kvtool("prefetch", "a", "--wait")
        mount.kvtool("gc")
        processes = {"worker", "http", "collector", "census", "prefetch"}
        found: dict[str, str] = {}
        deadline = time.monotonic() + _LIMIT
        while len(found) < len(processes):  # they are on their way
            lines = api.get("/v1/logs?level=warning")["lines"]
            found = {line["logger"]: line["message"] for line in lines}
            assert time.monotonic() < deadline, found
        expected = {f"{name}:kvtool.said": f"hello from {name}" for name in processes}
        assert {logger: found[logger] for logger in expected} == expected
        assert f'kvtool_log_lines_total{{level="warning"}} {len(lines)}.0' in api("/metrics").body.decode()
        page = api("/logs").body.decode()
        assert "hello from worker" in page
    said = [line for line in mount.log if "hello" in line]
    assert len(said) == len(set(said)) == len(lines)
    assert {f"kvtool: WARNING hello from {name}" for name in processes} <= set(said)
