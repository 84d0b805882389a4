"""An API server that keeps documents by path: enough for a Secret and the webhook configurations."""

from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec

from jobtree.kube.http.api_errors import StatusError
from jobtree.kube.http.api_requests import Request

Document = dict[str, Any]


class FakeServer:
    """Calls ``before_write`` before every write, so that a test can make another writer faster."""

    def __init__(self) -> None:
        self.objects: dict[str, Document] = {}
        self.writes: list[str] = []
        self.before_write: Callable[[Request], None] = lambda _: None
        self._version = 0

    async def send(self, request: Request) -> bytes:
        if request.writes:
            self.before_write(request)
            self.writes.append(f"{request.method} {request.target}")
        answer = getattr(self, f"_{request.method.lower()}")(request.target, request.body)
        return msgspec.json.encode(answer)

    async def stream(self, request: Request, silence_seconds: float | None) -> AsyncGenerator[bytes, None]:
        del silence_seconds
        yield await self.send(request)

    async def close(self) -> None:
        return

    def put(self, path: str, document: Document) -> Document:
        self._version += 1
        metadata = {**document.get("metadata", {}), "resourceVersion": str(self._version)}
        self.objects[path] = {**document, "metadata": metadata}
        return self.objects[path]

    def _get(self, path: str, _: bytes | None) -> Document:
        if path not in self.objects:
            raise StatusError(404, "NotFound", f"{path} not found")
        return self.objects[path]

    def _post(self, path: str, body: bytes | None) -> Document:
        document: Document = msgspec.json.decode(body or b"")
        path = f"{path}/{document['metadata']['name']}"
        if path in self.objects:
            raise StatusError(409, "AlreadyExists", f"{path} exists")
        return self.put(path, document)

    def _put(self, path: str, body: bytes | None) -> Document:
        document: Document = msgspec.json.decode(body or b"")
        self._check(path, document)
        return self.put(path, document)

    def _patch(self, path: str, body: bytes | None) -> Document:
        patch: Document = msgspec.json.decode(body or b"")
        self._check(path, patch)
        return self.put(path, {**self.objects[path], **patch, "metadata": self.objects[path]["metadata"]})

    def _check(self, path: str, document: Document) -> None:
        version = self._get(path, None)["metadata"]["resourceVersion"]
        if document["metadata"]["resourceVersion"] != version:
            raise StatusError(409, "Conflict", f"{path} has changed")
