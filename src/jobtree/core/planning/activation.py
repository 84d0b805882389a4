"""Activation: a promise is due, and what has to give way does (SPEC section 6).

All is decided before anything is carried out, and nothing is kept unless the Run then starts.
"""

from collections.abc import Sequence
from functools import partial

from jobtree.api.kinds.lease import ClosureReason
from jobtree.core.funding.cover import refusals
from jobtree.core.funding.future_funding import funding_at
from jobtree.core.lottery.draw import nonce_for
from jobtree.core.lottery.resolution_record import Mixed, Record, refuse_with, resolve_with
from jobtree.core.model.gpu_lease import EnvelopeKey, Lease
from jobtree.core.model.promise import Order, Promise, Rank
from jobtree.core.model.reasons import Reason, Why
from jobtree.core.operations.gang_layout import Layout
from jobtree.core.operations.payer_changes import disturbs_nobody, find_payers
from jobtree.core.operations.promise_changes import promise_start
from jobtree.core.operations.reclaim import Taking, evict_guests, give_up, recalls, requeue, take_least
from jobtree.core.operations.stage_gang_promise import look_again, promise_together
from jobtree.core.operations.trial import Trial
from jobtree.core.operations.victims import Docket, Quarry
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World


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
    reason = resolve_all(trial, state)
    if reason is None:
        return
    trial.rollback(mark)
    if reason is Reason.KEY_CHANGED:
        refuse(trial, state)
    else:
        look_again(trial, state, reason, now + trial.world.policy.max_notice_ms)


def resolve_all(trial: Trial, state: RunState) -> Reason | None:
    """The Run, or one after the other all that start together with it; why not, where one fails.

    Each was promised its part behind those before it, and so each gets it.
    """
    for member in sorted(trial.world.kin.members(state), key=promised_first):
        promise = member.promise
        if promise is not None:
            docket = Docket(trial.world, member, promise, trial.settled())
            record = draw(trial.world, member, promise, docket)
            if record.commitment != promise.commitment:
                return Reason.KEY_CHANGED
            reason = resolve(trial, member, promise, docket, record)
            if reason is not None:
                return reason
        elif member.shape is None:
            trial.act("Start", member, trial.world.now, Why(Reason.NO_GPUS))
    return None


def promised_first(state: RunState) -> tuple[bool, Rank | Order]:
    """In the order of promises; those that need none, and so no GPUs, last."""
    promise = state.promise
    return (promise is None, state.order if promise is None else promise.rank)


def draw(world: World, state: RunState, promise: Promise, docket: Docket) -> Record:
    """Reveal the nonce, mix in the beacon that was fixed with the promise if it is at hand, and decide."""
    holder = world.runs.get((state.key[0], promise.holder), state)
    nonce = nonce_for(world.lottery_key, holder.uid, promise.number)
    name, number = promise.beacon or ("", 0)
    mixed = Mixed(name, number, world.beacon_values.get((name, number), ""))
    return resolve_with(promise.name, holder.uid, promise.number, nonce, docket.case, mixed)


def refuse(trial: Trial, state: RunState) -> None:
    """Nothing may be drawn from what was not committed to: the record says so, and the Run begins anew."""
    world = trial.world
    party = [(one, one.promise) for one in world.kin.members(state) if one.promise is not None]
    for one, promise in party:
        record = draw(world, one, promise, Docket(world, one, promise))
        why, proof = Why(Reason.KEY_CHANGED, promise.name), refuse_with(record, promise.commitment)
        trial.act("Withdraw", one, world.now, why, promise=promise, record=proof)
    if state.gang:
        promise_together(trial, [one for one, _ in party])
    elif state.waiting:
        promise_start(trial, state, party[0][1].pod_size)


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

    def funded() -> bool:
        return not refusals(world, state, promise.width, promise.pod_size, world.now)

    def begin() -> bool:
        return start_paid(trial, state, promise, cause)

    def recall() -> bool:
        if not refusals(world, state, promise.width, promise.pod_size, world.now, anywhere=True):
            return False
        return take_least(trial, recalls(trial, state, world.now), funded, begin)

    if not begin() and not recall():
        _, lacking = funding_at(world, state, promise.width, promise.pod_size, world.now, promise.rank)
        return Reason.FUNDING_LOST if lacking else Reason.CROWDED_OUT
    trial.act("Activate", state, world.now, cause, promise=promise, record=record)
    return None


