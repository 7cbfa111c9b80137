"""Other deduplicating tools, each told to do the same work: chunks, SHA-256 or better, no compression."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.processes import peak_memory

_LIMIT = 600.0  # seconds for one command
_LOOK = 0.05  # seconds between looks at its memory


class Peer:
    """A tool with a repository of its own in a folder. A subclass says with which commands."""

    name = ""
    program = ""
    how = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / self.program
        self.saves = 0
        self.peak_memory = 0  # bytes, of the largest of its commands so far
        self.environment = os.environ | {
            "BORG_BASE_DIR": str(self.folder),
            "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes",
            "RESTIC_PASSWORD": "bench",
            "RESTIC_CACHE_DIR": str(self.folder / "cache"),
        }

    @classmethod
    def installed(cls) -> bool:
        return shutil.which(cls.program) is not None

    def create(self) -> None:
        """Begin with an empty repository."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.saves = 0
        self._create()

    def save(self, source: Path) -> None:
        """Store a file, reading all of it even if it looks unchanged."""
        self.saves += 1
        self._save(source)

    def restore(self) -> None:
        """Write the last saved file out again."""
        target = self.folder / "out"
        target.mkdir()
        self._restore(target)
        shutil.rmtree(target)

    def _create(self) -> None:
        raise NotImplementedError

    def _save(self, source: Path) -> None:
        raise NotImplementedError

    def _restore(self, target: Path) -> None:
        raise NotImplementedError

    def _run(self, *arguments: str, folder: Path | None = None, output: Path | None = None) -> None:
        with tempfile.TemporaryFile() as said, contextlib.ExitStack() as stack:
            out = stack.enter_context(output.open("wb")) if output else subprocess.DEVNULL
            process = subprocess.Popen(
                [self.program, *arguments],
                cwd=folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=said,
            )
            with _killed_after(_LIMIT, process):
                self._watch_memory(process)
            if process.wait():
                said.seek(0)
                text = said.read().decode(errors="replace").strip()
                raise RuntimeError(f"{self.program} {arguments[0]} ended with {process.returncode}: {text}")

    def _watch_memory(self, process: "subprocess.Popen[bytes]") -> None:
        """Waits for its end. What wait4(2) says of its memory includes ours, from before the exec."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(_LOOK):
                self.peak_memory = max(self.peak_memory, peak_memory([process.pid]))

        watcher = threading.Thread(target=watch)
        watcher.start()
        process.wait()
        ended.set()
        watcher.join()


@contextlib.contextmanager
def _killed_after(seconds: float, process: "subprocess.Popen[bytes]") -> Iterator[None]:
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Casync(Peer):
    name = program = "casync"
    how = (
        "make --digest=sha256 --chunk-size=16:64:256 KiB; its chunks are zstd files, which it cannot turn off"
    )

    def _create(self) -> None:
        pass  # `make` creates its store

    def _save(self, source: Path) -> None:
        sizes = "--chunk-size=16384:65536:262144"
        self._run("make", "--digest=sha256", sizes, self._store, self._index, str(source))

    def _restore(self, target: Path) -> None:
        self._run("extract", "--digest=sha256", self._store, self._index, str(target / "file"))

    @property
    def _store(self) -> str:
        return f"--store={self.folder / 'store'}"

    @property
    def _index(self) -> str:
        return str(self.folder / f"{self.saves}.caibx")


class Borg(Peer):
    name = program = "borg"
    how = "create -C none --files-cache=disabled, --encryption=none, its own chunk sizes (2 MiB on average)"

    def _create(self) -> None:
        self._run("init", "--encryption=none", self._repository)

    def _save(self, source: Path) -> None:
        archive = f"{self._repository}::{self.saves}"
        self._run(
            "create", "-C", "none", "--files-cache=disabled", archive, source.name, folder=source.parent
        )

    def _restore(self, target: Path) -> None:
        self._run("extract", f"{self._repository}::{self.saves}", folder=target)

    @property
    def _repository(self) -> str:
        return str(self.folder / "repository")


class Restic(Peer):
    name = program = "restic"
    how = "backup --force --compression off, dump; its own chunk sizes (1 MiB on average); it always encrypts"

    def _create(self) -> None:
        self._run("init", *self._repository)

    def _save(self, source: Path) -> None:
        self._source = source
        self._run("backup", "--force", "--compression", "off", *self._repository, str(source))

    def _restore(self, target: Path) -> None:
        self._run("dump", "latest", str(self._source), *self._repository, output=target / "file")

    @property
    def _repository(self) -> list[str]:
        return ["--repo", str(self.folder / "repository")]


PEERS: list[type[Peer]] = [Casync, Borg, Restic]
