"""Replays a trace under Jobtree: the planner of a live cluster, on a world without documents.

Jobs become Runs, and teams own Budgets. Each instant is planned until nothing is left to do, as in a
simulated cluster, but no object is written, so an event costs only its plan. Finished Runs are removed from
the world at once, so memory depends only on the Runs that wait or run.
"""

import msgspec

from jobtree.api.kinds.run import Resources, Run, RunSpec, Runtime
from jobtree.api.schema.object_meta import ObjectMeta
from jobtree.api.schema.quantities import format_duration, format_time
from jobtree.core import (
    FINAL_STATES,
    REQUEUES,
    RUN_ENDS,
    Action,
    GpuLease,
    Plan,
    RunKey,
    World,
    is_conditional,
    kept_for_ms,
    outcome_of,
    run_to_rest,
)
from jobtree.simulation.cluster.simulated_work import SimulatedWork
from jobtree.simulation.inputs.replay_setup import ReplaySetup
from jobtree.simulation.inputs.user_behavior import declared
from jobtree.simulation.replay.engine import FOREVER, Simulation
from jobtree.simulation.replay.estimate_log import EstimateLog
from jobtree.simulation.replay.promise_log import PromiseLog

NAMESPACE = "trace"


class JobtreeScheduler(Simulation):
    def __init__(self, setup: ReplaySetup) -> None:
        super().__init__(setup)
        self.world = World(setup.policy, setup.epoch)
        self.world.lottery_key = bytes(32)
        for node in setup.nodes:
            self.world.put_node(node)
        for budget in setup.budgets:
            self.world.put_budget(budget)
        self.promises = PromiseLog(kept_for_ms(setup.policy, setup.behavior.checkpoint))
        self.estimates = EstimateLog()
        self._numbers = {node.name: number for number, node in enumerate(setup.nodes)}
        self._work: dict[int, SimulatedWork] = {}
        self._declared = declared(setup.trace, setup.behavior)
        self._widths: dict[int, int] = {}
        self._paid_widths: dict[int, int] = {}
        self._started: dict[int, int] = {}  # when the running jobs started
        self._leases: dict[str, GpuLease] = {}
        self._closed: dict[int, list[str]] = {}  # names of the closed leases of each job
        self._provisional: set[int] = set()

    # Events

    def own_instant(self) -> int:
        instant = self.world.timers.next_instant()
        return FOREVER if instant is None else max(instant - self.setup.epoch, self.now)

    def arrive_at(self, at: int) -> None:
        self.promises.judge(before=at + self.setup.epoch)
        self.world.advance_clock(at + self.setup.epoch)

    def submit(self, job: int) -> None:
        self.world.put_run(self._run(job))
        self._work[job] = SimulatedWork(self.trace.duration[job] * self.trace.gpus[job])

    def complete(self, job: int, at: int) -> None:
        self.world.finish((NAMESPACE, str(job)), succeeded=True, at=at + self.setup.epoch)

    def node_down(self, node: int, at: int) -> None:  # noqa: ARG002  the simulation's signature
        self.world.put_node(msgspec.structs.replace(self.setup.nodes[node], failed=True))

    def node_up(self, node: int, at: int) -> None:  # noqa: ARG002  the simulation's signature
        self.world.put_node(self.setup.nodes[node])

    def decide(self, at: int) -> None:
        at_rest = run_to_rest(self.world, self._apply_plan, creates_children=False)
        assert at_rest, "something is still left to do after the last plan of an instant"
        self.promises.judge(before=at + self.setup.epoch + 1)
        self.estimates.close_instant(self.world)

    def _apply_plan(self, plan: Plan) -> None:
        self.world.apply_plan(plan)
        for action in plan.actions:
            self._apply_action(action)

    def _run(self, job: int) -> Run:
        behavior, limit = self.setup.behavior, self._declared
        runtime = Runtime(
            checkpoint=format_duration(behavior.checkpoint) if behavior.checkpoint else None,
            on_notice="Checkpoint" if behavior.notice else "Ignore",
            max_duration=None if limit is None else format_duration(limit[job]),
        )
        created = format_time(self.trace.submit[job] + self.setup.epoch)
        return Run(
            metadata=ObjectMeta(
                name=str(job), namespace=NAMESPACE, uid=job_uid(job), creation_timestamp=created
            ),
            spec=RunSpec(
                owner=self.setup.owners[self.trace.team[job]],
                resources=Resources(total_gpus=self.trace.gpus[job], gpu_type=self.setup.flavor),
                runtime=runtime,
            ),
        )

    # Actions

    def _apply_action(self, action: Action) -> None:
        job, at = int(action.run_key[1]), action.at - self.setup.epoch
        before = self._widths.get(job, 0)
        for closing in action.closes:
            self._count_lease(self._leases.pop(closing.lease), closing.at - self.setup.epoch, -1)
            self._closed.setdefault(job, []).append(closing.lease)
        for lease in action.opens:
            self._leases[lease.name] = lease
            self._count_lease(lease, at, 1)
        conditional = action.promise is not None and is_conditional(self.world, action.promise)
        self.promises.note(action, self._paid_widths.get(job, 0), conditional=conditional)
        if action.kind == "Reserve":
            self.estimates.record_reservation(action.run_key)
        if action.kind in REQUEUES:
            self._stop(action, job, at)
        elif action.kind in RUN_ENDS:
            self._end_job(action.run_key, job, at)
        elif action.kind == "Recover":
            self._recover(job, at)
        elif (width := self._widths.get(job, 0)) != before:
            self._continue(action, job, width, at)
        if FINAL_STATES.get(action.kind) == "Activated":
            self._provisional.discard(job)

    def _count_lease(self, lease: GpuLease, at: int, sign: int) -> None:
        for node, mask in lease.slots:
            self.meter.take(self._numbers[node], sign * mask.bit_count(), at)
        job = int(lease.run_key[1])
        self.meter.widen(job, sign * lease.gpus, at)
        self._widths[job] = self._widths.get(job, 0) + sign * lease.gpus
        if lease.class_ != "Opportunistic":
            self._paid_widths[job] = self._paid_widths.get(job, 0) + sign * lease.gpus

    def _continue(self, action: Action, job: int, width: int, at: int) -> None:
        """Starts the work, or continues it at another width."""
        delay = 0
        if action.kind == "Start":
            delay = self.meter.start(job, at)
            self._started[job] = at
            self.estimates.starts.record_start(action.run_key, action.at)
            if action.provisional:
                self._provisional.add(job)
        work = self._work[job]
        work.resize(width, at, delay)
        self.expect_end(job, work.ends_at())

    def _stop(self, action: Action, job: int, at: int) -> None:
        """Stops a Run: with notice it has saved its state, else it returns to its last checkpoint."""
        work, behavior = self._work[job], self.setup.behavior
        self.expect_end(job, None)
        if self._started.pop(job, None) == at:  # the same plan started it and stopped it for another Run
            work.resize(0, at)
            self._provisional.discard(job)
            self.meter.undo_start(job, at)
            self.estimates.starts.undo_start(action.run_key)
            return
        done = work.progress(at)
        warned = action.kind == "Preempt" or job in self._provisional
        if behavior.notice and warned:
            work.resize(0, at)
        else:
            work.stop(at, behavior.checkpoint)
        self._provisional.discard(job)
        counted_as = outcome_of(action.kind, action.cause.reason).counted_as or action.cause.reason
        self.meter.stop(job, at, str(counted_as), done - work.done)

    def _recover(self, job: int, at: int) -> None:
        """Continues on other nodes after a node failure, from the last checkpoint."""
        work = self._work[job]
        done = work.progress(at)
        work.stop(at, self.setup.behavior.checkpoint)
        self.meter.interrupt(at, "NodeFailure", done - work.done)
        work.resize(self._widths[job], at, self.meter.restart(job, at))
        self.expect_end(job, work.ends_at())

    def _end_job(self, run_key: RunKey, job: int, at: int) -> None:
        self.meter.end_job(job, at)
        self.expect_end(job, None)
        self._provisional.discard(job)
        del self._work[job], self._widths[job], self._paid_widths[job]
        self._started.pop(job, None)
        self.world.drop_run(run_key)
        self.world.forget_run(job_uid(job), self._closed.pop(job, ()))
        self.world.run_history.trim(self.setup.owners[self.trace.team[job]])


def job_uid(job: int) -> str:
    return f"{job:08d}-trace"
