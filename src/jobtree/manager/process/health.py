"""Serves whether this process is alive and ready, its metrics, and its archive.

It is alive while its control loop makes turns. It is ready when all kinds that planning needs are listed, no
watch is silent for long, and, if it leads, its last decisions could be written. A standby that watches the
cluster is ready to take over.
"""

import asyncio
import time
from collections.abc import Callable, Iterable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from jobtree.kube.installation import WEBHOOK_SECRET
from jobtree.kube.watch.reflector import Reflector
from jobtree.manager.cluster_view import NEEDED, ClusterView
from jobtree.manager.metrics import CERTIFICATE, SILENCE, UNREADABLE, Metrics
from jobtree.manager.process.archive_endpoint import ArchivePages
from jobtree.manager.webhook.webhook_service import Webhook

STALE_SECONDS = 90.0
STUCK_SECONDS = 60.0
NO_POLICY = "the policy cannot be read, and nothing is decided until it is repaired"


class Health:
    def __init__(
        self, view: ClusterView, metrics: Metrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.metrics = metrics
        self.watches: list[Reflector] = []
        self.webhook: Webhook | None = None
        self.archive: ArchivePages | None = None
        self.leads: Callable[[], bool] = lambda: False
        self._scraping = asyncio.Lock()  # one scrape at a time, because planning needs threads as well
        self.trouble = ""  # why the last decisions were not written
        self._view = view
        self._clock = clock
        self._turned_at = clock()

    def record_turn(self) -> None:
        """Records that the control loop is not stuck."""
        self._turned_at = self._clock()

    def liveness_problems(self) -> list[str]:
        """Returns why this process counts as stuck; empty if it is alive."""
        stuck = self._clock() - self._turned_at
        return [f"the loop has not turned for {stuck:.0f} s"] if stuck > STUCK_SECONDS else []

    def readiness_problems(self) -> list[str]:
        """Returns everything that keeps this process from being ready."""
        problems = [f"{resource.plural} have not been seen yet" for resource in self._view.kinds_not_listed]
        if self._view.unread_policy:
            problems.append(f"{NO_POLICY}: {self._view.unread_policy}")
        for watch in self.watches:
            if watch.resource not in NEEDED:
                continue
            if watch.error is not None:
                problems.append(f"{watch.resource.plural}: {watch.error}")
            elif watch.silent_seconds() > STALE_SECONDS:
                problems.append(f"{watch.resource.plural}: silent for {watch.silent_seconds():.0f} s")
        if self.webhook is not None:
            problems += self.webhook.unreadiness()
        return [*problems, self.trouble] if self.trouble else problems

    async def serve(self, address: str) -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        if self.archive is not None:
            self.archive.add_to(app)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        host, _, port = address.rpartition(":")
        await web.TCPSite(runner, host or None, int(port)).start()
        return runner

    async def _healthz(self, _: web.Request) -> web.Response:
        return health_response(self.liveness_problems())

    async def _readyz(self, _: web.Request) -> web.Response:
        return health_response([*self.liveness_problems(), *self.readiness_problems()])

    async def _metrics(self, _: web.Request) -> web.Response:
        for watch in self.watches:
            self.metrics.set_to(SILENCE, watch.silent_seconds(), watch.resource.plural)
        for resource, (store, _selector) in self._view.by_resource().items():
            self.metrics.set_to(UNREADABLE, len(store.unreadable), resource.plural)
        left = self.webhook.certificate_seconds() if self.webhook is not None else None
        if left is not None:
            self.metrics.set_to(CERTIFICATE, left, WEBHOOK_SECRET)
        async with self._scraping:
            page = await asyncio.to_thread(self.metrics.page, leads=self.leads())
        return web.Response(body=page, headers={"Content-Type": CONTENT_TYPE_LATEST})


def health_response(problems: Iterable[str]) -> web.Response:
    text = "".join(f"{problem}\n" for problem in problems)
    return web.Response(status=503, text=text) if text else web.Response(text="ok\n")
