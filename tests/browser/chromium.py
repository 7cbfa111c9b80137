"""Debian's Chromium, driven by Playwright's Python package: no browser is downloaded."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.api import TOKEN

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
_PATIENCE = 20_000  # ms


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser without a window."""
    if not shutil.which(CHROMIUM):
        raise RuntimeError(f"there is no {CHROMIUM}: apt-get install chromium, or run .ci/setup")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        try:
            yield started
        finally:
            started.close()


class Visit:
    """A browser's context with one page, and all that it complained of and asked for."""

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        self.url = url
        self.context: BrowserContext = browser.new_context(base_url=url, **options)
        self.context.set_default_timeout(_PATIENCE)
        self.page: Page = self.context.new_page()
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self._said(message.type, message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def _said(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"}:
            self.complaints.append(text)

    def forgive(self) -> None:
        """What it complained of was to come: Chromium tells of each answer above 400."""
        self.complaints.clear()

    def close(self) -> None:
        """Ends it; it must have asked nobody else, and complained of nothing."""
        self.context.close()
        assert all(url.startswith(self.url + "/") for url in self.asked), self.asked
        assert self.complaints == []

    def log_in(self) -> None:
        """Gives the token on the page where it is asked for."""
        self.page.get_by_label("Token").fill(TOKEN)
        self.page.get_by_role("main").get_by_role("button", name="Log in").click()
