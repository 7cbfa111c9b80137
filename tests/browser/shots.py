"""Screenshots of every page, to look at: `python -m tests.browser.shots FOLDER [NAME-WIDTH-SCHEME ...]`."""

import sys
import time
from pathlib import Path

from tests.api import mounted
from tests.browser.chromium import Visit, browser
from tests.browser.content import fill

PAGES = {
    "overview": "/",
    "snapshots": "/snapshots?sort=unique_bytes&order=down",
    "snapshot": "/snapshot/chat/talk-0-turn-2.bin",
    "tree": "/tree",
    "gc": "/gc",
    "logs": "/logs",
    "delete": "/delete/chat/talk-1-turn-0.bin",
    "login": "/login",
    "missing": "/nothing",
}


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True, parents=True)
    wanted = set(sys.argv[2:])
    with mounted(limit=300) as api, browser() as started:
        fill(api)
        for _ in range(3):  # so that the picture of bytes over time has a course
            time.sleep(1)
            api("/v1/health")
        for scheme in ("light", "dark"):
            for width in (1280, 390):
                visit = Visit(started, api.url, color_scheme=scheme, viewport={"width": width, "height": 800})
                for name, path in PAGES.items():
                    if not wanted or f"{name}-{width}-{scheme}" in wanted:
                        visit.page.goto(path)
                        visit.forgive()
                        visit.page.screenshot(path=folder / f"{name}-{width}-{scheme}.png", full_page=True)
                visit.close()


if __name__ == "__main__":
    main()
