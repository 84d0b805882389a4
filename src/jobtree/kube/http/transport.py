"""How requests reach a server: one shape, two ways of waiting.

``Transport`` blocks (the command line, the leader's thread), ``AsyncTransport`` does not (the manager). Both
send a ``Request`` and give back the whole body, or, for watches and logs, the parts of a body as they come.
Both raise ``StatusError`` for a refusal and ``UnreachableError`` where no answer came, and both try once more
after a 401 with a new grant, if there is one.
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
        """The parts of the body, after an empty one as soon as the server has agreed to send them.

        Silence longer than ``silence_seconds`` is an UnreachableError; None waits for ever.
        """
        ...

    def close(self) -> None: ...


class AsyncTransport(Protocol):
    async def send(self, request: Request) -> bytes: ...

    def stream(self, request: Request, silence_seconds: float | None) -> AsyncGenerator[bytes, None]: ...

    async def close(self) -> None: ...


def headers_for(request: Request) -> list[tuple[str, str]]:
    """Uncompressed answers: a cluster's network is faster than unpacking them."""
    headers = [("Accept", "application/json"), ("Accept-Encoding", "identity"), ("User-Agent", USER_AGENT)]
    return [*headers, ("Content-Type", request.content_type)] if request.body is not None else headers


def unreachable(endpoint: Endpoint, why: object, *, may_have_happened: bool) -> UnreachableError:
    reason = str(why) or type(why).__name__
    return UnreachableError(f"{endpoint.url}: {reason}", may_have_happened=may_have_happened)
