"""The blocking transport. It uses the standard library only, so that it loads in a few milliseconds.

One connection is kept open and used again; a stream has a connection of its own. A server may close a kept
connection at any time. A read that got no response on a kept connection is sent again on a new one.
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
WARNING = re.compile(r'\d{3} \S+ "(?P<text>(?:[^"\\]|\\.)*)"')  # the syntax of a Warning header


def _ignore_warning(_: str) -> None:
    """Does nothing."""


class PlainTransport:
    """A transport for several threads, which wait for each other.

    ``on_warning`` is called with each warning of the server, once per text.
    """

    def __init__(
        self,
        access: Access,
        request_seconds: float = REQUEST_SECONDS,
        on_warning: Callable[[str], None] = _ignore_warning,
    ) -> None:
        self._access = access
        self._seconds = request_seconds
        self._lock = threading.Lock()
        self._kept: _Connection | None = None
        self._sent = False
        self._on_warning = on_warning
        self._reported_warnings: set[str] = set()

    def send(self, request: Request) -> bytes:
        with self._lock:
            credentials = self._access.credentials()
            response = self._exchange(request, credentials)
            if response.code == UNAUTHORIZED and self._access.renew(credentials):
                response = self._exchange(request, self._access.credentials())
            for warning in response.warnings:
                if warning not in self._reported_warnings:
                    self._reported_warnings.add(warning)
                    self._on_warning(warning)
        return response.accepted()

    def stream(self, request: Request, silence_seconds: float | None) -> Generator[bytes, None, None]:
        credentials = self._access.credentials()
        connection, response = self._open(request, credentials, silence_seconds)
        if response.status == UNAUTHORIZED and self._access.renew(credentials):
            connection.close()
            connection, response = self._open(request, self._access.credentials(), silence_seconds)
        try:
            if response.status >= 300:  # noqa: PLR2004  the status codes of HTTP
                _read_response(response).accepted()
            yield b""  # the server has accepted the request
            while chunk := response.read1(CHUNK_BYTES):
                yield chunk
        except (OSError, HTTPException) as error:
            raise unreachable(self._access.endpoint, error, may_have_happened=False) from None
        finally:
            connection.close()

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _open(
        self, request: Request, credentials: Credentials, silence_seconds: float | None
    ) -> tuple["_Connection", HTTPResponse]:
        connection = _Connection(self._access.endpoint, credentials.tls, silence_seconds)
        try:
            return connection, connection.send_request(request, credentials)
        except (OSError, HTTPException) as error:
            connection.close()
            raise unreachable(self._access.endpoint, error, may_have_happened=False) from None

    def _exchange(self, request: Request, credentials: Credentials) -> Response:
        if self._kept is not None and self._kept.tls is not credentials.tls:
            self._drop()
        was_kept = self._kept is not None
        try:
            return self._exchange_once(request, credentials)
        except (OSError, HTTPException) as error:
            was_closed = was_kept and isinstance(error, (ConnectionError, HTTPException))
            if not was_closed or request.writes:
                raise unreachable(self._access.endpoint, error, may_have_happened=self._sent) from None
        return self._exchange(request, credentials)

    def _exchange_once(self, request: Request, credentials: Credentials) -> Response:
        """Sends a request and returns the response. Keeps the connection unless it fails or must close."""
        connection, self._kept = self._kept, None
        self._sent = False
        if connection is None:
            connection = _Connection(self._access.endpoint, credentials.tls, self._seconds)
        try:
            connection.ensure_connected()
            self._sent = True
            http_response = connection.send_request(request, credentials)
            response = _read_response(http_response)
        except BaseException:
            connection.close()
            raise
        if http_response.will_close:
            connection.close()
        else:
            self._kept = connection
        return response

    def _drop(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None


def _read_response(response: HTTPResponse) -> Response:
    headers = response.headers.get_all("Warning") or ()
    warnings = [
        re.sub(r"\\(.)", r"\1", match["text"]) for header in headers for match in WARNING.finditer(header)
    ]
    return Response(response.status, response.read(), response.getheader("Retry-After"), tuple(warnings))


class _Connection(HTTPConnection):
    """A connection to an endpoint, through its proxy and with TLS if it has them."""

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

    def ensure_connected(self) -> None:
        """Connects if needed. An error here means that nothing of the request was sent."""
        if self.sock is None:
            self.connect()

    def send_request(self, request: Request, credentials: Credentials) -> HTTPResponse:
        self.putrequest(request.method, self._endpoint.prefix + request.target, skip_accept_encoding=True)
        for name, value in (*headers_for(request), *credentials.headers):
            self.putheader(name, value)
        if request.body is not None:
            self.putheader("Content-Length", str(len(request.body)))
        if request.guard is not None:
            request.guard()
        self.endheaders(request.body)
        return self.getresponse()
