"""A proxy between a manager and the API server that makes requests fail, in a way that follows from a seed.

The seed decides which writes and watches fail and when, by their number: the n-th write, the n-th watch of a
resource. The kinds of faults take turns. So a failed test can be repeated.

A write is refused without reaching the server (``conflict`` 409, ``busy`` 429 with Retry-After, ``error``
500), or it takes effect and the connection is closed (``lost``), or it takes effect and no answer comes
(``hung``). After some events, a watch is closed between two lines (``dropped``) or within a line (``cut``),
stays open without events (``silent``), or loses an event and ends with 410 (``gap``).

Requests of the leader election do not fail, because a manager that loses the election ends. After
``MOST_FAULTY_WATCHES`` watches of a resource, further ones do not fail either; otherwise a long list might
never end.
"""

import asyncio
import json
import ssl
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from typing import Any, Self

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector, web

from jobtree.kube.http.api_errors import INVALID
from tests.live.cluster.certificates import private_file
from tests.live.cluster.control_plane import ControlPlane

WRITE_FAULTS = ("conflict", "busy", "error", "lost", "hung")
WATCH_FAULTS = ("dropped", "cut", "silent", "gap")
WRITES_PER_FAULT = 5  # on average
MOST_FAULTY_WATCHES = 6
MOST_EVENTS_BEFORE_FAULT = 25
START_SECONDS = 20
LINE_BYTES = 2**24
ELECTION = "/apis/coordination.k8s.io/"
HOP_HEADERS = {"connection", "content-length", "host", "keep-alive", "transfer-encoding"}
REFUSALS = {
    "conflict": (409, "Conflict", {}),
    "busy": (429, "TooManyRequests", {"Retry-After": "1"}),
    "error": (500, "InternalError", {}),
}


def hashed_number(*key: object) -> int:
    return int.from_bytes(sha256(repr(key).encode()).digest()[:8])


def status(code: int, reason: str) -> dict[str, Any]:
    message = f"a fault of the tests: {reason}"
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }


class FaultProxy:
    """A running proxy on a port of its own. ``fault_counts`` counts its faults by name."""

    def __init__(self, plane: ControlPlane, seed: int) -> None:
        self.url = ""
        self.fault_counts: Counter[str] = Counter()
        self._plane = plane
        self._seed = seed
        self._writes = self._failed_writes = self._failed_watches = 0
        self._watches: Counter[str] = Counter()
        self._faulty_watches = MOST_FAULTY_WATCHES
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(START_SECONDS), "the proxy does not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()

    # Serving

    async def _serve(self) -> None:
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        upstream = ssl.create_default_context(cadata=self._plane.authority.certificate)
        app = web.Application(client_max_size=LINE_BYTES)
        app.router.add_route("*", "/{path:.*}", self._handle)
        async with ClientSession(
            connector=TCPConnector(ssl=upstream, limit=0),
            auto_decompress=False,
            read_bufsize=LINE_BYTES,
            timeout=ClientTimeout(total=None),
        ) as self._session:
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self._certificate())
            await site.start()
            self.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
            self._ready.set()
            await self._closing.wait()
            await runner.cleanup()

    def _certificate(self) -> ssl.SSLContext:
        pair = self._plane.authority.server("fault-proxy", ["127.0.0.1"])
        path = private_file(self._plane.directory / "fault-proxy.pem", pair.key + pair.public)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        with suppress(ClientError, ConnectionError):
            if request.query.get("watch"):
                return await self._watch(request)
            if request.method == "GET" or request.path.startswith(ELECTION):
                return await self._forward(request)
            return await self._write(request)
        return self._close_connection(request)  # one side closed the connection, so the other one must see it

    @asynccontextmanager
    async def _upstream(self, request: web.Request) -> AsyncIterator[Any]:
        headers = [
            (name, value) for name, value in request.headers.items() if name.lower() not in HOP_HEADERS
        ]
        url = self._plane.url + request.raw_path
        async with self._session.request(
            request.method, url, headers=headers, data=await request.read()
        ) as answer:
            yield answer

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        async with self._upstream(request) as answer:
            return web.Response(
                status=answer.status, body=await answer.read(), headers=forwarded_headers(answer.headers)
            )

    # Writes

    async def _write(self, request: web.Request) -> web.StreamResponse:
        self._writes += 1
        if hashed_number(self._seed, "write", self._writes) % WRITES_PER_FAULT:
            return await self._forward(request)
        fault = WRITE_FAULTS[(self._seed + self._failed_writes) % len(WRITE_FAULTS)]
        self._failed_writes += 1
        self.fault_counts[fault] += 1
        if fault in REFUSALS:
            code, reason, headers = REFUSALS[fault]
            return web.json_response(status(code, reason), status=code, headers=headers)
        answer = await self._forward(request)
        if fault == "hung":
            await self._closing.wait()
        del answer  # the write took effect, and its answer is lost
        return self._close_connection(request)

    def _close_connection(self, request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            request.transport.close()
        return web.Response()

    # Watches

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        resource = request.path.rpartition("/")[2]
        self._watches[resource] += 1
        number = self._watches[resource]
        events = hashed_number(self._seed, resource, number) % MOST_EVENTS_BEFORE_FAULT + 1
        async with self._upstream(request) as answer:
            response = web.StreamResponse(status=answer.status, headers=forwarded_headers(answer.headers))
            await response.prepare(request)
            async for line in answer.content:
                if number <= self._faulty_watches and events == 0:
                    return await self._end_watch(request, response, line)
                await response.write(line)
                events -= 1
            return response

    async def _end_watch(
        self, request: web.Request, response: web.StreamResponse, line: bytes
    ) -> web.StreamResponse:
        """Ends a watch with a fault; ``line`` is the first line that is not forwarded."""
        fault = WATCH_FAULTS[(self._seed + self._failed_watches) % len(WATCH_FAULTS)]
        self._failed_watches += 1
        self.fault_counts[fault] += 1
        if fault == "silent":
            await self._closing.wait()
        elif fault == "gap":
            event = {"type": "ERROR", "object": status(410, "Expired")}
            await response.write(json.dumps(event).encode() + b"\n")
            return response
        elif fault == "cut":
            await response.write(line[: len(line) // 2])
        return self._close_connection(request)


class RefusingProxy(FaultProxy):
    """Refuses every write to some objects: ``codes`` has the code for each path. Nothing else fails."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane, 0)
        self.codes: dict[str, int] = {}
        self._faulty_watches = 0

    async def _write(self, request: web.Request) -> web.StreamResponse:
        code = self.codes.get(request.path.removesuffix("/status"))
        if code is None:
            return await self._forward(request)
        self.fault_counts[str(code)] += 1
        return web.json_response(refusal(code), status=code)


def refusal(code: int) -> dict[str, Any]:
    """A Status with this code, as the API server gives it about one object."""
    causes = [{"reason": "FieldValueInvalid", "message": "not valid", "field": "status"}]
    return {**status(code, f"code {code}"), **({"details": {"causes": causes}} if code == INVALID else {})}


def forwarded_headers(headers: Any) -> dict[str, str]:  # noqa: ANN401  a multidict
    return {name: value for name, value in headers.items() if name.lower() not in HOP_HEADERS}
