"""The loop: what changed is taken in, what follows is decided in a thread, and carried out.

Nothing is decided from half a step: the next look at the world comes when the last decision is written, or
was refused. Then the model is built anew from what the cluster says. Pods, events and cordons go on beside
it.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import ParamSpec, TypeVar

from jobtree.api.kinds.lease import Lease
from jobtree.core import Violation
from jobtree.kube.http.api_errors import FencedError, KubeError
from jobtree.kube.write.object_writer import Writer
from jobtree.manager.cluster_view import Changes, ClusterView
from jobtree.manager.controllers.decision_writer import DecisionWriter, WriteRefusedError
from jobtree.manager.controllers.event_writer import EventWriter
from jobtree.manager.controllers.lease_archiver import LeaseArchiver
from jobtree.manager.controllers.pod_reconciler import PodReconciler
from jobtree.manager.controllers.unreadable_runs import UnreadableRuns
from jobtree.manager.decisions.write_set import DecisionLog, WriteSet
from jobtree.manager.log import Log
from jobtree.manager.planner.planning_model import PlanningModel
from jobtree.manager.planner.world_gauges import WorldGauges
from jobtree.manager.process.beacon_listener import BeaconListener
from jobtree.manager.process.health import Health

LEAST_WAIT_SECONDS = 0.02
MOST_WAIT_SECONDS = 20.0
TROUBLE_WAIT_SECONDS = 1.0
PAUSE_SECONDS = 0.02  # between two looks: what comes together is decided together, and written at once

P = ParamSpec("P")
T = TypeVar("T")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class ControlLoop:
    def __init__(
        self, model: PlanningModel, view: ClusterView, writer: Writer, health: Health, log: Log
    ) -> None:
        self.woken = asyncio.Event()
        self._stopping = False
        self._model = model
        self._view = view
        self._health = health
        self._log = log
        self._metrics = health.metrics
        self._gauges = WorldGauges(lambda: model.world, now_ms, self._metrics.forget_domains)
        self._carrier = DecisionWriter(writer, view, log)
        self._keeper = PodReconciler(writer, view, log, now_ms, self.woken.set)
        self._herald = EventWriter(writer, view, log)
        self._misfits = UnreadableRuns(writer, view, log)
        self._listener = BeaconListener(log, self.woken.set)
        self.archivist: LeaseArchiver | None = None  # of a manager that keeps an archive

    async def run(self) -> None:
        """Until it is told to stop, or may not write any more: then FencedError is raised."""
        await self._load()
        await self._listener.catch_up(self._model.world.policy.beacon, self._model.beacon_rounds())
        self._metrics.of_world = self._gauges.page
        while not self._stopping:
            self._health.turned()
            step = await self._turn()
            await self._wait(step)
        await self._keeper.drain()
        await self._herald.drain()
        self._listener.stop()

    def stop(self) -> None:
        """No further step; what was begun is brought to its end."""
        self._stopping = True
        self.woken.set()

    async def _load(self) -> None:
        self._dispatch(self._view.drain())
        self._keeper.restart()
        self._listener.restart()
        if self.archivist is not None:
            self.archivist.restart()
        self._count(await self._in_thread(self._model.load, self._view.everything(), now_ms()))
        self._log.say(
            "binder",
            "the cluster is read",
            nodes=len(self._view.nodes),
            runs=len(self._view.runs),
            leases=len(self._view.leases),
        )

    async def _turn(self) -> WriteSet | None:
        self.woken.clear()
        changes = self._view.drain()
        self._dispatch(changes)
        if self._model.status_is_ahead(changes):
            await self._load()
            changes = self._view.drain()
        news = [*self._keeper.outcomes(), *self._listener.new_values()]
        step = await self._in_thread(self._model.take_turn, changes, news, now_ms())
        self._count(step.violations)
        for measure in step.measures:
            self._metrics.record(measure)
        try:
            await self._carrier.write_decisions(step)
            self._record((*self._carrier.done(), *step.logs))
            self._keeper.set_desired(step.desired_pods)
            self._keeper.start_reconciling()
            await self._carrier.write_statuses(step)
        except FencedError:
            raise
        except (WriteRefusedError, KubeError) as refused:
            await self._rebuild_model(refused)
            return None
        finally:
            self._record(self._carrier.done())
        self._health.trouble = ""
        for run in self._carrier.unwritten_runs:
            self._model.telling.mark_unwritten(run.metadata.uid, (run.metadata.namespace, run.metadata.name))
        self._model.telling.mark_names_unwritten(self._carrier.unwritten_names)
        if self._keeper.has_outcomes:
            self.woken.set()
        self._herald.write_events((*step.notes, *self._keeper.event_notes()))
        self._herald.cordon(step.cordons, now_ms())
        self._listener.follow_rounds(self._model.world.policy.beacon, step.beacon_rounds)
        await self._misfits.report(now_ms())
        if self.archivist is not None:
            await self._archive(self.archivist)
        return step

    async def _archive(self, archivist: LeaseArchiver) -> None:
        """Old leases leave for the archive, a few at a time, between two steps."""

        async def set_aside(leases: list[Lease]) -> list[str]:
            return await self._in_thread(self._model.carry_leases, leases)

        if await archivist.archive_batch(self._model, set_aside, now_ms()):
            self.woken.set()

    def _dispatch(self, changes: Changes) -> None:
        """What goes on beside the model, and is not built anew with it, hears of every change."""
        self._keeper.handle_changes(changes.pods)
        self._herald.handle_node_changes(changes.nodes)
        if self.archivist is not None:
            self.archivist.handle_changes(changes.leases)

    async def _in_thread(self, doing: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """The model belongs to a thread while it works; whoever reads the world waits for that."""

        def work() -> T:
            with self._gauges.planning():
                return doing(*given, **named)

        return await asyncio.to_thread(work)

    def _record(self, deeds: Iterable[DecisionLog]) -> None:
        """What was decided and written is logged and counted."""
        for deed in deeds:
            for part, line in deed.lines:
                self._log.say(part, **line)
            for measure in deed.measures:
                self._metrics.record(measure)

    async def _rebuild_model(self, refused: Exception) -> None:
        """Something could not be written: what was decided is forgotten, and decided again."""
        self._health.trouble = f"the last decision could not be written: {refused}"
        self._log.say("binder", "a decision was refused: planning again", why=str(refused))
        await asyncio.sleep(TROUBLE_WAIT_SECONDS if isinstance(refused, KubeError) else 0)
        await self._load()
        self.woken.set()

    async def _wait(self, step: WriteSet | None) -> None:
        """Until something changes or is due."""
        alarms = [
            at for at in (step.wake_at if step else None, self._keeper.next_retry_at()) if at is not None
        ]
        until = (min(alarms) - now_ms()) / 1000 if alarms else MOST_WAIT_SECONDS
        ended = time.monotonic()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.woken.wait(), min(max(until, LEAST_WAIT_SECONDS), MOST_WAIT_SECONDS))
        await asyncio.sleep(ended + PAUSE_SECONDS - time.monotonic())

    def _count(self, violations: Iterable[Violation]) -> None:
        for violation in violations:
            self._health.metrics.count(violation)
            self._log.say(
                "check", "an invariant is broken", invariant=violation.invariant, why=violation.message
            )
