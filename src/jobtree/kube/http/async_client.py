"""Sends requests to an API server from the event loop, many at a time."""

from typing import Any, TypeVar

from jobtree.kube.http.api_errors import decode_response
from jobtree.kube.http.api_requests import EVERYTHING, Request, Selector
from jobtree.kube.http.api_resources import Resource
from jobtree.kube.http.blocking_client import list_item_document
from jobtree.kube.http.list_pages import RequestSequence, list_items
from jobtree.kube.http.transport import AsyncTransport

T = TypeVar("T")


class AsyncClient:
    def __init__(self, transport: AsyncTransport) -> None:
        self.transport = transport

    async def ask(self, request: Request) -> dict[str, Any]:
        """Returns the object in the response."""
        return decode_response(await self.transport.send(request), dict[str, Any])

    async def list(self, resource: Resource, selector: Selector = EVERYTHING) -> list[dict[str, Any]]:
        """Returns all objects, as documents with apiVersion and kind."""
        items = await send_all_async(self.transport, list_items(resource, selector))
        return [list_item_document(resource, item) for item in items]


async def send_all_async(transport: AsyncTransport, requests: RequestSequence[T]) -> T:
    """Sends all requests of a sequence, which receives each response or error. Returns its result."""
    try:
        request = next(requests)
        while True:
            try:
                body = await transport.send(request)
            except Exception as error:  # noqa: BLE001  the sequence handles it or raises it again
                request = requests.throw(error)
            else:
                request = requests.send(body)
    except StopIteration as end:
        result: T = end.value
        return result
