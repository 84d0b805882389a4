"""Walks through a site in a browser: every page, at every width, and every link to a place in it.

A complaint is a sentence that names the page. Nothing may be asked of another host, nothing may be missing,
the console stays silent, and no page is wider than its window.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote, urldefrag, urlsplit

from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Page,
    Request,
    Response,
    TimeoutError as PlaywrightTimeout,
)

WIDTHS = (400, 1280)
LINKS = "nodes => nodes.map(node => node.href)"
IDS = "nodes => nodes.map(node => node.id)"
WIDER = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
BAD_REQUEST = 400
SETTLE_MS = 3000


@dataclass
class Walk:
    """What was seen so far: the ids of each page, the links to check, and what is wrong."""

    origin: str
    ids: dict[str, set[str]] = field(default_factory=dict)
    links: list[tuple[str, str, str]] = field(default_factory=list)
    files: set[str] = field(default_factory=set)
    complaints: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        """Complain of whatever the page does wrong by itself."""
        page.on("console", lambda message: self._said(page, message))
        page.on("pageerror", lambda error: self.complaints.append(f"{page.url}: {error}"))
        page.on("request", lambda request: self._asked(page, request))
        page.on("response", lambda response: self._answered(page, response))

    def _said(self, page: Page, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{page.url}: the console says {message.text}")

    def _asked(self, page: Page, request: Request) -> None:
        if not request.url.startswith((self.origin, "data:", "blob:")):
            self.complaints.append(f"{page.url}: asks another host for {request.url}")

    def _answered(self, page: Page, response: Response) -> None:
        if response.status >= BAD_REQUEST:
            self.complaints.append(f"{page.url}: {response.url} is {response.status}")

    def _fits(self, page: Page, url: str, width: int) -> None:
        """A page that was just resized may take a moment to fit."""
        try:
            page.wait_for_function(f"({WIDER})() <= 0", timeout=SETTLE_MS)
        except PlaywrightTimeout:
            wider = page.evaluate(WIDER)
            self.complaints.append(f"{url}: {wider} pixels wider than a window of {width}")

    def look(self, page: Page, url: str) -> Iterator[str]:
        """Opens a page at every width; the addresses of this site that it links to."""
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            if width == WIDTHS[0]:
                page.goto(url)
            self._fits(page, url, width)
        self.ids[url] = set(page.locator("[id]").evaluate_all(IDS))
        for link in page.locator("a[href]").evaluate_all(LINKS):
            target, fragment = urldefrag(link)
            if target.startswith(self.origin):
                self.links.append((url, target, unquote(fragment)))
                yield target


def walk(browser: Browser, origin: str, start: str = "index.html") -> Walk:
    """Every page that can be reached, and all complaints about them."""
    seen = Walk(origin)
    page = browser.new_page()
    seen.watch(page)
    waiting = [f"{origin}/{start}"]
    while waiting:
        url = waiting.pop()
        if url in seen.ids or url in seen.files:
            continue
        if is_page(url):
            waiting += seen.look(page, url)
        else:
            seen.files.add(url)
            if page.request.get(url).status >= BAD_REQUEST:
                seen.complaints.append(f"{url}: is linked to and cannot be read")
    page.close()
    seen.complaints += [
        f"{source}: links to {target}#{fragment}, which is not there"
        for source, target, fragment in seen.links
        if fragment and target in seen.ids and fragment not in seen.ids[target]
    ]
    return seen


def is_page(url: str) -> bool:
    path = urlsplit(url).path
    return path.endswith((".html", "/")) or not path
