"""The page in a real Chromium: every way through it without JavaScript, and nothing from elsewhere."""

import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.api import Api, mounted, save
from tests.browser.chromium import Visit, browser
from tests.browser.content import TRICKS, fill

PAGES = (
    "/",
    "/snapshots",
    "/snapshot/chat/talk-0-turn-2.bin",
    "/tree",
    "/gc",
    "/logs",
    "/collect",
    "/delete/chat/talk-0-turn-2.bin",
    "/label/chat/talk-0-turn-2.bin",
    "/login",
)


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    if not os.path.exists("/dev/fuse") and "CI" not in os.environ:
        pytest.skip("there is no /dev/fuse here")
    with mounted("--store.gc_interval", "0", limit=300) as api:
        fill(api, conversations=2)
        yield api


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture
def visit(chromium: Browser, api: Api) -> Iterator[Visit]:
    """A visit without JavaScript."""
    visit = Visit(chromium, api.url, java_script_enabled=False)
    yield visit
    visit.close()


def cells(visit: Visit, selector: str) -> list[str]:
    return [text.strip() for text in visit.page.locator(selector).all_inner_texts()]


def test_columns_sort_by_their_links(visit: Visit) -> None:
    page = visit.page
    page.goto("/snapshots?prefix=chat/talk-0")
    names = cells(visit, "tbody th a")
    assert names == sorted(names)
    assert len(names) == 4
    page.get_by_role("columnheader", name="Size").get_by_role("link").click()
    assert page.locator("th[aria-sort]").get_attribute("aria-sort") == "descending"
    assert cells(visit, "tbody th a")[0] == "chat/talk-0-turn-2.bin"
    page.get_by_role("columnheader", name="Size").get_by_role("link").click()
    assert page.locator("th[aria-sort]").get_attribute("aria-sort") == "ascending"
    assert cells(visit, "tbody th a")[-1] == "chat/talk-0-turn-2.bin"
    assert page.locator("tbody svg.bar rect.unique").count() == 4
    page.get_by_label("With the label").fill("keep=yes")
    page.get_by_role("button", name="Show").click()
    assert cells(visit, "tbody th a") == ["chat/talk-0-turn-2.bin"]


def test_the_list_has_pages(visit: Visit) -> None:
    page = visit.page
    page.goto("/snapshots?limit=5")
    first = cells(visit, "tbody th a")
    page.get_by_role("link", name="Next").click()
    assert "limit=5" in page.url
    second = cells(visit, "tbody th a")
    assert len(first) == len(second) == 5
    assert not set(first) & set(second)
    page.get_by_role("link", name="Previous").click()
    assert cells(visit, "tbody th a") == first


def test_one_walks_into_the_tree_and_back(visit: Visit) -> None:
    page = visit.page
    page.goto("/tree")
    expect(page.get_by_role("heading", name="8 snapshots")).to_be_visible()
    page.locator("svg.icicle a").first.click()
    expect(page.get_by_role("heading", name=re.compile("4 snapshots from 1... tokens on"))).to_be_visible()
    while page.locator("svg.icicle a").count():
        page.locator("svg.icicle a").first.click()
    expect(page.get_by_role("heading", name="Snapshots that end here")).to_be_visible()
    page.locator("tbody th a").first.click()
    page.get_by_role("link", name="its place in the tree").click()
    page.get_by_role("navigation", name="The way here").get_by_role("link", name="Everything").click()
    page.get_by_text("The same as a list").click()
    assert page.locator("ul.nested a").count() == page.locator("svg.icicle a").count()


def test_a_chunk_map_says_what_is_shared_and_where_it_lies(visit: Visit) -> None:
    page = visit.page
    page.goto("/snapshot/chat/talk-0-turn-2.bin")
    levels = page.locator(".cells .cell").evaluate_all("all => all.map(each => each.className)")
    assert {name.split()[1] for name in levels} >= {"u0", "u4"}
    letters = set(cells(visit, ".cells .cell"))
    assert letters == set(cells(visit, "tbody th"))
    assert "A" in letters


def test_names_are_shown_and_never_run(visit: Visit, api: Api) -> None:
    page = visit.page
    page.on("dialog", lambda dialog: pytest.fail("a name was run"))
    page.goto("/snapshots?prefix=odd/")
    shown = cells(visit, "tbody th a")
    assert set(shown) == {
        "odd/<script>alert(1)</script>",
        "odd/\\udcff\\udcfe",
        "odd/line\\nbreak",
        "odd/quo\"te' & co",
    }
    for number in range(len(TRICKS)):
        page.goto("/snapshots?prefix=odd/")
        page.locator("tbody th a").nth(number).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(shown[number])
        page.get_by_role("link", name="Delete…").click()
        expect(page.get_by_role("heading", level=1)).to_have_text(f"Delete {shown[number]}?")


