"""Runs the webhook in the manager's process: its certificate, its server and its handlers.

Every replica serves the webhook, also one that does not lead: each watches the cluster, and answers as soon
as it has listed all kinds that it needs.
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
from jobtree.manager.metrics import Metrics
from jobtree.manager.settings import ManagerSettings
from jobtree.manager.webhook.admission_handlers import handlers
from jobtree.manager.webhook.certificate_renewal import CertificateRenewal
from jobtree.manager.webhook.certificates import CertificateSchedule, ends_at
from jobtree.manager.webhook.webhook_server import Server

FIRST_CHECK_SECONDS = 0.5


class Webhook:
    def __init__(  # noqa: PLR0913  the parts of the manager that it uses
        self,
        settings: ManagerSettings,
        transport: AsyncTransport,
        view: ClusterView,
        log: Log,
        *,
        metrics: Metrics,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._view = view
        self._log = log
        self._clock = clock
        self._problem = ""
        self._schedule = CertificateSchedule(settings.webhook_validity_seconds)
        client = AsyncClient(transport)
        self._renewal = CertificateRenewal(client, settings, log, clock)
        self._server = Server(
            settings.webhook_address,
            handlers(view, client, settings.namespace),
            log,
            metrics=metrics,
            clients=settings.webhook_clients,
        )
        self._writer: Writer | None = None
        self._wake_up = asyncio.Event()

    def lead(self, writer: Writer) -> None:
        """Has this replica renew the certificate from now on."""
        self._writer = writer
        self._wake_up.set()

    def unreadiness(self) -> list[str]:
        """Returns why this replica cannot answer the API server; empty if it can."""
        shown = self._server.shown
        if shown is None:
            return [f"the webhook is not served yet: {self._problem or 'it has no certificate'}"]
        if self._clock() >= ends_at(shown.certificate):
            return [f"the certificate of the webhook has expired: {self._problem or 'no new one was made'}"]
        if untrusting := self._renewal.untrusting:
            return [
                f"the API server does not trust the webhook yet: the leader writes it into {untrusting[0]}"
            ]
        return []

    def certificate_seconds(self) -> float | None:
        """Returns how long the certificate is still valid; None without one."""
        shown = self._server.shown
        return None if shown is None else ends_at(shown.certificate) - self._clock()

    async def run(self) -> None:
        while True:
            await self._check()
            self._wake_up.clear()
            is_settled = self._server.shown and not self._renewal.untrusting
            wait = (
                self._schedule.check_interval
                if is_settled
                else min(self._schedule.check_interval, FIRST_CHECK_SECONDS)
            )
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake_up.wait(), wait)

    async def stop(self) -> None:
        await self._server.stop()

    async def _check(self) -> None:
        """Checks the certificate and starts the server; logs a problem once and tries again later."""
        try:
            await self._renewal.check(self._writer)
            certificates = self._renewal.certificates
            if certificates is not None and not self._view.kinds_not_listed:
                await self._server.show(certificates.shown)
            self._problem = ""
        except FencedError:
            self._writer = None
        except Exception as error:  # noqa: BLE001  without further checks the certificate would expire
            problem = str(error) if isinstance(error, (KubeError, OSError)) else repr(error)
            if problem != self._problem:
                self._problem = problem
                self._log.say("webhook", "the certificate cannot be checked", why=problem)
