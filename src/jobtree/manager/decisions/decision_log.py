"""Deeds: what is counted and logged of a decision, once it is written.

A deed goes with the write that commits its decision: of a resolution the Reservation, of stages that start
together their tree, else the Run; what only changes promises goes with the step. So a decision that was
refused is neither counted nor logged, and one that was written is, once, even if a later one was refused.
"""

from collections.abc import Iterable, Iterator, Sequence

from jobtree.api.kinds.lease import ClosureReason
from jobtree.api.kinds.run import Run
from jobtree.api.schema.quantities import SECOND
from jobtree.core import (
    KEEPS_PROMISE,
    PREEMPTION_CLOSURES,
    Action,
    GpuLease,
    Promise,
    Record,
    RunKey,
    RunState,
    World,
    outcome_of,
    upstreams,
)
from jobtree.manager.decisions.write_set import DecisionLog
from jobtree.manager.metrics import (
    ADMISSION,
    DRAWS,
    PREEMPTIONS,
    PROMISE_ERROR,
    RESOLVER,
    SUBMITTED,
    Measure,
)
from jobtree.messages.record_signature import sign
from jobtree.messages.run_events import merged_actions

Ended = tuple[GpuLease, ClosureReason]
SUBMITTED_LOG = DecisionLog(measures=(Measure(SUBMITTED),))


def decision_logs(world: World, actions: Sequence[Action]) -> dict[RunKey, tuple[DecisionLog, ...]]:
    """The deeds of actions that are about to be carried out, by the Run that each is about."""
    found: dict[RunKey, tuple[DecisionLog, ...]] = {}
    kept: set[RunKey] = set()  # Reservations: one that starts several stages is one promise
    opened = {lease.name: lease for action in actions for lease in action.opens}
    for action in merged_actions(actions):
        ended = [
            (opened.get(one.lease) or world.posted_leases[one.lease].lease, one.reason)
            for one in action.closes
        ]
        measures = [*measures_of(world, action, ended)]
        promise = action.promise if action.kind in KEEPS_PROMISE else None
        if promise is not None and (action.run_key[0], promise.name) not in kept:
            kept.add((action.run_key[0], promise.name))
            measures += promise_measures(promise, action.at)
        deed = DecisionLog(tuple(log_lines(world, action, ended)), tuple(measures))
        found[action.run_key] = (*found.get(action.run_key, ()), deed)
    return found


# Logged


def log_lines(world: World, action: Action, ended: list[Ended]) -> Iterator[tuple[str, dict[str, object]]]:
    """The line of an action: which part decided it, and why."""
    if action.kind == "Withdraw" and action.promise is None:
        return  # it is looked at again: what comes of that is told
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
    """A Run went before its leases were ended: somebody took its finalizer away."""
    line: dict[str, object] = {
        "message": "a Run is gone that held a lease: it is ended",
        "run": "/".join(lease.run_key),
        "lease": lease.name,
        "closes": lease.gpus,
    }
    return DecisionLog((("binder", line),))


def loser_name(world: World, uid: str) -> str:
    """A Run by its name; a record names Runs by UID."""
    return next(("/".join(run.key) for run in world.runs.values() if run.uid == uid), uid)


# Counted


def measures_of(world: World, action: Action, ended: list[Ended]) -> Iterator[Measure]:
    run = world.runs[action.run_key]
    if action.kind == "Start" and run.shape is not None and not run.attempt:
        waited = (action.at - waits_since(world, run, action.at)) / SECOND
        yield Measure(ADMISSION, (run.flavor, str(action.cause.reason)), waited)
    if action.record is not None:
        yield from resolver_measures(action.record, run.flavor)
    if not outcome_of(action.kind, action.cause.reason).by_owner:
        yield from preemption_measures(world, ended)


def waits_since(world: World, run: RunState, now: int) -> int:
    """Since its creation, or the end of the last that it follows, which may end with this very plan."""
    ends = [one.run.phase_at for one in upstreams(world, run) if one.run is not None and one.done]
    ending = [now for one in upstreams(world, run) if not one.done]
    return min(now, max(run.created, *ends, *ending, 0))


def promise_measures(promise: Promise, at: int) -> Iterator[Measure]:
    """By how much a start missed what was promised before any slip; nothing, where it had no date."""
    first = next((slip.before for slip in promise.slips if slip.before is not None), promise.at)
    if first is not None:
        yield Measure(PROMISE_ERROR, value=(at - first) / SECOND)


def resolver_measures(record: Record, flavor: str) -> Iterator[Measure]:
    """What was taken, in each domain that it was taken in."""
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


def preemption_measures(world: World, ended: list[Ended]) -> Iterator[Measure]:
    """A Run that lost GPUs to others counts once in each domain, for each reason."""
    lost = {
        (lease.flavor, domain, reason)
        for lease, reason in ended
        if reason in PREEMPTION_CLOSURES
        for domain in domains_of_nodes(world, (node for node, _ in lease.slots))
    }
    for labels in sorted(lost):
        yield Measure(PREEMPTIONS, labels)


def domains_of_nodes(world: World, nodes: Iterable[str]) -> set[str]:
    """Where those of these nodes are that are still there."""
    found = (world.fleet.nodes.get(node) for node in nodes)
    return {state.domain.name for state in found if state is not None}


def is_submission(run: Run) -> bool:
    """Whether the first status of this Run is what is written now. Stages are not submitted: trees are."""
    owners = run.metadata.owner_references
    return run.status.phase is None and not any(one.controller and one.kind == "Run" for one in owners)