def start_paid(trial: Trial, state: RunState, promise: Promise, cause: Why) -> bool:
    """Start in the slice, paid for by those that it counted on: others count on what the nearer ones keep.

    Anybody else may pay where no other promise is the worse for it, or where nothing else helps. Before
    that, provisional work that uses the money goes (R6).
    """
    mark, promised = trial.mark(), dict(promise.funding)

    def attempt(payers: dict[EnvelopeKey, int] | None) -> bool:
        before, now = trial.mark(), trial.world.now
        trial.act("Start", state, now, cause, pod_size=promise.pod_size)
        size, slice_ = promise.pod_size, dict(promise.shares)
        placed = Layout(trial, state, size, now, "Start", within=slice_, paid_by=payers).place(promise.width)
        if not placed:
            trial.rollback(before)
        return placed

    if attempt(promised) or (attempt(None) and disturbs_nobody(trial.world, state)):
        return True
    trial.rollback(mark)
    return any(
        take_least(trial, money_back(trial, state, promise, payers), lambda: True, partial(attempt, payers))
        for payers in (promised, None)
    ) or attempt(None)


def carry_out(trial: Trial, docket: Docket, record: Record, cause: Why) -> None:
    """Take what was decided: unpaid work, spares and steps, then the losers.

    Steps of unpaid work come before the spares on which the rest of it may stand: that goes with them.
    """
    now = trial.world.now
    kept = [docket.quarries[index] for index in record.decision.takings]
    whole = {quarry.taking.run for quarry in kept if quarry.leases and quarry.taking.kind == "Reclaim"}
    steps = [quarry for quarry in kept if quarry.step and quarry.taking.run not in whole]
    take_steps(trial, [one for one in steps if one.taking.kind == "Reclaim"], "Reclaimed", cause)
    for quarry in kept:
        if not quarry.step:
            take(trial, quarry, now, cause)
    take_steps(trial, [one for one in steps if one.taking.kind == "Shrink"], "Shrink", cause)
    for uid in record.decision.losers:
        for member in trial.world.kin.members(docket.by_ticket[uid]):
            preempt(trial, member, now, record)


def take_steps(trial: Trial, steps: Sequence[Quarry], reason: ClosureReason, cause: Why) -> None:
    """Malleable Runs lose these steps, each Run all of its own at once."""
    now = trial.world.now
    by_run: dict[str, list[Quarry]] = {}
    for quarry in steps:
        by_run.setdefault(quarry.state.uid, []).append(quarry)
    for quarries in by_run.values():
        trial.act("Shrink", quarries[0].state, now, cause)
        pieces = [piece for quarry in quarries for piece in quarry.step]
        give_up(trial, quarries[0].state, pieces, now, reason)


def money_back(
    trial: Trial, state: RunState, promise: Promise, payers: dict[EnvelopeKey, int] | None
) -> list[Taking]:
    """Provisional work that yields to the promise and uses money of its payers, newest first (R6)."""
    world = trial.world
    if payers is None:
        split, _ = funding_at(world, state, promise.width, promise.pod_size, world.now, promise.rank)
        payers = dict((*promise.funding, *split))
    users = [
        other
        for other in (world.runs[key] for key in world.provisional)
        if other is not state
        and other.yields_to(promise.rank)
        and any(lease.payer in payers for lease in other.leases.values())
    ]
    users.sort(key=lambda other: (other.since or 0, other.order), reverse=True)
    return [partial(reclaim, trial, other, world.now) for other in users]


def take(trial: Trial, quarry: Quarry, at: int, cause: Why) -> None:
    state = quarry.state
    if quarry.taking.kind == "DropSpares":
        for lease in quarry.leases:
            clear_spare(trial, lease, at)
            trial.act("DropSpare", state, at, cause)
            trial.close(lease.name, at, "DropSpare")
    else:
        reclaim(trial, state, at)


def reclaim(trial: Trial, state: RunState, at: int) -> None:
    """The Run goes, and whoever stands on its spares; nothing, if it went with another before."""
    clear_spares(trial, state, at)
    requeue(trial, state, at, Why(Reason.RECLAIMED), "Reclaimed")


def clear_spares(trial: Trial, state: RunState, at: int) -> None:
    for lease in sorted(state.leases.values(), key=lambda lease: lease.name):
        if lease.role == "Spare":
            clear_spare(trial, lease, at)


def clear_spare(trial: Trial, spare: Lease, at: int) -> None:
    """Unpaid work that stands on a spare's slots goes with the spare."""
    for node, mask in spare.slots:
        evict_guests(trial, node, mask, at, "Reclaimed")


def preempt(trial: Trial, state: RunState, at: int, record: Record) -> None:
    """A Run lost the lottery: it queues again, or is Failed where it does not want to (X6)."""
    if state.phase != "Running":
        return
    clear_spares(trial, state, at)
    cause = Why(Reason.RANDOM_PREEMPT, f"{record.reservation}, seed {record.seed}")
    trial.act("Preempt" if state.run.spec.runtime.requeue else "Fail", state, at, cause)
    for name in sorted(state.leases):
        trial.close(name, at, "RandomPreempt")
