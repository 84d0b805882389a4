"""The process of the manager: connects to its cluster, watches it, takes part in the election, and leads.

What is missing at the start (a kind, a permission) is logged once by name and waited for. A process that
loses the election exits, and the next leader starts from the objects in the cluster.
"""

import asyncio
import os
import signal
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress

from jobtree.archive.archive_directory import ArchiveDirectory
from jobtree.kube.auth.cluster_access import Access, find_access
from jobtree.kube.http.api_errors import FORBIDDEN, NOT_FOUND, FencedError, KubeError, StatusError
from jobtree.kube.http.api_resources import CONFIG_MAPS
from jobtree.kube.http.async_client import AsyncClient
from jobtree.kube.http.async_transport import PooledTransport
from jobtree.kube.watch.object_store import Unreadable
from jobtree.kube.watch.reflector import Reflector
from jobtree.kube.watch.watch_protocol import WatchProtocol
from jobtree.kube.write.leader_election import ElectionChange, ElectionTarget, Leader, leader_client
from jobtree.kube.write.object_writer import Writer
from jobtree.kube.write.write_gate import Gate
from jobtree.manager.cluster_view import ClusterView
from jobtree.manager.controllers.lease_archiver import ArchiveSettings
from jobtree.manager.log import Log, log_fields
from jobtree.manager.metrics import Metrics
from jobtree.manager.planner.planning_model import PlanningModel
from jobtree.manager.process.archive_endpoint import ArchivePages
from jobtree.manager.process.control_loop import ControlLoop
from jobtree.manager.process.health import Health
from jobtree.manager.process.lottery_secret import BrokenKeyError, lottery_key
from jobtree.manager.settings import ManagerSettings
from jobtree.manager.webhook.webhook_service import Webhook

POLL_SECONDS = 0.1
RETRY_SECONDS = 5.0
FINISH_SECONDS = 10.0
WAKE_LATER_SECONDS = 0.25  # for pods that start as expected, so that a thousand of them need one turn
LOST = 1


