"""A small API server on a real socket, whose replies a test chooses.

``respond`` is called with every request and returns a ``Reply``. After its last part a reply ends normally,
drops the connection, or sends nothing more and keeps the connection open.
"""

import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

from jobtree.kube.auth.cluster_access import Access
from jobtree.kube.auth.kubeconfig import ClusterEntry, LocatedEntry, Target, UserEntry

HANG_LIMIT_SECONDS = 30


@dataclass(frozen=True)
class ReceivedRequest:
    """A request as the server received it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass(frozen=True)
class Reply:
    """A response: ``parts``, which are sent one by one, or one document."""

    code: int = 200
    document: object = None
    headers: dict[str, str] = field(default_factory=dict)
    parts: Iterable[bytes] | None = None
    then: Literal["end", "drop", "hang"] = "end"


def status(code: int, reason: str, message: str = "no", **details: object) -> dict[str, Any]:
    """A metav1.Status."""
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return {**body, "details": details} if details else body


def refusal(code: int, reason: str, **headers: str) -> Reply:
    spelled = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(code, status(code, reason), spelled)


def event(kind: str, document: object) -> bytes:
    return json.dumps({"type": kind, "object": document}, separators=(",", ":")).encode() + b"\n"


def bookmark(version: int, *, end: bool = False) -> bytes:
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    return event("BOOKMARK", {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata})


def thing(name: str, version: int, uid: str = "", **fields: object) -> dict[str, Any]:
    """An object. Its UID is ``uid``, or follows from its name."""
    metadata = {"name": name, "namespace": "default", "uid": uid or f"uid-{name}"}
    return {"metadata": {**metadata, "resourceVersion": str(version)}, **fields}


class FakeServer:
    """The server. ``requests`` holds all requests so far, in the order of their arrival."""

    def __init__(self, respond: Callable[[ReceivedRequest], Reply]) -> None:
        self.requests: list[ReceivedRequest] = []
        self.respond = respond
        self.stopped = threading.Event()
        self.connections: set[socket.socket] = set()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"fake": self}))
        self._http.daemon_threads = False
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def access(self, directory: Path = Path(), *, token: str = "", token_file: str = "") -> Access:
        """Returns access to this server for a user with this token or token file."""
        cluster = LocatedEntry(ClusterEntry(server=self.url), "test", directory)
        user = LocatedEntry(UserEntry(token=token, token_file=token_file), "test", directory)
        return Access(Target("test", "default", cluster, user))

    def cut(self) -> None:
        """Closes every connection, even those that clients keep for the next request."""
        for connection in list(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        self.stopped.set()
        self._http.shutdown()
        self.cut()
        self._thread.join()
        self._http.server_close()


@contextmanager
def serving(respond: Callable[[ReceivedRequest], Reply]) -> Iterator[FakeServer]:
    server = FakeServer(respond)
    try:
        yield server
    finally:
        server.stop()


def in_turn(*replies: Reply) -> Callable[[ReceivedRequest], Reply]:
    """Returns a function that gives the replies one after the other, and the last one for ever."""
    remaining = list(replies)
    return lambda _: remaining.pop(0) if len(remaining) > 1 else remaining[0]


class _Handler(BaseHTTPRequestHandler):
    fake: FakeServer

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = HANG_LIMIT_SECONDS

    def setup(self) -> None:
        super().setup()
        self.fake.connections.add(self.connection)

    def finish(self) -> None:
        with suppress(OSError):
            super().finish()
        self.fake.connections.discard(self.connection)

    def _handle(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length)) if length else None
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        request = ReceivedRequest(self.command, url.path, query, dict(self.headers.items()), body)
        self.fake.requests.append(request)
        self._send(self.fake.respond(request))

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle  # noqa: N815  names that http.server requires

    def _send(self, reply: Reply) -> None:
        self.send_response(reply.code)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.parts is not None:
            self._send_parts(reply.parts, reply.then)
            return
        whole = json.dumps(reply.document).encode()
        self.send_header("Content-Length", str(len(whole)))
        self.end_headers()
        self.wfile.write(whole)

    def _send_parts(self, parts: Iterable[bytes], then: str) -> None:
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in parts:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        if then == "hang":
            self.fake.stopped.wait(HANG_LIMIT_SECONDS)
        if then == "end":
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = then != "end"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  as http.server calls it
        """Logs nothing: the requests are in ``requests``."""
