"""Real shells on a terminal, to which a line is typed as a person does it."""

import os
import pty
import select
import signal
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

_START = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
# In the place of the program: it answers with the names, or tells with which arguments it was called.
_PROGRAM = """kvtool() {
    case $1 in
        completion) printf '%s\\1' "$@" >asked; cat names ;;
        *) { printf '%s\\1' "$@"; printf '\\2'; } >called ;;
    esac
}
"""
_PREPARED = {
    "bash": _PROGRAM,
    "zsh": f"{_PROGRAM}autoload -Uz compinit; compinit -u -D\n",
    "fish": """function kvtool
    switch $argv[1]
        case completion
            printf '%s\\1' $argv >asked; cat names
        case '*'
            begin; printf '%s\\1' $argv; printf '\\2'; end >called
    end
end
""",
}


class Terminal:
    """An interactive shell in the new directory `folder`, which has read `script`.

    `names` are those of the snapshots.
    """

    def __init__(self, shell: str, script: str, folder: Path, names: Sequence[str]) -> None:
        folder.mkdir()
        (folder / "names").write_text("".join(f"{name}\n" for name in names))
        (folder / "prepared").write_text(f"{_PREPARED[shell]}{script}\n")
        os.mkfifo(folder / "called")
        env = {"PATH": os.environ["PATH"], "HOME": str(folder), "TERM": "dumb", "LC_ALL": "C.UTF-8"}
        self._folder = folder
        self._screen = b""
        self._pid, self._keys = pty.fork()
        if self._pid == 0:
            os.chdir(folder)
            os.execvpe(shell, _START[shell], env)  # noqa: S606
        self._called = os.open(
            folder / "called", os.O_RDWR | os.O_NONBLOCK
        )  # also for writing: never at its end
        self.enter(". ./prepared; kvtool ready")

    def enter(self, line: str) -> list[str]:
        """Types `line`, TABs and all, and Enter. Returns the arguments with which kvtool was called then."""
        os.write(self._keys, line.encode() + b"\r")
        called = b""
        while not called.endswith(b"\2"):
            ready, _, _ = select.select([self._keys, self._called], [], [], 30)
            if not ready:
                raise TimeoutError(f"{line!r} called nothing: {self.screen()}")
            if self._keys in ready:
                self._screen += os.read(self._keys, 65536)
            if self._called in ready:
                called += os.read(self._called, 65536)
        return [os.fsdecode(word) for word in called[:-1].split(b"\1")[:-1]]

    def asked(self) -> list[str]:
        """The arguments of the last `kvtool completion`."""
        return (self._folder / "asked").read_text().split("\1")[:-1]

    def screen(self) -> str:
        """What the shell wrote so far."""
        return self._screen.decode(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._keys)
        os.close(self._called)
