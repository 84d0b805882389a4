"""A proxy between a manager and the API server that lets things go wrong, by count and from a seed.

Which writes and watches meet a fault, and when, follows from the seed and their number: the n-th write, the
n-th watch of a kind. Which fault it is goes by turns. So a run that failed can be played again.

What can happen to a write: it is refused without reaching the server (409, 429 with Retry-After, 500), or it
takes effect and its answer is lost (the connection closes) or never comes.
What can happen to a watch, after some events: the connection closes, in the middle of a line too; it stays
open and nothing comes any more; an event is withheld and the server says that it has forgotten (410).

The election is left alone: a manager that loses it ends, which other tests are about. From the first fault
to the last there is an end: after ``MOST_WATCHES`` watches of a kind the next ones are sound, else a long
listing might never come through.
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

from tests.live.certificates import private_file
from tests.live.control_plane import ControlPlane

WRITES = ("conflict", "busy", "unwell", "lost", "hung")
WATCHES = ("dropped", "cut", "silent", "gap")
EVERY = 5  # one write of so many, on average, meets a fault
MOST_WATCHES = 6
MOST_EVENTS = 25
START_SECONDS = 20
LONGEST_LINE = 2**24
ELECTION = "/apis/coordination.k8s.io/"
OF_ONE_HOP = {"connection", "content-length", "host", "keep-alive", "transfer-encoding"}
REFUSALS = {
    "conflict": (409, "Conflict", {}),
    "busy": (429, "TooManyRequests", {"Retry-After": "1"}),
    "unwell": (500, "InternalError", {}),
}


def drawn(*what: object) -> int:
    return int.from_bytes(sha256(repr(what).encode()).digest()[:8])


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
    """Context manager: a proxy on a port of its own. ``met`` counts the faults that happened, by name."""

    def __init__(self, plane: ControlPlane, seed: int) -> None:
        self.url = ""
        self.met: Counter[str] = Counter()
        self._plane = plane
        self._seed = seed
        self._writes = self._faulty = self._ended = 0
        self._watches: Counter[str] = Counter()
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
        app = web.Application(client_max_size=LONGEST_LINE)
        app.router.add_route("*", "/{path:.*}", self._handle)
        async with ClientSession(
            connector=TCPConnector(ssl=upstream, limit=0),
            auto_decompress=False,
            read_bufsize=LONGEST_LINE,
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
                return await self._pass_on(request)
            return await self._write(request)
        return self._hang_up(request)  # whichever side broke off, the other one sees it

    @asynccontextmanager
    async def _asked(self, request: web.Request) -> AsyncIterator[Any]:
        headers = [(name, value) for name, value in request.headers.items() if name.lower() not in OF_ONE_HOP]
        url = self._plane.url + request.raw_path
        async with self._session.request(
            request.method, url, headers=headers, data=await request.read()
        ) as answer:
            yield answer

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        async with self._asked(request) as answer:
            return web.Response(status=answer.status, body=await answer.read(), headers=kept(answer.headers))

    # Writes

    async def _write(self, request: web.Request) -> web.StreamResponse:
        self._writes += 1
        if drawn(self._seed, "write", self._writes) % EVERY:
            return await self._pass_on(request)
        fate = WRITES[(self._seed + self._faulty) % len(WRITES)]
        self._faulty += 1
        self.met[fate] += 1
        if fate in REFUSALS:
            code, reason, headers = REFUSALS[fate]
            return web.json_response(status(code, reason), status=code, headers=headers)
        answer = await self._pass_on(request)
        if fate == "hung":
            await self._closing.wait()
        del answer  # it took effect, and nobody is told
        return self._hang_up(request)

    def _hang_up(self, request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            request.transport.close()
        return web.Response()

    # Watches

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        kind = request.path.rpartition("/")[2]
        self._watches[kind] += 1
        number = self._watches[kind]
        events = drawn(self._seed, kind, number) % MOST_EVENTS + 1
        async with self._asked(request) as answer:
            response = web.StreamResponse(status=answer.status, headers=kept(answer.headers))
            await response.prepare(request)
            async for line in answer.content:
                if number <= MOST_WATCHES and events == 0:
                    return await self._end_watch(request, response, line)
                await response.write(line)
                events -= 1
            return response

    async def _end_watch(
        self, request: web.Request, response: web.StreamResponse, line: bytes
    ) -> web.StreamResponse:
        """``line`` is the first that does not come through."""
        fate = WATCHES[(self._seed + self._ended) % len(WATCHES)]
        self._ended += 1
        self.met[fate] += 1
        if fate == "silent":
            await self._closing.wait()
        elif fate == "gap":
            event = {"type": "ERROR", "object": status(410, "Expired")}
            await response.write(json.dumps(event).encode() + b"\n")
            return response
        elif fate == "cut":
            await response.write(line[: len(line) // 2])
        return self._hang_up(request)


def kept(headers: Any) -> dict[str, str]:  # noqa: ANN401  a multidict
    return {name: value for name, value in headers.items() if name.lower() not in OF_ONE_HOP}
