"""Activation: a promise is due, and what has to give way does (SPEC section 6).

All is decided before anything is carried out, and nothing is kept unless the Run then starts.
"""

from collections.abc import Sequence
from functools import partial

from jobtree.api.kinds.lease import ClosureReason
from jobtree.core.funding.cover import funding_refusals
from jobtree.core.funding.future_funding import funding_at
from jobtree.core.lottery.draw import nonce_for
from jobtree.core.lottery.resolution_record import BeaconInput, Record, make_record, make_refused_record
from jobtree.core.model.gpu_lease import EnvelopeKey, GpuLease
from jobtree.core.model.promise import CreationOrder, Precedence, Promise
from jobtree.core.model.reasons import Cause, Reason
from jobtree.core.operations.gang_layout import GangLayout
from jobtree.core.operations.payer_changes import keeps_other_promises, repay_opportunistic
from jobtree.core.operations.promise_changes import make_promise
from jobtree.core.operations.reclaim import (
    ReclaimAction,
    end_lease_parts,
    evict_from_spare,
    recall_actions,
    reclaim_least,
    requeue,
)
from jobtree.core.operations.stage_gang_promise import make_gang_promise, search_again_for_gang
from jobtree.core.operations.trial import Trial
from jobtree.core.operations.victims import PromiseCase, Victim
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World


def activate(trial: Trial, run: RunState) -> None:
    """Start a Run whose promise is due; where that cannot be, the promise slips and says why."""
    promise = run.promise
    assert promise is not None
    now = trial.world.now
    mark = trial.checkpoint()
    if run.phase == "Running":
        if confirm_in_place(trial, run, promise):
            return
        requeue(trial, run, now, Cause(Reason.RECLAIMED), "Reclaimed")
    reason = resolve_all(trial, run)
    if reason is None:
        return
    trial.rollback(mark)
    if reason is Reason.KEY_CHANGED:
        refuse_draw(trial, run)
    else:
        search_again_for_gang(trial, run, reason, now + trial.world.policy.max_notice_ms)


def resolve_all(trial: Trial, run: RunState) -> Reason | None:
    """The Run, or one after the other all that start together with it; why not, where one fails.

    Each was promised its part behind those before it, and so each gets it.
    """
    for member in sorted(trial.world.run_graph.members(run), key=in_promise_order):
        promise = member.promise
        if promise is not None:
            docket = PromiseCase(trial.world, member, promise, trial.confirmed_runs())
            record = draw_and_record(trial.world, member, promise, docket)
            if record.commitment != promise.commitment:
                return Reason.KEY_CHANGED
            reason = resolve(trial, member, promise, docket, record)
            if reason is not None:
                return reason
        elif member.shape is None:
            trial.begin_action("Start", member, trial.world.now, Cause(Reason.NO_GPUS))
    return None


def in_promise_order(run: RunState) -> tuple[bool, Precedence | CreationOrder]:
    """In the order of promises; those that need none, and so no GPUs, last."""
    promise = run.promise
    return (promise is None, run.creation_order if promise is None else promise.precedence)


def draw_and_record(world: World, run: RunState, promise: Promise, docket: PromiseCase) -> Record:
    """Reveal the nonce, mix in the beacon that was fixed with the promise if it is at hand, and decide."""
    holder = world.runs.get((run.key[0], promise.named_after), run)
    nonce = nonce_for(world.lottery_key, holder.uid, promise.number)
    name, number = promise.beacon or ("", 0)
    mixed = BeaconInput(name, number, world.beacon_values.get((name, number), ""))
    return make_record(promise.name, holder.uid, promise.number, nonce, docket.case, mixed)


def refuse_draw(trial: Trial, run: RunState) -> None:
    """Nothing may be drawn from what was not committed to: the record says so, and the Run begins anew."""
    world = trial.world
    party = [(one, one.promise) for one in world.run_graph.members(run) if one.promise is not None]
    for one, promise in party:
        record = draw_and_record(world, one, promise, PromiseCase(world, one, promise))
        why, proof = Cause(Reason.KEY_CHANGED, promise.name), make_refused_record(record, promise.commitment)
        trial.begin_action("Withdraw", one, world.now, why, promise=promise, record=proof)
    if run.gang:
        make_gang_promise(trial, [one for one, _ in party])
    elif run.waiting:
        make_promise(trial, run, party[0][1].pod_size)


def confirm_in_place(trial: Trial, run: RunState, promise: Promise) -> bool:
    """A provisional or unpaid Run whose promise is due stays where it is, if that disturbs nobody."""
    mark, now = trial.checkpoint(), trial.world.now
    if run.opportunistic_gpus:
        repay_opportunistic(trial, run)
        return run.promise is None
    trial.begin_action("Confirm", run, now, Cause(Reason.ACTIVATED, promise.name), promise=promise)
    if keeps_other_promises(trial.world, run):
        return True
    trial.rollback(mark)
    return False


def resolve(
    trial: Trial, run: RunState, promise: Promise, docket: PromiseCase, record: Record
) -> Reason | None:
    """Carry out what was decided; the reason why not, where it fails."""
    world = trial.world
    if not record.decision.packs:
        return Reason.CROWDED_OUT
    cause = Cause(Reason.ACTIVATED, promise.name, promise.width, promise.width)
    apply_decision(trial, docket, record, cause)

    def funded() -> bool:
        return not funding_refusals(world, run, promise.width, promise.pod_size, world.now)

    def begin() -> bool:
        return start_as_promised(trial, run, promise, cause)

    def recall() -> bool:
        if not funding_refusals(world, run, promise.width, promise.pod_size, world.now, anywhere=True):
            return False
        return reclaim_least(trial, recall_actions(trial, run, world.now), funded, begin)

    if not begin() and not recall():
        _, lacking = funding_at(world, run, promise.width, promise.pod_size, world.now, promise.precedence)
        return Reason.FUNDING_LOST if lacking else Reason.CROWDED_OUT
    trial.begin_action("Activate", run, world.now, cause, promise=promise, record=record)
    return None


