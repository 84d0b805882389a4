"""Sends requests to an API server and waits for the responses, for the command line and for threads.

``api_requests`` builds requests, ``Client`` sends them::

    client = Client(PlainTransport(find_access()))
    client.ask(api_requests.get(RUNS, "trainer", "rai-sys"))
    client.list(NODES)
"""

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from jobtree.kube.http.api_errors import decode_response
from jobtree.kube.http.api_requests import EVERYTHING, Request, Selector
from jobtree.kube.http.api_resources import Resource
from jobtree.kube.http.line_cutter import LineCutter
from jobtree.kube.http.list_pages import RequestSequence, list_items
from jobtree.kube.http.transport import Transport

T = TypeVar("T")


class Client:
    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    def ask(self, request: Request) -> dict[str, Any]:
        """Returns the object in the response."""
        return decode_response(self.transport.send(request), dict[str, Any])

    def list(self, resource: Resource, selector: Selector = EVERYTHING) -> list[dict[str, Any]]:
        """Returns all objects, as documents with apiVersion and kind."""
        return [
            list_item_document(resource, item)
            for item in send_all(self.transport, list_items(resource, selector))
        ]

    def lines(self, request: Request) -> Iterator[str]:
        """Yields the lines of a log as they come, until the server ends it."""
        cutter = LineCutter()
        for chunk in self.transport.stream(request, None):
            yield from (line.decode(errors="replace") for line in cutter.feed(chunk))
        if rest := cutter.rest():
            yield rest.decode(errors="replace")


def list_item_document(resource: Resource, item: msgspec.Raw) -> dict[str, Any]:
    """Returns an item of a list as a document; servers omit apiVersion and kind in items."""
    body = msgspec.json.decode(item, type=dict[str, Any])
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}


def send_all(transport: Transport, requests: RequestSequence[T]) -> T:
    """Sends all requests of a sequence, which receives each response or error. Returns its result."""
    try:
        request = next(requests)
        while True:
            try:
                body = transport.send(request)
            except Exception as error:  # noqa: BLE001  the sequence handles it or raises it again
                request = requests.throw(error)
            else:
                request = requests.send(body)
    except StopIteration as end:
        result: T = end.value
        return result
