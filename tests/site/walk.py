"""Opens every page of a site in a browser, at every width, and checks every link to an anchor.

A complaint is a sentence that names the page. It is a fault if a page sends a request to another host, has a
link to something that is missing, writes to the console, or is wider than its window.
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
    """The result so far: the ids of each page, the links to check, and the complaints."""

    origin: str
    ids: dict[str, set[str]] = field(default_factory=dict)
    links: list[tuple[str, str, str]] = field(default_factory=list)
    files: set[str] = field(default_factory=set)
    complaints: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        """Adds complaints about console messages, errors, requests and responses of the page."""
        page.on("console", lambda message: self._check_message(page, message))
        page.on("pageerror", lambda error: self.complaints.append(f"{page.url}: {error}"))
        page.on("request", lambda request: self._check_request(page, request))
        page.on("response", lambda response: self._check_response(page, response))

    def _check_message(self, page: Page, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{page.url}: the console says {message.text}")

    def _check_request(self, page: Page, request: Request) -> None:
        if not request.url.startswith((self.origin, "data:", "blob:")):
            self.complaints.append(f"{page.url}: asks another host for {request.url}")

    def _check_response(self, page: Page, response: Response) -> None:
        if response.status >= BAD_REQUEST:
            self.complaints.append(f"{page.url}: {response.url} is {response.status}")

    def _check_width(self, page: Page, url: str, width: int) -> None:
        """Waits until the page fits the window, which may take a moment after a change of its size."""
        try:
            page.wait_for_function(f"({WIDER})() <= 0", timeout=SETTLE_MS)
        except PlaywrightTimeout:
            wider = page.evaluate(WIDER)
            self.complaints.append(f"{url}: {wider} pixels wider than a window of {width}")

    def visit(self, page: Page, url: str) -> Iterator[str]:
        """Opens a page at every width, and yields the addresses of this site that it links to."""
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            if width == WIDTHS[0]:
                page.goto(url)
            self._check_width(page, url, width)
        self.ids[url] = set(page.locator("[id]").evaluate_all(IDS))
        for link in page.locator("a[href]").evaluate_all(LINKS):
            target, fragment = urldefrag(link)
            if target.startswith(self.origin):
                self.links.append((url, target, unquote(fragment)))
                yield target


def walk(browser: Browser, origin: str, start: str = "index.html") -> Walk:
    """Visits every page that can be reached; returns the complaints."""
    result = Walk(origin)
    page = browser.new_page()
    result.watch(page)
    waiting = [f"{origin}/{start}"]
    while waiting:
        url = waiting.pop()
        if url in result.ids or url in result.files:
            continue
        if is_page(url):
            waiting += result.visit(page, url)
        else:
            result.files.add(url)
            if page.request.get(url).status >= BAD_REQUEST:
                result.complaints.append(f"{url}: is linked to and cannot be read")
    page.close()
    result.complaints += [
        f"{source}: links to {target}#{fragment}, which is not there"
        for source, target, fragment in result.links
        if fragment and target in result.ids and fragment not in result.ids[target]
    ]
    return result


def is_page(url: str) -> bool:
    path = urlsplit(url).path
    return path.endswith((".html", "/")) or not path
