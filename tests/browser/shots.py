"""Screenshots of every page, to look at: `python -m tests.browser.shots FOLDER [NAME-WIDTH-SCHEME ...]`.

With `docs` as the folder, the two pictures in docs/.
"""

import sys
from pathlib import Path

from playwright.sync_api import Browser

from tests.api import Api, mounted
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
    "label": "/label/chat/talk-0-turn-2.bin",
    "login": "/login",
    "missing": "/nothing",
}
DOCS = {"snapshots": "light", "tree": "dark"}


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True, parents=True)
    with mounted(limit=300) as api, browser() as started:
        if folder.name == "docs":
            fill(api, tricks=False)
            _for_docs(api, started, folder)
        else:
            fill(api)
            _all(api, started, folder, set(sys.argv[2:]))


def _for_docs(api: Api, started: Browser, folder: Path) -> None:
    for name, scheme in DOCS.items():
        visit = Visit(started, api.url, color_scheme=scheme, viewport={"width": 1120, "height": 620})
        visit.page.goto(PAGES[name])
        visit.page.screenshot(path=folder / f"page-{name}.png")
        visit.close()


def _all(api: Api, started: Browser, folder: Path, wanted: set[str]) -> None:
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
