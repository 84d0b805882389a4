"""The interface of both transports, which send requests to an API server.

``Transport`` blocks (the command line, the thread of the leader election), ``AsyncTransport`` does not (the
manager). Both send a ``Request`` and return the whole body, or, for watches and logs, the parts of the body
as they arrive. Both raise ``StatusError`` for a refusal and ``UnreachableError`` if there is no response.
After a 401 both try once more with new credentials, if there can be any.
"""

from collections.abc import AsyncGenerator, Generator
from typing import Protocol

from jobtree.kube.auth.cluster_access import Endpoint
from jobtree.kube.http.api_errors import UnreachableError
from jobtree.kube.http.api_requests import Request

CONNECT_SECONDS = 10.0
REQUEST_SECONDS = 60.0
USER_AGENT = "jobtree"


class Transport(Protocol):
    def send(self, request: Request) -> bytes: ...

    def stream(self, request: Request, silence_seconds: float | None) -> Generator[bytes, None, None]:
        """Yields an empty part as soon as the server has accepted the request, then the parts of the body.

        Raises UnreachableError after a silence of ``silence_seconds``; with None it waits for ever.
        """
        ...

    def close(self) -> None: ...


class AsyncTransport(Protocol):
    async def send(self, request: Request) -> bytes: ...

    def stream(self, request: Request, silence_seconds: float | None) -> AsyncGenerator[bytes, None]: ...

    async def close(self) -> None: ...


def headers_for(request: Request) -> list[tuple[str, str]]:
    """Returns the headers of a request, which ask for uncompressed responses: these arrive sooner."""
    headers = [("Accept", "application/json"), ("Accept-Encoding", "identity"), ("User-Agent", USER_AGENT)]
    return [*headers, ("Content-Type", request.content_type)] if request.body is not None else headers


def unreachable(endpoint: Endpoint, error: object, *, may_have_happened: bool) -> UnreachableError:
    reason = str(error) or type(error).__name__
    return UnreachableError(f"{endpoint.url}: {reason}", may_have_happened=may_have_happened)
