"""Activation: a promise is due, and what has to give way does (SPEC section 6).

All is decided before anything is carried out, and nothing is kept unless the Run then starts.
"""

from jobtree.api.lease import ClosureReason
from jobtree.core.cover import refusals
from jobtree.core.gang import Layout
from jobtree.core.giveway import requeue, surrender
from jobtree.core.lease import Lease, join_pods, pods_of
from jobtree.core.lottery import nonce_for
from jobtree.core.promise import Promise
from jobtree.core.reasons import Reason, Why
from jobtree.core.record import Mixed, Record, refuse_with, resolve_with
from jobtree.core.reserve import promise_start, renew
from jobtree.core.runs import RunState
from jobtree.core.settle import disturbs_nobody, find_payers
from jobtree.core.steps import Step
from jobtree.core.takings import Docket, Quarry
from jobtree.core.trial import Terms, Trial
from jobtree.core.world import World


def activate(trial: Trial, state: RunState) -> None:
    """Start a Run whose promise is due; where that cannot be, the promise slips and says why."""
    promise = state.promise
    assert promise is not None
    now = trial.world.now
    mark = trial.mark()
    if state.phase == "Running":
        if stays(trial, state, promise):
            return
        requeue(trial, state, now, Why(Reason.RECLAIMED), "Reclaimed")
    docket = Docket(trial.world, state, promise)
    record = draw(trial.world, state, promise, docket)
    if record.commitment != promise.commitment:
        trial.rollback(mark)
        refuse(trial, state, promise, record)
        return
    reason = resolve(trial, state, promise, docket, record)
    if reason is not None:
        trial.rollback(mark)
        renew(trial, state, reason, now + trial.world.policy.max_notice_ms)


def draw(world: World, state: RunState, promise: Promise, docket: Docket) -> Record:
    """Reveal the nonce, mix in the beacon that was fixed with the promise if it is at hand, and decide."""
    nonce = nonce_for(world.lottery_key, state.uid, promise.number)
    name, number = promise.beacon or ("", 0)
    mixed = Mixed(name, number, world.beacon_values.get((name, number), ""))
    return resolve_with(promise.name, state.uid, promise.number, nonce, docket.case, mixed)


def refuse(trial: Trial, state: RunState, promise: Promise, record: Record) -> None:
    """Nothing may be drawn from what was not committed to: the record says so, and the Run begins anew."""
    why = Why(Reason.KEY_CHANGED, promise.name)
    proof = refuse_with(record, promise.commitment)
    trial.act("Withdraw", state, trial.world.now, why, promise=promise, record=proof)
    if state.waiting:
        promise_start(trial, state, promise.pod_size)


def stays(trial: Trial, state: RunState, promise: Promise) -> bool:
    """A provisional or unpaid Run whose promise is due stays where it is, if that disturbs nobody."""
    mark, now = trial.mark(), trial.world.now
    if state.unpaid:
        find_payers(trial, state)
        return state.promise is None
    trial.act("Settle", state, now, Why(Reason.ACTIVATED, promise.name), promise=promise)
    if disturbs_nobody(trial.world, state):
        return True
    trial.rollback(mark)
    return False


def resolve(trial: Trial, state: RunState, promise: Promise, docket: Docket, record: Record) -> Reason | None:
    """Carry out what was decided; the reason why not, where it fails."""
    world = trial.world
    if not record.decision.packs:
        return Reason.CROWDED_OUT
    cause = Why(Reason.ACTIVATED, promise.name, promise.width, promise.width)
    carry_out(trial, docket, record, cause)
    release_money(trial, state, promise)
    trial.act("Start", state, world.now, cause, pod_size=promise.pod_size)
    layout = Layout(trial, state, promise.pod_size, world.now, "Start", within=dict(promise.shares))
    if not layout.place(promise.width):
        lacking = refusals(world, state, promise.width, promise.pod_size, world.now)
        return Reason.FUNDING_LOST if lacking else Reason.CROWDED_OUT
    trial.act("Activate", state, world.now, cause, promise=promise, record=record)
    return None


