"""Builds the log lines and measures of a decision, which count once it is written.

They go with the write that commits the decision: that of the Reservation for a resolution, of the tree for
stages that start together, else of the Run. Those of decisions that only change promises go with the write
set. So a refused decision is neither counted nor logged, and a written one is logged once, even if a later
one was refused.
"""

from collections.abc import Iterable, Iterator, Sequence

from jobtree.api.kinds.lease import ClosureReason
from jobtree.api.kinds.run import Run
from jobtree.api.schema.quantities import SECOND
from jobtree.core import (
    KEEPS_PROMISE,
    ON_TIME_MS,
    PREEMPTION_CLOSURES,
    REQUEUES,
    Action,
    GpuLease,
    Promise,
    Reason,
    Record,
    RunKey,
    RunState,
    World,
    is_conditional,
    kept_for_ms,
    outcome_of,
    upstreams,
)
from jobtree.manager.decisions.write_set import DecisionLog
from jobtree.manager.metrics import (
    ADMISSION,
    DRAWS,
    PREEMPTIONS,
    PROMISE_ERROR,
    PROMISES,
    RESOLVER,
    SUBMITTED,
    Measure,
)
from jobtree.messages.record_signature import sign
from jobtree.messages.run_events import merged_actions

Ended = tuple[GpuLease, ClosureReason]
SUBMITTED_LOG = DecisionLog(measures=(Measure(SUBMITTED),))


def decision_logs(world: World, actions: Sequence[Action]) -> dict[RunKey, tuple[DecisionLog, ...]]:
    """Returns the logs of actions that are about to be applied, by Run."""
    logs: dict[RunKey, tuple[DecisionLog, ...]] = {}
    kept: set[RunKey] = set()  # Reservations whose error is measured; stages of a gang share one
    opened = {lease.name: lease for action in actions for lease in action.opens}
    for action in merged_actions(actions):
        ended = [
            (opened.get(closing.lease) or world.posted_leases[closing.lease].lease, closing.reason)
            for closing in action.closes
        ]
        measures = [*measures_of(world, action, ended), *early_stop_measures(world, action)]
        promise = action.promise if action.kind in KEEPS_PROMISE else None
        if promise is not None and (action.run_key[0], promise.name) not in kept:
            kept.add((action.run_key[0], promise.name))
            measures += promise_measures(world, promise, action.at)
        log = DecisionLog(tuple(log_lines(world, action, ended)), tuple(measures))
        logs[action.run_key] = (*logs.get(action.run_key, ()), log)
    return logs


# Lines


def log_lines(world: World, action: Action, ended: list[Ended]) -> Iterator[tuple[str, dict[str, object]]]:
    """The line of an action: the part that decided it, and its fields."""
    if action.kind == "Withdraw" and action.promise is None:
        return  # the Run is decided again, and that decision is logged
    line: dict[str, object] = {
        "message": action.kind,
        "run": "/".join(action.run_key),
        "cause": str(action.cause.reason),
        "why": str(action.cause),
    }
    if action.opens:
        line["opens"] = sum(lease.gpus for lease in action.opens)
    if ended:
        line["closes"] = sum(lease.gpus for lease, _ in ended)
        line["reasons"] = sorted({reason for _, reason in ended})
    if action.promise is not None:
        line["reservation"] = action.promise.name
    record = action.record
    if record is not None:
        line["seed"] = record.seed
    if record is not None and record.decision.losers:
        line["message"] = "RandomPreempt"
        line["losers"] = [loser_name(world, uid) for uid in record.decision.losers]
        line["record"] = sign(record, world.lottery_key)
    yield outcome_of(action.kind, action.cause.reason).part, line


def run_gone_log(lease: GpuLease) -> DecisionLog:
    """The log of a lease whose Run is gone: somebody removed the finalizer of the Run."""
    line: dict[str, object] = {
        "message": "a Run is gone that held a lease: it is ended",
        "run": "/".join(lease.run_key),
        "lease": lease.name,
        "closes": lease.gpus,
    }
    return DecisionLog((("binder", line),))


def loser_name(world: World, uid: str) -> str:
    """Returns the name of a Run; a record names Runs by UID."""
    return next(("/".join(run.key) for run in world.runs.values() if run.uid == uid), uid)


# Measures


