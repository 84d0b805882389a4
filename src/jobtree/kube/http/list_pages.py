"""Lists, page by page, as a conversation: a generator that yields requests and is sent their answers.

It does not know how requests are sent, so both clients hold the same conversation. A list is one consistent
picture: where the server forgets it half-way (410), everything is asked again from the first page, and after
a few such attempts all at once.
"""

from collections.abc import Callable, Generator
from typing import TypeAlias, TypeVar

import msgspec

from jobtree.kube.http.api_errors import StatusError, read_answer
from jobtree.kube.http.api_requests import Request, Selector, list_page
from jobtree.kube.http.api_resources import Resource

T = TypeVar("T")
Conversation: TypeAlias = Generator[Request, bytes, T]

PAGE = 500
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
    take: Callable[[list[msgspec.Raw]], None],
    limit: int = PAGE,
) -> Conversation[str]:
    """Calls ``begin`` at the first page (each time there is one) and ``take`` with every page's items.

    Returns the version of the list, from which a watch can go on.
    """
    for attempt in range(PAGED_ATTEMPTS + 1):
        version = yield from _one_pass(
            resource, selector, begin, take, limit if attempt < PAGED_ATTEMPTS else 0
        )
        if version:
            return version
    raise AssertionError("a list without pages has no half-way")


def _one_pass(
    resource: Resource,
    selector: Selector,
    begin: Callable[[], None],
    take: Callable[[list[msgspec.Raw]], None],
    limit: int,
) -> Conversation[str]:
    """The version of the list, or nothing if the server forgot it half-way."""
    begin()
    token = ""
    while True:
        try:
            body = yield list_page(resource, selector, limit, token)
        except StatusError as refused:
            if token and refused.is_gone:
                return ""
            raise
        page = read_answer(body, _Page)
        take(page.items or [])
        token = page.metadata.continue_
        if not token:
            return page.metadata.resource_version


def list_items(resource: Resource, selector: Selector) -> Conversation[list[msgspec.Raw]]:
    """All items of a list, still as bytes."""
    items: list[msgspec.Raw] = []
    yield from pages(resource, selector, items.clear, items.extend)
    return items