def test_deletion_asks_for_the_token_once_and_whether_it_is_meant(visit: Visit, api: Api) -> None:
    page = visit.page
    for name in (b"gone/a<b>", b"gone/b\xff\n"):
        save(api, name, b"x" * 1000)
    page.goto("/snapshots?prefix=gone/")
    page.get_by_role("link", name="Delete gone/a<b>").click()
    expect(page.get_by_role("button", name="Delete it")).to_have_count(0)
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("main").get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_have_text("That is not the token.")
    visit.forgive()
    visit.log_in()
    assert page.url.endswith("/delete/gone/a%3Cb%3E")
    page.get_by_role("link", name="Keep it").click()
    page.get_by_role("link", name="Delete…").click()
    page.get_by_role("button", name="Delete it").click()
    expect(page.get_by_role("status")).to_have_text(
        "gone/a<b> is deleted. The next collection frees its space."
    )
    page.goto("/snapshots?prefix=gone/")
    expect(page.get_by_role("status")).to_have_count(0)
    assert cells(visit, "tbody th a") == ["gone/b\\udcff\\n"]
    page.get_by_role("link", name="Delete gone/b").click()
    page.get_by_role("button", name="Delete it").click()
    assert os.listdir(api.mount.dir / "gone") == []
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("link", name="Log in")).to_be_visible()


def test_labels_are_added_changed_and_removed(visit: Visit, api: Api) -> None:
    page = visit.page
    save(api, "labelled/<b>", b"x" * 1000)
    page.goto("/snapshots?prefix=labelled/")
    page.locator("tbody th a").click()
    page.get_by_role("link", name="Change…").click()
    visit.log_in()
    expect(page.get_by_text("It has none.")).to_be_visible()
    page.get_by_label("Name").fill("<i>pro ject")
    page.get_by_label("Value (may be empty)").fill("a  b")
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_role("status")).to_have_text("<i>pro ject is set.")
    page.get_by_label("<i>pro ject", exact=True).fill("other")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_have_text("<i>pro ject is set.")
    assert api.get("/v1/snapshots/labelled/%3Cb%3E")["labels"] == {"<i>pro ject": "other"}
    page.get_by_role("button", name="Remove <i>pro ject").click()
    expect(page.get_by_text("It has none.")).to_be_visible()
    page.get_by_role("button", name="Log out").click()


def test_names_that_differ_in_spaces_look_different(visit: Visit, api: Api) -> None:
    for name in ("spaces/a b", "spaces/a  b", "spaces/ a b", "spaces/a b "):
        save(api, name, b"x")
    visit.page.goto("/snapshots?prefix=spaces/")
    texts = visit.page.locator("tbody th a").evaluate_all("all => all.map(each => each.innerText)")
    assert set(texts) == {"spaces/a b", "spaces/a  b", "spaces/ a b", "spaces/a b "}


def test_a_collection_is_looked_at_and_started(visit: Visit, api: Api) -> None:
    page = visit.page
    save(api, "dead", os.urandom(500_000))
    os.unlink(api.mount.dir / "dead")
    page.goto("/gc")
    page.get_by_role("link", name="Collect…").click()
    visit.log_in()
    page.get_by_role("button", name="Only say").click()
    expect(page.get_by_role("status")).to_contain_text("would free")
    page.get_by_role("link", name="Collect…").click()
    page.get_by_role("button", name="Collect now").click()
    expect(page.get_by_role("status")).to_have_text("The collection has begun.")
    while page.get_by_role("link", name="Look again").count():
        page.get_by_role("link", name="Look again").click()
    page.goto("/gc")
    expect(page.get_by_text("Packs deleted")).to_be_visible()
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Log").click()
    expect(page.locator("table.log")).to_contain_text("collection:")
    page.get_by_label("Least severity").select_option("error")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("Nothing of that severity")).to_be_visible()


@pytest.mark.parametrize("path", ["/nothing", "/snapshot/none.bin", "/tree?of=none", "/static/none"])
def test_what_is_not_there_has_a_page_that_says_so(visit: Visit, path: str) -> None:
    response = visit.page.goto(path)
    assert response is not None
    assert response.status == 404
    expect(visit.page.get_by_role("heading", level=1)).to_have_text("There is no such thing here")
    visit.forgive()
    visit.page.get_by_role("main").get_by_role("link", name="Overview").click()
    expect(visit.page.get_by_role("heading", level=1)).to_have_text("Overview")


def test_the_keyboard_reaches_everything(chromium: Browser, api: Api) -> None:
    visit = Visit(chromium, api.url)
    page = visit.page
    page.goto("/delete/notes.txt")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    visit.log_in()
    seen = []
    for _ in range(14):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.textContent.trim()"))
        if seen[-1] == "Delete it":
            break
    assert seen[-1] == "Delete it"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.goto("/tree")
    inside = "document.activeElement.closest('svg.icicle') !== null"
    assert any(page.keyboard.press("Tab") is None and page.evaluate(inside) for _ in range(14))
    visit.close()


def test_pages_can_be_read_by_everybody(chromium: Browser, api: Api) -> None:
    """Labels, headings in order, texts for pictures, contrast of 4.5 and more, and no page too wide."""
    visit = Visit(chromium, api.url)
    checks = Path(__file__).with_name("checks.js").read_text()
    for path in PAGES:
        visit.page.goto(path)
        for scheme, width in itertools.product(("light", "dark"), (1280, 390)):
            visit.page.emulate_media(color_scheme=scheme)
            visit.page.set_viewport_size({"width": width, "height": 800})
            assert visit.page.evaluate(checks) == [], (path, scheme, width)
    visit.close()
