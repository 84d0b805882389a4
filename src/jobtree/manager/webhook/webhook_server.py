"""The webhook's server: TLS with a certificate that can change while it runs.

New connections see the certificate that was shown last; those that are open go on. A certificate never
touches a disk. What goes wrong inside is answered with an error, and the configuration's failurePolicy says
what that means.
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
    read_question,
    write_answer,
)
from jobtree.manager.webhook.certificates import ServingCertificate

MOST_BYTES = 16 * 2**20  # an object, as it is and as it was, is less

Handler = Callable[[AdmissionRequest], Coroutine[Any, Any, AdmissionResponse]]


class Server:
    """Listens from the first certificate on."""

    def __init__(self, address: str, judges: Mapping[str, Handler], log: Log) -> None:
        self.shown: ServingCertificate | None = None
        self._address = address
        self._judges = judges
        self._log = log
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._runner: web.AppRunner | None = None

    async def show(self, identity: ServingCertificate) -> None:
        """This is the certificate from now on."""
        if identity == self.shown:
            return
        load_chain(self._tls, identity)
        if self._runner is None:
            await self._listen()
        self.shown = identity

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _listen(self) -> None:
        app = web.Application(client_max_size=MOST_BYTES)
        for path, judge in self._judges.items():
            app.router.add_post(path, self._handler(judge))
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

    def _handler(self, judge: Handler) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            try:
                asked = read_question(await request.read())
            except msgspec.DecodeError as wrong:
                return web.Response(status=400, text=f"this is no AdmissionReview: {wrong}\n")
            try:
                answered = await judge(asked)
            except Exception as broken:  # noqa: BLE001  one question that we trip over is not the last
                self._log.say(
                    "webhook",
                    "no answer",
                    why=repr(broken),
                    resource=asked.plural,
                    trace=traceback.format_exc(),
                )
                return web.Response(status=500, text=f"Jobtree could not answer: {broken!r}\n")
            self._log_refusal(asked, answered)
            return web.Response(body=write_answer(asked, answered), content_type="application/json")

        return handle

    def _log_refusal(self, asked: AdmissionRequest, answered: AdmissionResponse) -> None:
        if answered.refusal:
            name = f"{asked.namespace}/{asked.name}".strip("/")
            self._log.say(
                "webhook",
                "refused",
                operation=asked.operation,
                resource="/".join(filter(None, (asked.plural, asked.sub_resource))),
                name=name,
                user=asked.user_info.username,
                why=answered.refusal,
            )


def load_chain(context: ssl.SSLContext, identity: ServingCertificate) -> None:
    """The ssl module reads certificates from files only: this one is in memory."""
    paths = [os.memfd_create("jobtree-webhook", os.MFD_CLOEXEC) for _ in range(2)]
    try:
        for descriptor, pem in zip(paths, (identity.certificate, identity.key), strict=True):
            os.write(descriptor, pem.encode())
        context.load_cert_chain(*(f"/proc/self/fd/{descriptor}" for descriptor in paths))
    finally:
        for descriptor in paths:
            os.close(descriptor)
