"""Asking an API server from the event loop: the same questions as ``client``, many at a time."""

from typing import Any, TypeVar

from jobtree.kube.http.api_errors import read_answer
from jobtree.kube.http.api_requests import EVERYTHING, Request, Selector
from jobtree.kube.http.api_resources import Resource
from jobtree.kube.http.blocking_client import list_item_document
from jobtree.kube.http.list_pages import Conversation, list_items
from jobtree.kube.http.transport import AsyncTransport

T = TypeVar("T")


class AsyncClient:
    def __init__(self, transport: AsyncTransport) -> None:
        self.transport = transport

    async def ask(self, request: Request) -> dict[str, Any]:
        """The object that the server answers with."""
        return read_answer(await self.transport.send(request), dict[str, Any])

    async def list(self, resource: Resource, selector: Selector = EVERYTHING) -> list[dict[str, Any]]:
        """All objects, as documents with apiVersion and kind."""
        items = await converse_async(self.transport, list_items(resource, selector))
        return [list_item_document(resource, item) for item in items]


async def converse_async(transport: AsyncTransport, conversation: Conversation[T]) -> T:
    """Hold a conversation to its end; refusals are thrown into it."""
    try:
        request = next(conversation)
        while True:
            try:
                body = await transport.send(request)
            except Exception as refused:  # noqa: BLE001  the conversation judges, and raises what it cannot mend
                request = conversation.throw(refused)
            else:
                request = conversation.send(body)
    except StopIteration as done:
        result: T = done.value
        return result