class ManagerProcess:
    def __init__(self, settings: ManagerSettings, log: Log) -> None:
        self._settings = settings
        self._log = log
        self._access: Access = find_access(settings.context, settings.kubeconfig)
        self._wake = asyncio.Event()
        self._later_wake: asyncio.TimerHandle | None = None
        self._elected = asyncio.Event()
        self._stop_requested = asyncio.Event()
        self._code = 0
        self._loop: ControlLoop | None = None
        self._archive = ArchiveDirectory(settings.archive) if settings.archive else None
        self._webhook: Webhook | None = None
        self._logged_trouble: dict[str, str] = {}

    async def run(self) -> int:
        """Runs until a signal arrives or the election is lost; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_requested.set)
        transport = PooledTransport(self._access, self._settings.request_seconds)
        view = ClusterView(self._settings.namespace, self._report, self._wake_loop, self._wake_loop_later)
        health = self._health(view)
        server = await health.serve(self._settings.health_address) if self._settings.health_address else None
        leader = Leader(leader_client(self._access), self._election_target(), self._on_election_change(loop))
        gate = Gate(leader.may_write, self._after_write)
        health.leads = leader.may_write
        watching = [asyncio.ensure_future(watch.run()) for watch in self._watches(transport, view, health)]
        watching.append(asyncio.ensure_future(self._watch_reflectors(health.watches)))
        if self._settings.webhook_address:
            self._webhook = health.webhook = Webhook(
                self._settings, transport, view, self._log, metrics=health.metrics
            )
            watching.append(asyncio.ensure_future(self._webhook.run()))
        leading = asyncio.ensure_future(self._lead(transport, view, health, gate))
        leader.start()
        ending = asyncio.ensure_future(self._stop_requested.wait())
        await asyncio.wait((leading, ending), return_when=asyncio.FIRST_COMPLETED)
        if leading.done():
            self._code = LOST
        elif self._code != LOST:
            await self._finish(leading)
        gate.close()
        if self._loop is not None:
            self._loop.stop()  # a task that is about to continue may miss its cancellation
        if self._code == LOST:
            self._explain(leading.exception() if leading.done() else None)
        for task in (leading, ending, *watching):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task
        await asyncio.to_thread(leader.stop)
        if self._webhook is not None:
            await self._webhook.stop()
        if server is not None:
            await server.cleanup()
        await transport.close()
        return self._code

    def _explain(self, broken: BaseException | None) -> None:
        if broken is None or isinstance(broken, FencedError):
            why = str(broken or "its lease was not renewed in time")
            self._log.say("leader", "this process does not lead any more", why=why)
        else:
            trace = "".join(traceback.format_exception(broken))
            self._log.say(
                "manager", "this is a bug in Jobtree: please report it", why=repr(broken), trace=trace
            )

    async def _finish(self, leading: "asyncio.Future[None]") -> None:
        """Lets the present turn finish, for at most ``FINISH_SECONDS``; the next manager does the rest."""
        if self._loop is not None:
            self._loop.stop()
            await asyncio.wait((leading,), timeout=FINISH_SECONDS)

    # Leading

    async def _lead(self, transport: PooledTransport, view: ClusterView, health: Health, gate: Gate) -> None:
        await self._await_view(view, health)
        while not self._elected.is_set():
            health.record_turn()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._elected.wait(), RETRY_SECONDS)
        self._log.say("leader", "this process leads", identity=self._settings.identity)
        writer = Writer(transport, gate)
        if self._webhook is not None:
            self._webhook.lead(writer)
        key = await self._lottery_key(transport, writer, health)
        model = PlanningModel(key, self._settings.check_seconds * 1000)
        archive = None
        if self._archive is not None:
            archive = ArchiveSettings(self._archive, self._settings.archive_seconds * 1000)
        loop = ControlLoop(model, view, writer, health, self._log, archive=archive)
        self._loop, self._wake = loop, loop.woken
        await loop.run()

    async def _await_view(self, view: ClusterView, health: Health) -> None:
        """Waits until the policy and all kinds that planning needs are listed; logs each obstacle once."""
        while view.kinds_not_listed or lacks_policy(view, health.watches):
            health.record_turn()
            for watch in health.watches:
                self._log_trouble(watch)
            await asyncio.sleep(POLL_SECONDS)

    async def _watch_reflectors(self, watches: list[Reflector]) -> None:
        """Logs missing kinds and permissions of watches, also after the start."""
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            for watch in watches:
                trouble = watch.error
                if isinstance(trouble, StatusError) and trouble.code in (NOT_FOUND, FORBIDDEN):
                    self._log_trouble(watch)

    def _log_trouble(self, watch: Reflector) -> None:
        trouble, plural = watch.error, watch.resource.plural
        message = str(trouble) if trouble is not None else ""
        if not message or self._logged_trouble.get(plural) == message:
            return
        self._logged_trouble[plural] = message
        if isinstance(trouble, StatusError) and trouble.code == NOT_FOUND:
            message = f"the cluster does not know {plural}: apply config/crd; waiting for it"
        elif isinstance(trouble, StatusError) and trouble.code == FORBIDDEN:
            self._log.say(
                "manager", f"no permission to list and watch {plural}", resource=plural, **log_fields(trouble)
            )
            return
        self._log.say("manager", message, resource=plural)

    async def _lottery_key(self, transport: PooledTransport, writer: Writer, health: Health) -> bytes:
        while True:
            health.record_turn()
            try:
                return await lottery_key(AsyncClient(transport), writer, self._settings.namespace)
            except FencedError:
                raise
            except (KubeError, BrokenKeyError) as refused:
                health.trouble = f"no lottery key: {refused}"
                self._log.say("manager", "there is no lottery key: waiting for one", why=str(refused))
            await asyncio.sleep(RETRY_SECONDS)

    # Parts

    def _health(self, view: ClusterView) -> Health:
        health = Health(view, Metrics())
        if self._archive is not None:
            health.archive = ArchivePages(self._archive, lambda: self._loop is not None)
        return health

    def _watches(self, transport: PooledTransport, view: ClusterView, health: Health) -> list[Reflector]:
        health.watches = [
            Reflector(
                transport,
                WatchProtocol(resource, store, selector),
                silence_seconds=self._settings.silence_seconds,
            )
            for resource, (store, selector) in view.by_resource().items()
        ]
        return health.watches

    def _election_target(self) -> ElectionTarget:
        return ElectionTarget(self._settings.namespace, self._settings.election, self._settings.identity)

    def _on_election_change(self, loop: asyncio.AbstractEventLoop) -> Callable[[ElectionChange], None]:
        def on_change(change: ElectionChange) -> None:
            event = self._elected if change == "elected" else self._stop_requested
            if change == "lost":
                self._code = LOST
            loop.call_soon_threadsafe(event.set)

        return on_change

    def _wake_loop(self) -> None:
        self._wake.set()

    def _wake_loop_later(self) -> None:
        loop = asyncio.get_running_loop()
        if self._later_wake is None or self._later_wake.when() <= loop.time():
            self._later_wake = loop.call_later(WAKE_LATER_SECONDS, self._wake_loop)

    def _report(self, kind: str, unreadable: Unreadable) -> None:
        message = f"a {kind} cannot be read and is left out"
        self._log.say("manager", message, name=unreadable.title, why=unreadable.why)

    def _after_write(self, count: int) -> None:
        if self._settings.stop_after_writes and count >= self._settings.stop_after_writes:
            os.kill(os.getpid(), signal.SIGKILL)


def lacks_policy(view: ClusterView, watches: Iterable[Reflector]) -> bool:
    """Whether the policy is not listed yet, or is broken, so that no decision can be made.

    If the manager may not read it, the defaults apply.
    """
    watch = next(watch for watch in watches if watch.resource is CONFIG_MAPS)
    if isinstance(watch.error, StatusError) and watch.error.code == FORBIDDEN:
        return False
    return not view.policy.synced or bool(view.unread_policy)
