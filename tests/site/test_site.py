"""The documentation in a browser, on a narrow and on a wide screen."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, expect

from pages.hooks import REFERENCE
from tests.site.conftest import REPOSITORY, served
from tests.site.walk import walk


def test_every_page_is_reached_and_has_no_fault(site: str, browser: Browser) -> None:
    result = walk(browser, site)
    assert result.complaints == []
    written = {
        page.relative_to(REPOSITORY / "docs").as_posix() for page in (REPOSITORY / "docs").rglob("*.md")
    }
    expected = {page_of(source) for source in (written | REFERENCE.keys())}
    reached = {urlsplit(url).path.removeprefix("/") for url in result.ids}
    assert expected - reached == set()
    assert any(urlsplit(url).path.endswith("resnet-small.yaml") for url in result.files)


def page_of(source: str) -> str:
    """Returns the page that a Markdown file becomes; a readme is the index of its folder."""
    return source.removesuffix(".md").replace("README", "index") + ".html"


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("demoted", "reference/events.html"),
        ("fabric.domain", "operator-guide/admin-setup.html"),
        ("maxBorrowGPUs", "reference/api.html"),
        ("lottery", "concepts/lottery.html"),
    ],
)
def test_search_finds_the_page(site: str, browser: Browser, words: str, page: str) -> None:
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    tab.goto(f"{site}/index.html")
    tab.locator("input.md-search__input").click()
    tab.keyboard.type(words)
    expect(tab.locator(f'.md-search-result__link[href*="{page}"]').first).to_be_visible()
    tab.close()


@pytest.mark.parametrize(("preference", "scheme"), [("light", "default"), ("dark", "slate")])
def test_site_is_light_or_dark_as_the_browser_prefers(
    site: str, browser: Browser, preference: str, scheme: str
) -> None:
    context = browser.new_context(color_scheme="dark" if preference == "dark" else "light")
    tab = context.new_page()
    tab.goto(f"{site}/concepts/overview.html")
    assert tab.locator("body").get_attribute("data-md-color-scheme") == scheme
    assert tab.locator('img[src$="architecture.svg"]').evaluate("image => image.naturalWidth") > 0
    context.close()


FAULTY = """<!doctype html><title>x</title><link rel="icon" href="data:,">
<a href="other.html#nowhere">an anchor</a> <a href="gone.html">a page</a> <a href="gone.yaml">a file</a>
<div style="width: 900px">wide</div><script src="http://localhost:9/x.js"></script>
<script>console.error("an error")</script>"""


def test_walk_reports_every_kind_of_fault(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(FAULTY)
    (tmp_path / "other.html").write_text('<!doctype html><title>y</title><link rel="icon" href="data:,">')
    with served(tmp_path) as address:
        complaints = "\n".join(walk(browser, address).complaints)
    for expected in (
        "other.html#nowhere, which is not there",
        "gone.html is 404",
        "gone.yaml: is linked to and cannot be read",
        "pixels wider than a window of 400",
        "asks another host for http://localhost:9/x.js",
        "the console says an error",
    ):
        assert expected in complaints
