"""The webhook's server: TLS with a certificate that can change while it runs.

New connections get the latest certificate; open ones continue. A certificate is never written to a disk. An
exception in a handler becomes an error response, and the configuration's failurePolicy says what happens
then.

With a client authority in the settings, only an API server that has a certificate of it is answered, and
refusals are logged. Without one, anybody who reaches the port is answered. Then nothing that a request says
is logged, because its user and its object may be invented. A metric counts refusals.
"""

import os
import ssl
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import msgspec
from aiohttp import web

from jobtree.manager.log import Log
from jobtree.manager.metrics import WEBHOOK_REFUSALS, Metrics
from jobtree.manager.settings import ClientIdentity
from jobtree.manager.webhook.admission_review import (
    AdmissionRequest,
    AdmissionResponse,
    decode_review,
    encode_review,
)
from jobtree.manager.webhook.certificates import ServingCertificate
from jobtree.manager.webhook.request_bodies import MAX_BYTES, SMALL_BYTES, RequestBodies
from jobtree.manager.webhook.tls_listener import READ_SECONDS, TlsListener

IDLE_SECONDS = 60.0  # after which an idle connection is closed
LINGER_SECONDS = 1.0  # that the rest of a refused request is read

Handler = Callable[[AdmissionRequest], Coroutine[Any, Any, AdmissionResponse]]


class Server:
    """An HTTPS server that listens as soon as it has a certificate."""

    def __init__(
        self,
        address: str,
        handlers: Mapping[str, Handler],
        log: Log,
        *,
        metrics: Metrics,
        clients: ClientIdentity = ClientIdentity(),  # noqa: B008  it is immutable
    ) -> None:
        self.shown: ServingCertificate | None = None
        self._address = address
        self._handlers = handlers
        self._log = log
        self._metrics = metrics
        self._clients = clients
        self._tls = server_context(clients)
        self._bodies = RequestBodies()
        for path in handlers:  # without a zero before it, rate() misses the first refusal
            metrics.add(WEBHOOK_REFUSALS, 0, path)
        self._runner: web.AppRunner | None = None
        self._listener: TlsListener | None = None

    async def show(self, serving: ServingCertificate) -> None:
        """Uses this certificate for new connections."""
        if serving == self.shown:
            return
        load_chain(self._tls, serving)
        if self._runner is None:
            await self._listen()
        self.shown = serving

    async def stop(self) -> None:
        if self._listener is not None:
            self._listener.stop()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _listen(self) -> None:
        app = web.Application(client_max_size=MAX_BYTES)
        for path, handler in self._handlers.items():
            app.router.add_post(path, self._handler(path, handler))
        runner = web.AppRunner(
            app,
            access_log=None,
            auto_decompress=False,  # a small body could become a large one
            keepalive_timeout=IDLE_SECONDS,
            lingering_time=LINGER_SECONDS,
            read_bufsize=SMALL_BYTES,
            shutdown_timeout=READ_SECONDS,
        )
        await runner.setup()
        assert runner.server is not None
        listener = TlsListener(runner.server, self._tls, self._clients.names)
        host, _, port = self._address.rpartition(":")
        try:
            listener.listen(host, int(port))
        except OSError:
            await runner.cleanup()
            raise
        self._runner, self._listener = runner, listener
        self._log.say("webhook", "the webhook is served", address=self._address)

    def _handler(self, path: str, handler: Handler) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(http_request: web.Request) -> web.Response:
            async with self._bodies.read(http_request) as body:
                assert self._listener is not None
                self._listener.record_request(http_request.transport)
                return await self._answer(path, handler, body)

        return handle

    async def _answer(self, path: str, handler: Handler, body: bytes) -> web.Response:
        try:
            request = decode_review(body)
        except msgspec.DecodeError as error:
            return web.Response(status=400, text=f"this is no AdmissionReview: {error}\n")
        try:
            response = await handler(request)
        except Exception as error:  # noqa: BLE001  the server goes on with the next request
            self._log.say(
                "webhook",
                "no answer",
                path=path,
                why=type(error).__name__,  # its message may repeat the request
                trace="".join(traceback.format_tb(error.__traceback__)),
            )
            return web.Response(status=500, text=f"Jobtree could not answer: {error!r}\n")
        if response.refusal:
            self._metrics.add(WEBHOOK_REFUSALS, 1, path)
            self._log_refusal(request, response)
        return web.Response(body=encode_review(request, response), content_type="application/json")

    def _log_refusal(self, request: AdmissionRequest, response: AdmissionResponse) -> None:
        """Logs a refusal, if it is certain that the API server asked."""
        if self._clients.authority:
            name = f"{request.namespace}/{request.name}".strip("/")
            self._log.say(
                "webhook",
                "refused",
                operation=request.operation,
                resource="/".join(filter(None, (request.plural, request.sub_resource))),
                name=name,
                user=request.user_info.username,
                why=response.refusal,
            )


def server_context(clients: ClientIdentity) -> ssl.SSLContext:
    """Returns a context that asks clients for a certificate, if an authority for them is set."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if clients.authority:
        context.load_verify_locations(clients.authority)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def load_chain(context: ssl.SSLContext, serving: ServingCertificate) -> None:
    """Loads a certificate into a context; the ssl module needs files, and these are in memory."""
    paths = [os.memfd_create("jobtree-webhook", os.MFD_CLOEXEC) for _ in range(2)]
    try:
        for descriptor, pem in zip(paths, (serving.certificate, serving.key), strict=True):
            os.write(descriptor, pem.encode())
        context.load_cert_chain(*(f"/proc/self/fd/{descriptor}" for descriptor in paths))
    finally:
        for descriptor in paths:
            os.close(descriptor)
