"""The control loop: takes in what changed, plans in a thread, and writes what was decided.

The next turn begins when all decisions of the last one are written, so no plan is made from half of them. If
a write is refused, the model is built again from what the cluster says. Reports, pods, Events and cordons are
written beside the loop.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple, ParamSpec, TypeVar

from jobtree.api.kinds.lease import Lease
from jobtree.api.schema.quantities import SECOND
from jobtree.core import Violation, latest_instant
from jobtree.kube.http.api_errors import FencedError, KubeError
from jobtree.kube.write.object_writer import Writer
from jobtree.manager.cluster_view import Changes, ClusterView
from jobtree.manager.controllers.decision_writer import DecisionWriter, WriteRefusedError
from jobtree.manager.controllers.event_writer import EventWriter
from jobtree.manager.controllers.lease_archiver import ArchiveSettings, LeaseArchiver
from jobtree.manager.controllers.lease_writer import LeaseWriter
from jobtree.manager.controllers.pod_reconciler import PodReconciler
from jobtree.manager.controllers.report_writer import ReportWriter
from jobtree.manager.controllers.set_aside import SetAside
from jobtree.manager.controllers.unreadable_runs import UnreadableRuns
from jobtree.manager.decisions.write_set import DecisionLog, DesiredPods, WriteSet
from jobtree.manager.log import Log
from jobtree.manager.metrics import CLOCK_AHEAD, SET_ASIDE
from jobtree.manager.planner.arrivals import Arrivals
from jobtree.manager.planner.cluster_intake import run_key
from jobtree.manager.planner.planning_model import PlanningModel
from jobtree.manager.planner.world_gauges import WorldGauges
from jobtree.manager.process.beacon_listener import BeaconListener
from jobtree.manager.process.health import Health
from jobtree.manager.process.planning_clock import PlanningClock

LEAST_WAIT_SECONDS = 0.02
MOST_WAIT_SECONDS = 20.0
TROUBLE_WAIT_SECONDS = 1.0
NOTABLE_MS = 5 * SECOND
CLOCK_IS_AHEAD = (
    "the system clock was set back, or objects lie in its future: planning time runs at half speed until the "
    "clock has caught up"
)
NODES_ARE_HELD = "too many nodes were lost together: they are held, and leases on them stay (F2c)"
MOST_NAMES = 20  # of nodes in a line of the log
PAUSE_SECONDS = 0.02  # between two turns, so that changes that come together are planned together

P = ParamSpec("P")
T = TypeVar("T")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def elapsed_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class LoopRuntime(NamedTuple):
    """How the loop reads the time (ms), runs work in a thread, and waits (seconds).

    ``now`` is the system clock, in ms since the epoch; ``elapsed`` is a clock that is never set.
    """

    now: Callable[[], int] = now_ms
    elapsed: Callable[[], int] = elapsed_ms
    in_thread: Callable[[Callable[[], Any]], Awaitable[Any]] = asyncio.to_thread
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


class ControlLoop:
    """``archive`` says where closed leases go; without it they stay in the cluster."""

    def __init__(  # noqa: PLR0913  the parts of a manager, and what a test puts in their place
        self,
        model: PlanningModel,
        view: ClusterView,
        writer: Writer,
        health: Health,
        log: Log,
        *,
        archive: ArchiveSettings | None = None,
        runtime: LoopRuntime = LoopRuntime(),  # noqa: B008  it is immutable
    ) -> None:
        self.woken = asyncio.Event()
        self._stopping = False
        self._model = model
        self._view = view
        self._health = health
        self._log = log
        self._runtime = runtime
        self._clock = PlanningClock(runtime.now, runtime.elapsed)
        self._held_nodes: tuple[str, ...] = ()
        self._is_ahead = False  # whether the log says that planning time is ahead of the system clock
        self._metrics = health.metrics
        self._gauges = WorldGauges(lambda: model.world, self._clock.now, self._metrics.forget_domains)
        self._set_aside = SetAside(self._clock.now)
        self._arrivals = Arrivals()
        self._decision_writer = DecisionWriter(writer, view, log, self._set_aside)
        self._report_writer = ReportWriter(self._decision_writer.write_reports, self._end_reports)
        self._lease_writer = LeaseWriter(writer, view, log, self._set_aside, self._report_writer.fail)
        self._pod_reconciler = PodReconciler(
            writer,
            view,
            log,
            self._clock.now,
            self.woken.set,
            leaves_out=self._set_aside.leaves_out,
            leases_written=self._lease_writer.written,
        )
        self._event_writer = EventWriter(writer, view, log)
        self._unreadable_runs = UnreadableRuns(writer, view, log)
        self._beacon_listener = BeaconListener(log, self.woken.set, lambda: runtime.now() / SECOND)
        self._lease_archiver = (
            LeaseArchiver(archive, writer, view, log, self._metrics) if archive is not None else None
        )

    async def run(self) -> None:
        """Turns until ``stop`` is called. Raises FencedError once this process may not write any more."""
        await self.start()
        while not self._stopping:
            self._health.record_turn()
            await self._wait(await self.turn())
        await self.drain()
        self._beacon_listener.stop()

    def stop(self) -> None:
        """Makes the present turn the last one; everything that it begins is finished."""
        self._stopping = True
        self.woken.set()

    async def start(self) -> None:
        """Builds the model, and waits a moment for values of the beacon that are published already."""
        await self._load()
        await self._beacon_listener.catch_up(self._model.world.policy.beacon, self._model.beacon_rounds())
        self._metrics.of_world = self._gauges.page

    async def drain(self) -> None:
        """Waits until all leases, reports, pods, Events and cordons are written whose writing has begun."""
        await self._report_writer.drain()
        await self._lease_writer.drain()
        await self._pod_reconciler.drain()
        await self._event_writer.drain()

    async def turn(self) -> WriteSet | None:
        """Takes in what changed, plans, and writes what was decided.

        Returns None if a decision was refused: then the model has been built again, for the next turn.
        """
        self.woken.clear()
        began = self._runtime.elapsed()
        write_set = await self._plan(await self._take_changes())
        try:
            await self._write(write_set)
            self._report_writer.raise_error()
        except FencedError:
            raise
        except (WriteRefusedError, KubeError) as refused:
            await self._rebuild_model(refused)
            return None
        self._health.trouble = ""
        self._arrivals.adapt(self._runtime.elapsed() - began)
        self._begin_events(write_set)
        if self._set_aside.must_rebuild:
            await self._load()
            self.woken.set()
        if self._pod_reconciler.has_outcomes or self._arrivals.are_left:
            self.woken.set()
        self._beacon_listener.follow_rounds(self._model.world.policy.beacon, write_set.beacon_rounds)
        await self._unreadable_runs.report(self._clock.now())
        await self._archive_leases()
        return write_set

    # The steps of a turn

    async def _take_changes(self) -> Changes:
        """Returns what changed in the cluster since the last turn."""
        self._mark_unwritten()
        changes = self._view.drain()
        self._dispatch(changes)
        due = self._set_aside.take_due()
        if due.left_out or self._model.status_is_ahead(changes):
            await self._load()
            changes = self._view.drain()
        for run in due.runs:
            self._model.retry(run)
        self._model.status_publisher.mark_names_unwritten(set(due.names))
        return self._arrivals.take(self._set_aside.without_left_out(changes))

    async def _plan(self, changes: Changes) -> WriteSet:
        outcomes = [*self._pod_reconciler.outcomes(), *self._beacon_listener.new_values()]
        self._report_clock()
        self._model.status_publisher.reservations.is_held = self._report_writer.is_busy
        write_set = await self._in_thread(
            self._model.take_turn, changes, outcomes, self._clock.now(), self._clock.ahead()
        )
        self._report_violations(write_set.violations)
        self._report_held_nodes(write_set.held_nodes)
        for measure in write_set.measures:
            self._metrics.record(measure)
        return write_set

    async def _write(self, write_set: WriteSet) -> None:
        """Writes decisions; reports are written, and pods are created and deleted, beside it."""
        resolutions = {batch.resolution.key for batch in write_set.batches if batch.resolution is not None}
        if resolutions:
            await self._report_writer.settle(resolutions)
        try:
            await self._decision_writer.write_decisions(write_set)
            self._record((*self._decision_writer.written_logs(), *write_set.logs))
            self._pod_reconciler.set_desired(self._desired_pods(write_set), write_set.failed_nodes)
            self._lease_writer.write(write_set.leases)
            self._pod_reconciler.start_reconciling()
            self._report_writer.add(self._decision_writer.with_versions(write_set))
        finally:
            self._record(self._decision_writer.written_logs())

    def _desired_pods(self, write_set: WriteSet) -> dict[str, DesiredPods]:
        """The pods of all Runs but those whose start could not be written."""
        leaves_out = self._set_aside.leaves_out
        return {uid: desired for uid, desired in write_set.desired_pods.items() if not leaves_out(uid)}

    def _mark_unwritten(self) -> None:
        """Has the model write again what could not be written."""
        runs, names = self._decision_writer.take_unwritten()
        for run_object in runs:
            self._model.status_publisher.mark_unwritten(run_object.metadata.uid, run_key(run_object))
        self._model.status_publisher.mark_names_unwritten(names)

    def _end_reports(self) -> None:
        """Records the reports that are written, and wakes the loop if it waited for them."""
        self._record(self._decision_writer.written_logs())
        reservations = self._model.status_publisher.reservations
        if (
            (reservations.is_held and reservations.has_more)
            or self._set_aside.has_event_notes
            or self._report_writer.has_error
        ):
            self.woken.set()

    def _begin_events(self, write_set: WriteSet) -> None:
        refused = self._set_aside.event_notes()
        leaves_out = self._set_aside.leaves_out
        told = [note for note in write_set.event_notes if not leaves_out(note.run.metadata.uid)]
        self._event_writer.write_events((*told, *refused, *self._pod_reconciler.event_notes()))
        self._event_writer.tell_refusals(refused)
        self._metrics.set_to(SET_ASIDE, len(self._set_aside))
        self._event_writer.cordon(write_set.cordons, self._clock.now())

    async def _archive_leases(self) -> None:
        """Moves a few old leases to the archive, if there is one."""

        async def carry(leases: list[Lease]) -> list[str]:
            kept = [lease for lease in leases if not self._set_aside.leaves_out(lease.spec.run_ref.uid)]
            return await self._in_thread(self._model.carry_leases, kept)

        if self._lease_archiver is not None and await self._lease_archiver.archive_batch(
            self._model, carry, self._clock.now()
        ):
            self.woken.set()

    async def _rebuild_model(self, refused: Exception) -> None:
        """Builds the model again after a write was refused, so that it decides from what the cluster says."""
        self._health.trouble = f"the last decision could not be written: {refused}"
        self._log.say("binder", "a decision was refused: planning again", why=str(refused))
        await self._runtime.sleep(TROUBLE_WAIT_SECONDS if isinstance(refused, KubeError) else 0)
        await self._load()
        self.woken.set()

    async def _wait(self, write_set: WriteSet | None) -> None:
        """Waits until something changes or is due."""
        alarms = [
            at
            for at in (
                write_set.wake_at if write_set else None,
                self._pod_reconciler.next_retry_at(),
                self._set_aside.next_retry_at(),
            )
            if at is not None
        ]
        until = (min(alarms) - self._clock.now()) / SECOND if alarms else MOST_WAIT_SECONDS
        ended = time.monotonic()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.woken.wait(), min(max(until, LEAST_WAIT_SECONDS), MOST_WAIT_SECONDS))
        await self._runtime.sleep(ended + PAUSE_SECONDS - time.monotonic())

    # Parts

    async def _load(self) -> None:
        """Builds the model from all objects of the cluster."""
        await self._report_writer.forget()
        self._decision_writer.take_unwritten()
        self._dispatch(self._view.drain())
        self._pod_reconciler.restart()
        self._beacon_listener.restart()
        if self._lease_archiver is not None:
            self._lease_archiver.restart()
        view = self._view
        written = await self._in_thread(
            latest_instant,
            [stored.value for stored in view.leases],
            [stored.value for stored in view.runs],
            [stored.value for stored in view.reservations],
        )
        self._clock.raise_to(written)
        self._set_aside.must_rebuild = False
        self._decision_writer.forget_postponed()
        self._arrivals.restart()
        everything = self._arrivals.take(self._set_aside.without_left_out(view.everything()))
        self._report_violations(
            await self._in_thread(self._model.load, everything, self._clock.now(), self._clock.ahead())
        )
        self._log.say(
            "binder",
            "the cluster is read",
            nodes=len(self._view.nodes),
            runs=len(self._view.runs),
            leases=len(self._view.leases),
        )

    def _report_held_nodes(self, nodes: tuple[str, ...]) -> None:
        """Logs when the breaker holds other nodes than before (F2c)."""
        if nodes != self._held_nodes:
            self._held_nodes = nodes
            message = NODES_ARE_HELD if nodes else "no node is held any more"
            self._log.say("binder", message, count=len(nodes), nodes=nodes[:MOST_NAMES])

    def _report_clock(self) -> None:
        """Measures by how much planning time is ahead of the system clock, and logs when that begins."""
        ahead = self._clock.ahead()
        self._metrics.set_to(CLOCK_AHEAD, ahead / SECOND)
        if (ahead >= NOTABLE_MS) != self._is_ahead:
            self._is_ahead = not self._is_ahead
            message = CLOCK_IS_AHEAD if self._is_ahead else "the system clock has caught up"
            self._log.say("manager", message, seconds=ahead // SECOND)

    def _dispatch(self, changes: Changes) -> None:
        """Passes changes to the parts that are not built again with the model."""
        self._set_aside.handle_changes(changes.runs)
        self._pod_reconciler.handle_changes(changes.pods)
        self._pod_reconciler.handle_service_changes(changes.services)
        self._event_writer.handle_node_changes(changes.nodes)
        if self._lease_archiver is not None:
            self._lease_archiver.handle_changes(changes.leases)

    async def _in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs work on the model in a thread; readers of the world wait until it is done."""

        def planning() -> T:
            with self._gauges.planning():
                return work(*args, **kwargs)

        result: T = await self._runtime.in_thread(planning)
        return result

    def _record(self, decision_logs: Iterable[DecisionLog]) -> None:
        """Logs and counts decisions that are written."""
        for decision_log in decision_logs:
            for part, line in decision_log.lines:
                self._log.say(part, **line)
            for measure in decision_log.measures:
                self._metrics.record(measure)

    def _report_violations(self, violations: Iterable[Violation]) -> None:
        for violation in violations:
            self._metrics.count(violation)
            self._log.say(
                "check", "an invariant is broken", invariant=violation.invariant, why=violation.message
            )