def start_as_promised(trial: Trial, run: RunState, promise: Promise, cause: Cause) -> bool:
    """Start in the slice, paid for by those that it counted on: others count on what the nearer ones keep.

    Anybody else may pay where no other promise is the worse for it, or where nothing else helps. Before
    that, provisional work that uses the money goes (R6).
    """
    mark, promised = trial.checkpoint(), dict(promise.funding)

    def attempt(payers: dict[EnvelopeKey, int] | None) -> bool:
        before, now = trial.checkpoint(), trial.world.now
        trial.begin_action("Start", run, now, cause, pod_size=promise.pod_size)
        size, slice_ = promise.pod_size, dict(promise.domain_gpus)
        placed = GangLayout(
            trial, run, size, now, "Start", promised_slice=slice_, promised_payers=payers
        ).place(promise.width)
        if not placed:
            trial.rollback(before)
        return placed

    if attempt(promised) or (attempt(None) and keeps_other_promises(trial.world, run)):
        return True
    trial.rollback(mark)
    return any(
        reclaim_least(
            trial,
            provisional_reclaims_for(trial, run, promise, payers),
            lambda: True,
            partial(attempt, payers),
        )
        for payers in (promised, None)
    ) or attempt(None)


def apply_decision(trial: Trial, docket: PromiseCase, record: Record, cause: Cause) -> None:
    """Take what was decided: unpaid work, spares and steps, then the losers.

    Steps of unpaid work come before the spares on which the rest of it may stand: that goes with them.
    """
    now = trial.world.now
    kept = [docket.victims[index] for index in record.decision.takings]
    whole = {quarry.taking.run for quarry in kept if quarry.leases and quarry.taking.kind == "Reclaim"}
    steps = [quarry for quarry in kept if quarry.step and quarry.taking.run not in whole]
    shrink_victims(trial, [one for one in steps if one.taking.kind == "Reclaim"], "Reclaimed", cause)
    for quarry in kept:
        if not quarry.step:
            reclaim_victim(trial, quarry, now, cause)
    shrink_victims(trial, [one for one in steps if one.taking.kind == "Shrink"], "Shrink", cause)
    for uid in record.decision.losers:
        for member in trial.world.run_graph.members(docket.by_ticket[uid]):
            preempt(trial, member, now, record)


def shrink_victims(trial: Trial, steps: Sequence[Victim], reason: ClosureReason, cause: Cause) -> None:
    """Malleable Runs lose these steps, each Run all of its own at once."""
    now = trial.world.now
    by_run: dict[str, list[Victim]] = {}
    for quarry in steps:
        by_run.setdefault(quarry.run.uid, []).append(quarry)
    for quarries in by_run.values():
        trial.begin_action("Shrink", quarries[0].run, now, cause)
        pieces = [piece for quarry in quarries for piece in quarry.step]
        end_lease_parts(trial, quarries[0].run, pieces, now, reason)


def provisional_reclaims_for(
    trial: Trial, run: RunState, promise: Promise, payers: dict[EnvelopeKey, int] | None
) -> list[ReclaimAction]:
    """Provisional work that yields to the promise and uses money of its payers, newest first (R6)."""
    world = trial.world
    if payers is None:
        split, _ = funding_at(world, run, promise.width, promise.pod_size, world.now, promise.precedence)
        payers = dict((*promise.funding, *split))
    users = [
        other
        for other in (world.runs[key] for key in world.provisional_runs)
        if other is not run
        and other.is_provisional_to(promise.precedence)
        and any(lease.payer in payers for lease in other.leases.values())
    ]
    users.sort(key=lambda other: (other.since or 0, other.creation_order), reverse=True)
    return [partial(reclaim_run, trial, other, world.now) for other in users]


def reclaim_victim(trial: Trial, quarry: Victim, at: int, cause: Cause) -> None:
    run = quarry.run
    if quarry.taking.kind == "DropSpares":
        for lease in quarry.leases:
            clear_spare(trial, lease, at)
            trial.begin_action("DropSpare", run, at, cause)
            trial.close(lease.name, at, "DropSpare")
    else:
        reclaim_run(trial, run, at)


def reclaim_run(trial: Trial, run: RunState, at: int) -> None:
    """The Run goes, and whoever stands on its spares; nothing, if it went with another before."""
    clear_spares_of(trial, run, at)
    requeue(trial, run, at, Cause(Reason.RECLAIMED), "Reclaimed")


def clear_spares_of(trial: Trial, run: RunState, at: int) -> None:
    for lease in sorted(run.leases.values(), key=lambda lease: lease.name):
        if lease.role == "Spare":
            clear_spare(trial, lease, at)


def clear_spare(trial: Trial, spare: GpuLease, at: int) -> None:
    """Unpaid work that stands on a spare's slots goes with the spare."""
    for node, mask in spare.slots:
        evict_from_spare(trial, node, mask, at, "Reclaimed")


def preempt(trial: Trial, run: RunState, at: int, record: Record) -> None:
    """A Run lost the lottery: it queues again, or is Failed where it does not want to (X6)."""
    if run.phase != "Running":
        return
    clear_spares_of(trial, run, at)
    cause = Cause(Reason.RANDOM_PREEMPT, f"{record.reservation}, seed {record.seed}")
    trial.begin_action("Preempt" if run.run_object.spec.runtime.requeue else "Fail", run, at, cause)
    for name in sorted(run.leases):
        trial.close(name, at, "RandomPreempt")