def measures_of(world: World, action: Action, ended: list[Ended]) -> Iterator[Measure]:
    run = world.runs[action.run_key]
    if action.kind == "Start" and run.shape is not None and not run.attempt:
        waited = (action.at - waits_since(world, run, action.at)) / SECOND
        yield Measure(ADMISSION, (run.flavor, str(action.cause.reason)), waited)
    if action.record is not None:
        yield from resolver_measures(action.record, run.flavor)
    if not outcome_of(action.kind, action.cause.reason).by_owner:
        yield from preemption_measures(world, ended, stopped=action.kind in REQUEUES)


def waits_since(world: World, run: RunState, now: int) -> int:
    """Returns the creation time of a Run, or the end of the last Run that it follows, if that is later."""
    all_upstreams = list(upstreams(world.run_graph, run))
    ends = [upstream.run.phase_at for upstream in all_upstreams if upstream.run is not None and upstream.done]
    ending = [now for upstream in all_upstreams if not upstream.done]  # with the same plan
    return min(now, max(run.created, *ends, *ending, 0))


def promise_measures(world: World, promise: Promise, at: int) -> Iterator[Measure]:
    """The difference (s) between a start and its first promised date, and whether it is on time.

    A promise that never had a date has neither.
    """
    dates = [slip.before for slip in promise.slips if slip.before is not None]
    first = next(iter(dates), promise.at)
    if first is None or promise.at is None:
        return
    yield Measure(PROMISE_ERROR, value=(at - first) / SECOND)
    confidence = "conditional" if is_conditional(world, promise) else "firm"
    on_time = at <= min([*dates, promise.at]) + ON_TIME_MS
    yield Measure(PROMISES, (confidence, "onTime" if on_time else "late"))


def early_stop_measures(world: World, action: Action) -> Iterator[Measure]:
    """Counts a Run that Jobtree stops too soon after its promised start; of a gang, only the first stage."""
    run = world.runs[action.run_key]
    due, stopped = run.promised_start, action.kind in REQUEUES or action.cause.reason is Reason.RANDOM_PREEMPT
    if not stopped or due is None or run.key != (run.gang or (run.key,))[0]:
        return
    if due <= action.at < due + kept_for_ms(world.policy, run.checkpoint_ms):
        shared = any(lease.class_ == "Shared" for lease in run.leases.values())
        yield Measure(PROMISES, ("conditional" if shared else "firm", "stopped"))


def resolver_measures(record: Record, flavor: str) -> Iterator[Measure]:
    """Counts what a resolution took, once in each domain."""
    case, decision = record.case, record.decision
    domains = {room.node: room.domain for room in case.nodes}
    taken = [(case.takings[index].kind, case.takings[index].gpus) for index in decision.takings]
    losers = frozenset(decision.losers)
    drawn = [("Lottery", ticket.gpus) for ticket in case.tickets if ticket.run in losers]
    for kind, gpus in (*taken, *drawn):
        for domain in sorted({domains[node] for node, _ in gpus if node in domains}):
            yield Measure(RESOLVER, (kind, flavor, domain))
    if decision.draws:
        yield Measure(DRAWS, value=len(decision.draws))


def preemption_measures(world: World, ended: list[Ended], *, stopped: bool) -> Iterator[Measure]:
    """Counts a Run that lost GPUs to others once in each domain, for each reason.

    A recall takes GPUs only from a Run that is stopped.
    """
    lost = {
        (lease.flavor, domain, reason)
        for lease, reason in ended
        if reason in PREEMPTION_CLOSURES or (stopped and reason == "Recalled")
        for domain in domains_of_nodes(world, (node for node, _ in lease.slots))
    }
    for labels in sorted(lost):
        yield Measure(PREEMPTIONS, labels)


def domains_of_nodes(world: World, nodes: Iterable[str]) -> set[str]:
    """Returns the domains of those nodes that still exist."""
    domains = (world.fleet.domain_by_node.get(node) for node in nodes)
    return {domain.name for domain in domains if domain is not None}


def is_submission(run: Run) -> bool:
    """Whether the Run has no status yet, and is no stage: a tree is submitted, its stages are not."""
    owners = run.metadata.owner_references
    return run.status.phase is None and not any(owner.controller and owner.kind == "Run" for owner in owners)
