"""Asking an API server, waiting for the answer: for the command line and for threads.

``requests`` says what can be asked, ``Client`` asks it::

    client = Client(PlainTransport(find_access()))
    client.ask(requests.get(RUNS, "trainer", "rai-sys"))
    client.list(NODES)
"""

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from jobtree.kube.http.api_errors import read_answer
from jobtree.kube.http.api_requests import EVERYTHING, Request, Selector
from jobtree.kube.http.api_resources import Resource
from jobtree.kube.http.line_cutter import LineCutter
from jobtree.kube.http.list_pages import Conversation, list_items
from jobtree.kube.http.transport import Transport

T = TypeVar("T")


class Client:
    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    def ask(self, request: Request) -> dict[str, Any]:
        """The object that the server answers with."""
        return read_answer(self.transport.send(request), dict[str, Any])

    def list(self, resource: Resource, selector: Selector = EVERYTHING) -> list[dict[str, Any]]:
        """All objects, as documents with apiVersion and kind."""
        return [
            list_item_document(resource, item)
            for item in converse(self.transport, list_items(resource, selector))
        ]

    def lines(self, request: Request) -> Iterator[str]:
        """The lines of a log as they come, for as long as the server sends them."""
        cutter = LineCutter()
        for chunk in self.transport.stream(request, None):
            yield from (line.decode(errors="replace") for line in cutter.feed(chunk))
        if rest := cutter.rest():
            yield rest.decode(errors="replace")


def list_item_document(resource: Resource, item: msgspec.Raw) -> dict[str, Any]:
    """An item of a list as an object of its own: servers leave apiVersion and kind out of items."""
    body = msgspec.json.decode(item, type=dict[str, Any])
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}


def converse(transport: Transport, conversation: Conversation[T]) -> T:
    """Hold a conversation to its end; refusals are thrown into it."""
    try:
        request = next(conversation)
        while True:
            try:
                body = transport.send(request)
            except Exception as refused:  # noqa: BLE001  the conversation judges, and raises what it cannot mend
                request = conversation.throw(refused)
            else:
                request = conversation.send(body)
    except StopIteration as done:
        result: T = done.value
        return result
