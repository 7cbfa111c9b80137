"""kvtool mount: serve a store as a directory of ordinary files."""

import argparse
import logging
import os
import select
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from kvtool.cli.answers import Mounted
from kvtool.cli.call import Call
from kvtool.cli.parser import examples
from kvtool.cli.paths import directory_argument, layout_of, sizes_of
from kvtool.core.text import printable, unescaped
from kvtool.errors import KvtoolError, UsageError

log = logging.getLogger(__name__)
_ERROR = "kvtool: error: "
_PATIENCE = 5.0  # seconds until it is said that a mount in the background takes its time


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("mountpoint", metavar="MOUNTPOINT", help="an empty directory")
    parser.add_argument(
        "--background",
        action="store_true",
        help="return once it is mounted; it logs to mount.log in the store",
    )
    examples(
        parser,
        ("kvtool mount /srv/kv/mnt --background", "returns when it serves"),
        ("kvtool mount /srv/kv/mnt --store.path /srv/kv", "in the foreground, until Ctrl-C or kvtool umount"),
    )
    parser.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)


def run(call: Call) -> int:
    """Mounts; in the foreground until it is unmounted or gets SIGINT or SIGTERM."""
    settings = call.settings
    if call.args.background:
        return _in_background(call)
    try:
        from kvtool.fs import mount
        from kvtool.fs.api import ApiOptions
        from kvtool.fs.logring import LogRing
        from kvtool.fs.notify import Notifier
    except ImportError as error:
        raise KvtoolError(
            f"cannot load FUSE: {error}",
            hint="apt-get install fuse3 libfuse3-dev pkg-config gcc python3-dev, then pip install pyfuse3",
        ) from error
    from kvtool.settings.explain import explain
    from kvtool.store import mounts, recover
    from kvtool.store.child import log_to_stderr

    log_to_stderr(settings.log.level.upper())
    logging.getLogger("pyfuse3").setLevel(max(logging.INFO, logging.getLogger().level))
    ring = LogRing()
    logging.getLogger().addHandler(ring)
    layout = layout_of(call.values)
    token = settings.http.token.get_secret_value()
    api = ApiOptions(settings.http.listen, token) if settings.http.listen else None
    options = mount.MountOptions(
        mountpoint=mounts.check(directory_argument(call.args.mountpoint), layout),
        gc_interval=settings.store.gc_interval,
        read_ahead=settings.mount.read_ahead,
        workers=settings.mount.workers,
        cache=settings.mount.cache,
        write_queue=settings.mount.write_queue,
        kernel_read_ahead=settings.mount.kernel_read_ahead,
        allow_other=settings.mount.allow_other,
        http=api,
        score=settings.score.expression,
        settings={},
        log=ring,
        # In the background it is not what a service manager started, which may have more to do than this.
        manager=Notifier() if call.args.ready_fd is not None else Notifier.of(os.environ, os.getpid()),
    )

    def ready() -> None:
        print(f"kvtool: ready: {layout.root} on {options.mountpoint}", file=sys.stderr, flush=True)
        if call.args.ready_fd is not None:
            os.write(call.args.ready_fd, b"ready")
            os.close(call.args.ready_fd)

    sync = settings.store.durability == "power"
    with recover.writer(layout, sync=sync, create=sizes_of(call.values)) as writer:
        if call.args.ready_fd is not None:
            _log_to(layout.log)
        if text := str(writer.recovered):
            log.info("mended after the last stop: %s", text)
        # Looked at again: a store that was made only now fixes some settings from here on.
        options = replace(options, settings=explain(Call(call.args, call.flags).resolved))
        mount.serve(writer.store, writer.lock_fd, options, ready)
    return 0


def _log_to(path: Path) -> None:
    """From here on standard output and error, those of the worker too, go to the end of a file."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)


def _in_background(call: Call) -> int:
    """Starts this command again, on its own, and waits for its word that it serves."""
    layout = layout_of(call.values)
    log_path = layout.log
    ours, theirs = os.pipe()
    own = ["--ready-fd", str(theirs)]  # in front, where no `--` can stand before it
    arguments = [argument for argument in sys.argv[2:] if argument not in {"--background", "--json"}]
    errors = tempfile.TemporaryFile()  # noqa: SIM115  (until there is a store with a log in it)
    process = subprocess.Popen(
        [sys.executable, "-m", "kvtool", "mount", *own, *arguments],
        pass_fds=[theirs],
        stdin=subprocess.DEVNULL,
        stdout=errors,
        stderr=errors,
        start_new_session=True,
    )
    os.close(theirs)
    # However long it takes: after a power cut new packs are read as a whole.
    readable, _, _ = select.select([ours], [], [], _PATIENCE)
    if not readable:
        call.note(f"starting (process {process.pid}); {log_path} says what takes so long")
    if os.read(ours, 16):
        call.emit(
            asdict(Mounted(mountpoint=call.args.mountpoint, store=str(layout.root), pid=process.pid)),
            printable(f"{layout.root} on {call.args.mountpoint} (process {process.pid}, log {log_path})"),
        )
        return 0
    code = process.wait()
    errors.seek(0)
    lines = errors.read().decode(errors="replace").splitlines()
    if not any(line.startswith(_ERROR) for line in lines) and log_path.exists():
        lines = log_path.read_text(errors="replace").splitlines()
    said = [unescaped(line.removeprefix(_ERROR)) for line in lines if line.startswith(_ERROR)]
    message = said[-1] if said else f"the mount ended with exit code {code}; see {log_path}"
    failure: KvtoolError = UsageError(message) if code == UsageError.exit_code else KvtoolError(message)
    failure.exit_code = code or 1
    raise failure
