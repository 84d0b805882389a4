"""The webhook's server: TLS with a certificate that can change while it runs.

New connections get the latest certificate; open ones continue. A certificate is never written to a disk. An
exception in a handler becomes an error response, and the configuration's failurePolicy says what happens
then.
"""

import os
import ssl
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import msgspec
from aiohttp import web

from jobtree.manager.log import Log
from jobtree.manager.webhook.admission_review import (
    AdmissionRequest,
    AdmissionResponse,
    decode_review,
    encode_review,
)
from jobtree.manager.webhook.certificates import ServingCertificate

MAX_REQUEST_BYTES = 16 * 2**20  # more than an object before and after a change

Handler = Callable[[AdmissionRequest], Coroutine[Any, Any, AdmissionResponse]]


class Server:
    """An HTTPS server that listens as soon as it has a certificate."""

    def __init__(self, address: str, handlers: Mapping[str, Handler], log: Log) -> None:
        self.shown: ServingCertificate | None = None
        self._address = address
        self._handlers = handlers
        self._log = log
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._runner: web.AppRunner | None = None

    async def show(self, serving: ServingCertificate) -> None:
        """Uses this certificate for new connections."""
        if serving == self.shown:
            return
        load_chain(self._tls, serving)
        if self._runner is None:
            await self._listen()
        self.shown = serving

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _listen(self) -> None:
        app = web.Application(client_max_size=MAX_REQUEST_BYTES)
        for path, handler in self._handlers.items():
            app.router.add_post(path, self._handler(handler))
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        host, _, port = self._address.rpartition(":")
        try:
            await web.TCPSite(runner, host or None, int(port), ssl_context=self._tls).start()
        except OSError:
            await runner.cleanup()
            raise
        self._runner = runner
        self._log.say("webhook", "the webhook is served", address=self._address)

    def _handler(self, handler: Handler) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(http_request: web.Request) -> web.Response:
            try:
                request = decode_review(await http_request.read())
            except msgspec.DecodeError as error:
                return web.Response(status=400, text=f"this is no AdmissionReview: {error}\n")
            try:
                response = await handler(request)
            except Exception as error:  # noqa: BLE001  the server goes on with the next request
                self._log.say(
                    "webhook",
                    "no answer",
                    why=repr(error),
                    resource=request.plural,
                    trace=traceback.format_exc(),
                )
                return web.Response(status=500, text=f"Jobtree could not answer: {error!r}\n")
            self._log_refusal(request, response)
            return web.Response(body=encode_review(request, response), content_type="application/json")

        return handle

    def _log_refusal(self, request: AdmissionRequest, response: AdmissionResponse) -> None:
        if response.refusal:
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