def carry_out(trial: Trial, docket: Docket, record: Record, cause: Why) -> None:
    """Take what was decided: unpaid work, spares and steps, then the losers."""
    now = trial.world.now
    kept = [docket.quarries[index] for index in record.decision.takings]
    whole = {quarry.taking.run for quarry in kept if quarry.leases and quarry.taking.kind == "Reclaim"}
    steps: dict[str, list[Quarry]] = {}
    for quarry in kept:
        if quarry.step:
            steps.setdefault(quarry.taking.run, []).append(quarry)
        else:
            take(trial, quarry, now, cause)
    for uid, quarries in steps.items():
        if uid not in whole:
            reason: ClosureReason = "Shrink" if quarries[0].taking.kind == "Shrink" else "Reclaimed"
            shrink(trial, quarries[0].state, [quarry.step for quarry in quarries], reason, cause)
    by_uid = {state.uid: state for state in docket.holders}
    for uid in record.decision.losers:
        preempt(trial, by_uid[uid], now, record)


def release_money(trial: Trial, state: RunState, promise: Promise) -> None:
    """Provisional work that uses the promised money goes, newest first, until the Run can be paid (R6)."""
    world = trial.world
    keys = {key for key, _ in promise.funding}
    users = [
        other
        for other in (world.runs[key] for key in world.provisional)
        if other is not state
        and other.yields_to(promise.rank)
        and any(lease.payer in keys for lease in other.leases.values())
    ]
    for other in sorted(users, key=lambda other: (other.since or 0, other.order), reverse=True):
        if not refusals(world, state, promise.width, promise.pod_size, world.now):
            return
        clear_spares(trial, other, world.now)
        requeue(trial, other, world.now, Why(Reason.RECLAIMED), "Reclaimed")


def take(trial: Trial, quarry: Quarry, at: int, cause: Why) -> None:
    state = quarry.state
    if quarry.taking.kind == "DropSpares":
        for lease in quarry.leases:
            clear_spare(trial, lease, at)
            trial.act("DropSpare", state, at, cause)
            trial.close(lease.name, at, "DropSpare")
    else:
        clear_spares(trial, state, at)
        requeue(trial, state, at, Why(Reason.RECLAIMED), "Reclaimed")


def clear_spares(trial: Trial, state: RunState, at: int) -> None:
    for lease in sorted(state.leases.values(), key=lambda lease: lease.name):
        if lease.role == "Spare":
            clear_spare(trial, lease, at)


def clear_spare(trial: Trial, spare: Lease, at: int) -> None:
    """Unpaid work that stands on a spare's slots goes with the spare."""
    world = trial.world
    for node, mask in spare.slots:
        for name in sorted(world.by_node.get(node, ())):
            other = world.held[name].lease if name in world.held else spare
            if other.role == "Opportunistic" and any(n == node and m & mask for n, m in other.slots):
                surrender(trial, other, at, "Reclaimed")


def shrink(trial: Trial, state: RunState, steps: list[Step], reason: ClosureReason, cause: Why) -> None:
    """Give up these pods; what a lease keeps goes on as a new one."""
    at = trial.world.now
    trial.act("Shrink", state, at, cause)
    gone: dict[str, set[tuple[str, int]]] = {}
    for step in steps:
        for piece in step:
            gone.setdefault(piece.lease, set()).add((piece.node, piece.mask))
    for name in sorted(gone):
        lease = trial.close(name, at, reason)
        keep = [pod for pod in pods_of(lease.slots, state.pod_size) if pod not in gone[name]]
        if keep:
            envelope = trial.world.ledger.envelopes[lease.payer]
            terms = Terms(envelope, lease.class_, lease.role, lease.group)
            trial.open(state, terms, join_pods(keep), at, "Continue")
    drop_orphans(trial, state, at)


def drop_orphans(trial: Trial, state: RunState, at: int) -> None:
    """Spares of groups that are gone go with them."""
    groups = {lease.group for lease in state.leases.values() if lease.role != "Spare"}
    for name in sorted(state.leases):
        if state.leases[name].role == "Spare" and state.leases[name].group not in groups:
            trial.close(name, at, "Shrink")


def preempt(trial: Trial, state: RunState, at: int, record: Record) -> None:
    """A Run lost the lottery: it queues again, or is Failed where it does not want to (X6)."""
    clear_spares(trial, state, at)
    cause = Why(Reason.RANDOM_PREEMPT, f"{record.reservation}, seed {record.seed}")
    trial.act("Preempt" if state.run.spec.runtime.requeue else "Fail", state, at, cause)
    for name in sorted(state.leases):
        trial.close(name, at, "RandomPreempt")
