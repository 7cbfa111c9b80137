"""The process's start: `python -m kvtool.http.main`, by the mount alone (see `kvtool.fs.api`)."""

import json
import os
import socket
from pathlib import Path

import trio

from kvtool.core import address
from kvtool.core.score import Score
from kvtool.http.access import Access, Rules
from kvtool.http.app import create_app
from kvtool.http.render import refusal
from kvtool.http.server import Patience, serve
from kvtool.http.source import Source
from kvtool.store import child
from kvtool.store.layout import Layout

_NICE = 10  # file requests come first


def main() -> None:
    """Serves until it is killed."""
    parser = child.parser("http")
    for name in ("socket", "config"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--stubs", type=Path, required=True)
    args = child.begin(parser)
    os.nice(_NICE)
    with open(args.config, "rb") as file:
        config = json.load(file)
    listener = socket.socket(fileno=args.socket)
    host, port = listener.getsockname()[:2]
    rules = Rules(address.is_loopback(host), config["name"], config["token"], f"kvtool-{port}")
    app = create_app(Source(Layout(args.store, args.stubs), Score(config["score"])))
    trio.run(serve, Access(app, rules, refusal), listener, Patience())


if __name__ == "__main__":
    main()
