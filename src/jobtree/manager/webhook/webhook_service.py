"""The webhook as a part of the process: its certificate, its server, its answers.

Every replica serves, those that wait to lead too: they all follow the cluster, and answer from what they see,
as soon as they have seen all of it.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from jobtree.kube.http.api_errors import FencedError, KubeError
from jobtree.kube.http.async_client import AsyncClient
from jobtree.kube.http.transport import AsyncTransport
from jobtree.kube.write.object_writer import Writer
from jobtree.manager.cluster_view import ClusterView
from jobtree.manager.log import Log
from jobtree.manager.settings import ManagerSettings
from jobtree.manager.webhook.admission_handlers import handlers
from jobtree.manager.webhook.certificate_renewal import CertificateRenewal
from jobtree.manager.webhook.certificates import CertificateSchedule, ends_at
from jobtree.manager.webhook.webhook_server import Server

FIRST_CHECK_SECONDS = 0.5


class Webhook:
    def __init__(
        self,
        settings: ManagerSettings,
        transport: AsyncTransport,
        view: ClusterView,
        log: Log,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._view = view
        self._log = log
        self._clock = clock
        self._trouble = ""
        self._pace = CertificateSchedule(settings.webhook_validity_seconds)
        client = AsyncClient(transport)
        self._renewal = CertificateRenewal(client, settings, log, clock)
        self._server = Server(settings.webhook_address, handlers(view, client, settings.namespace), log)
        self._writer: Writer | None = None
        self._looking = asyncio.Event()

    def lead(self, writer: Writer) -> None:
        """From now on this replica looks after the certificate."""
        self._writer = writer
        self._looking.set()

    def unreadiness(self) -> list[str]:
        """Why this replica cannot answer the API server; empty if it can."""
        shown = self._server.shown
        if shown is None:
            return [f"the webhook is not served yet: {self._trouble or 'it has no certificate'}"]
        if self._clock() >= ends_at(shown.certificate):
            return [f"the certificate of the webhook has expired: {self._trouble or 'no new one was made'}"]
        if untrusting := self._renewal.untrusting:
            return [
                f"the API server does not trust the webhook yet: the leader writes it into {untrusting[0]}"
            ]
        return []

    def certificate_seconds(self) -> float | None:
        """How long the certificate that is shown is still valid."""
        shown = self._server.shown
        return None if shown is None else ends_at(shown.certificate) - self._clock()

    async def run(self) -> None:
        while True:
            await self._check()
            self._looking.clear()
            settled = self._server.shown and not self._renewal.untrusting
            wait = (
                self._pace.check_interval if settled else min(self._pace.check_interval, FIRST_CHECK_SECONDS)
            )
            with suppress(TimeoutError):
                await asyncio.wait_for(self._looking.wait(), wait)

    async def stop(self) -> None:
        await self._server.stop()

    async def _check(self) -> None:
        """What stands in the way is told once, and met with patience."""
        try:
            await self._renewal.check(self._writer)
            papers = self._renewal.papers
            if papers is not None and not self._view.kinds_not_listed:
                await self._server.show(papers.shown)
            self._trouble = ""
        except FencedError:
            self._writer = None
        except Exception as broken:  # noqa: BLE001  a webhook that is not looked after ends with its certificate
            told = str(broken) if isinstance(broken, (KubeError, OSError)) else repr(broken)
            if told != self._trouble:
                self._trouble = told
                self._log.say("webhook", "the certificate cannot be looked after", why=told)
