"""Lists objects page by page, as a generator that yields requests and receives the response bodies.

The generator sends nothing itself, so the blocking and the asynchronous client share it. The pages of a list
are one consistent snapshot. If the server forgets it half-way (410), the list begins again from the first
page, and after a few such attempts it is requested without pages.
"""

from collections.abc import Callable, Generator
from typing import TypeAlias, TypeVar

import msgspec

from jobtree.kube.http.api_errors import StatusError, decode_response
from jobtree.kube.http.api_requests import Request, Selector, list_page
from jobtree.kube.http.api_resources import Resource

T = TypeVar("T")
RequestSequence: TypeAlias = Generator[Request, bytes, T]

PAGE_LIMIT = 500
PAGED_ATTEMPTS = 3


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


def pages(
    resource: Resource,
    selector: Selector,
    begin: Callable[[], None],
    add: Callable[[list[msgspec.Raw]], None],
    limit: int = PAGE_LIMIT,
) -> RequestSequence[str]:
    """Calls ``begin`` before each attempt and ``add`` with the items of each page.

    Returns the version of the list, from which a watch can continue.
    """
    for attempt in range(PAGED_ATTEMPTS + 1):
        version = yield from _list_once(
            resource, selector, begin, add, limit if attempt < PAGED_ATTEMPTS else 0
        )
        if version:
            return version
    raise AssertionError("a list without pages is never forgotten half-way")


def _list_once(
    resource: Resource,
    selector: Selector,
    begin: Callable[[], None],
    add: Callable[[list[msgspec.Raw]], None],
    limit: int,
) -> RequestSequence[str]:
    """Returns the version of the list, or an empty string if the server forgot it half-way."""
    begin()
    token = ""
    while True:
        try:
            body = yield list_page(resource, selector, limit, token)
        except StatusError as error:
            if token and error.is_gone:
                return ""
            raise
        page = decode_response(body, _Page)
        add(page.items or [])
        token = page.metadata.continue_
        if not token:
            return page.metadata.resource_version


def list_items(resource: Resource, selector: Selector) -> RequestSequence[list[msgspec.Raw]]:
    """Returns all items of a list, not yet decoded."""
    items: list[msgspec.Raw] = []
    yield from pages(resource, selector, items.clear, items.extend)
    return items
