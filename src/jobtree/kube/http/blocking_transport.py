"""The blocking transport, on the standard library alone: it loads in a few milliseconds.

One connection is kept open and used again; a stream has one of its own. A server may close a kept connection
at any time: a request that read nothing back on such a one is sent again on a new connection if that does no
harm (reading).
"""

import re
import socket
import ssl
import threading
from collections.abc import Callable, Generator
from http.client import HTTPConnection, HTTPException, HTTPResponse
from urllib.parse import urlsplit

from jobtree.kube.auth.cluster_access import Access, Credentials, Endpoint
from jobtree.kube.http.api_errors import UNAUTHORIZED, Response
from jobtree.kube.http.api_requests import Request
from jobtree.kube.http.transport import CONNECT_SECONDS, REQUEST_SECONDS, headers_for, unreachable

CHUNK_BYTES = 1 << 16
WARNING = re.compile(r'\d{3} \S+ "(?P<text>(?:[^"\\]|\\.)*)"')  # as HTTP writes it


def _unheard(_: str) -> None:
    """For those who do not want to be warned."""


class PlainTransport:
    """Safe to use from several threads, which then take turns.

    ``warned`` is told what a server wants people to know beside its answer, each thing once.
    """

    def __init__(
        self,
        access: Access,
        request_seconds: float = REQUEST_SECONDS,
        warned: Callable[[str], None] = _unheard,
    ) -> None:
        self._access = access
        self._seconds = request_seconds
        self._lock = threading.Lock()
        self._kept: _Connection | None = None
        self._sent = False
        self._warned = warned
        self._told: set[str] = set()

    def send(self, request: Request) -> bytes:
        with self._lock:
            grant = self._access.grant()
            answer = self._exchange(request, grant)
            if answer.code == UNAUTHORIZED and self._access.renew(grant):
                answer = self._exchange(request, self._access.grant())
            for warning in answer.warnings:
                if warning not in self._told:
                    self._told.add(warning)
                    self._warned(warning)
        return answer.accepted()

    def stream(self, request: Request, silence_seconds: float | None) -> Generator[bytes, None, None]:
        grant = self._access.grant()
        connection, response = self._open(request, grant, silence_seconds)
        if response.status == UNAUTHORIZED and self._access.renew(grant):
            connection.close()
            connection, response = self._open(request, self._access.grant(), silence_seconds)
        try:
            if response.status >= 300:  # noqa: PLR2004  as HTTP counts
                _answer(response).accepted()
            yield b""  # the server has agreed
            while chunk := response.read1(CHUNK_BYTES):
                yield chunk
        except (OSError, HTTPException) as broken:
            raise unreachable(self._access.endpoint, broken, may_have_happened=False) from None
        finally:
            connection.close()

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _open(
        self, request: Request, grant: Credentials, silence_seconds: float | None
    ) -> tuple["_Connection", HTTPResponse]:
        connection = _Connection(self._access.endpoint, grant.tls, silence_seconds)
        try:
            return connection, connection.ask(request, grant)
        except (OSError, HTTPException) as broken:
            connection.close()
            raise unreachable(self._access.endpoint, broken, may_have_happened=False) from None

    def _exchange(self, request: Request, grant: Credentials) -> Response:
        if self._kept is not None and self._kept.tls is not grant.tls:
            self._drop()
        used = self._kept is not None
        try:
            return self._ask(request, grant)
        except (OSError, HTTPException) as broken:
            closed = used and isinstance(broken, (ConnectionError, HTTPException))
            if not closed or request.writes:
                raise unreachable(self._access.endpoint, broken, may_have_happened=self._sent) from None
        return self._exchange(request, grant)

    def _ask(self, request: Request, grant: Credentials) -> Response:
        """Keeps the connection if all went well."""
        connection, self._kept = self._kept, None
        self._sent = False
        if connection is None:
            connection = _Connection(self._access.endpoint, grant.tls, self._seconds)
        try:
            connection.ready()
            self._sent = True
            response = connection.ask(request, grant)
            answer = _answer(response)
        except BaseException:
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            self._kept = connection
        return answer

    def _drop(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None


def _answer(response: HTTPResponse) -> Response:
    headers = response.headers.get_all("Warning") or ()
    warnings = [re.sub(r"\\(.)", r"\1", one["text"]) for text in headers for one in WARNING.finditer(text)]
    return Response(response.status, response.read(), response.getheader("Retry-After"), tuple(warnings))


class _Connection(HTTPConnection):
    """To an endpoint, through its proxy if it has one, with TLS if it has that."""

    def __init__(self, endpoint: Endpoint, tls: ssl.SSLContext | None, seconds: float | None) -> None:
        proxy = urlsplit(endpoint.proxy)
        connect_seconds = min(CONNECT_SECONDS, seconds or CONNECT_SECONDS)
        super().__init__(
            proxy.hostname or endpoint.host, proxy.port or endpoint.port, timeout=connect_seconds
        )
        if proxy.hostname:
            self.set_tunnel(endpoint.host, endpoint.port)
        self.tls = tls
        self._endpoint = endpoint
        self._seconds = seconds

    def connect(self) -> None:
        super().connect()
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls is not None:
            name = self._endpoint.server_name or self._endpoint.host
            self.sock = self.tls.wrap_socket(self.sock, server_hostname=name)
        self.sock.settimeout(self._seconds)

    def ready(self) -> None:
        """Connects, unless that is done: until then, nothing has been sent."""
        if self.sock is None:
            self.connect()

    def ask(self, request: Request, grant: Credentials) -> HTTPResponse:
        self.putrequest(request.method, self._endpoint.prefix + request.target, skip_accept_encoding=True)
        for name, value in (*headers_for(request), *grant.headers):
            self.putheader(name, value)
        if request.body is not None:
            self.putheader("Content-Length", str(len(request.body)))
        if request.guard is not None:
            request.guard()
        self.endheaders(request.body)
        return self.getresponse()
