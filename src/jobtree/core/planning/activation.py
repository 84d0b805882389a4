"""Resolves a promise that is due and starts its Run (section 6).

Everything that must end for the start is decided before anything ends. If the Run cannot start, all of it is
rolled back.
"""

from collections.abc import Container, Sequence
from functools import partial

import msgspec

from jobtree.api.kinds.lease import ClosureReason
from jobtree.api.schema.quantities import MILLI
from jobtree.core.availability.availability_profile import meets_lottery
from jobtree.core.funding.cover import funding_refusals, payable
from jobtree.core.funding.future_funding import funding_at
from jobtree.core.funding.payer_candidates import payer_candidates
from jobtree.core.lottery.draw import nonce_for
from jobtree.core.lottery.resolution_record import BeaconInput, Record, make_record, make_refused_record
from jobtree.core.model.gpu_lease import EnvelopeKey, GpuLease, count_slots, join_pods, pods_of
from jobtree.core.model.promise import CreationOrder, Precedence, Promise
from jobtree.core.model.reasons import Cause, Reason
from jobtree.core.operations.gang_layout import GangLayout
from jobtree.core.operations.payer_changes import keeps_other_promises, repay, repay_opportunistic
from jobtree.core.operations.promise_changes import make_promise
from jobtree.core.operations.reclaim import (
    ReclaimAction,
    end_if_in_the_way,
    end_lease_parts,
    evict_from_spare,
    recall_actions,
    recalls_for_start,
    reclaim_least,
    requeue,
)
from jobtree.core.operations.stage_gang_promise import make_gang_promise, search_again_for_gang
from jobtree.core.operations.trial import Trial
from jobtree.core.operations.victims import PromiseCase, Victim
from jobtree.core.runs.run_state import PodSlots, RunState
from jobtree.core.world.world import World

Resolved = tuple[PromiseCase, Record]


def activate(trial: Trial, run: RunState) -> None:
    """Starts a Run whose promise is due; if that is impossible, the promise slips with the reason."""
    promise = run.promise
    assert promise is not None
    now = trial.world.now
    checkpoint = trial.checkpoint()
    if run.phase == "Running":
        if confirm_in_place(trial, run, promise):
            return
        requeue(trial, run, now, Cause(Reason.RECLAIMED), "Reclaimed")
    reason = resolve_all(trial, run)
    if reason is None:
        return
    trial.rollback(checkpoint)
    if reason is Reason.KEY_CHANGED:
        refuse_draw(trial, run)
    else:
        search_again_for_gang(trial, run, reason, now + trial.world.policy.max_notice_ms)


def resolve_all(trial: Trial, run: RunState) -> Reason | None:
    """Starts the Run, or the members of its gang in turn; returns the reason of the first that cannot start.

    Each member was promised its part behind those before it, and gets it in that order. What they draw is one
    lottery: its survivors are immune when all of them have started.
    """
    resolved: list[Resolved] = []
    for member in sorted(trial.world.run_graph.members(run), key=in_promise_order):
        promise = member.promise
        if promise is not None:
            case = PromiseCase(trial.world, member, promise)
            record = draw_and_record(trial.world, member, promise, case)
            if record.commitment != promise.commitment:
                return Reason.KEY_CHANGED
            reason = resolve(trial, member, promise, case, record)
            if reason is not None:
                return reason
            resolved.append((case, record))
        elif member.shape is None:
            trial.begin_action("Start", member, trial.world.now, Cause(Reason.NO_GPUS))
    exempt_survivors(trial, resolved)
    return None


def in_promise_order(run: RunState) -> tuple[bool, Precedence | CreationOrder]:
    """Sorts members by precedence; those without a promise, which have no GPUs, come last."""
    promise = run.promise
    return (promise is None, run.creation_order if promise is None else promise.precedence)


def draw_and_record(world: World, run: RunState, promise: Promise, case: PromiseCase) -> Record:
    """Decides the case with the revealed nonce and the value of the beacon, if any; returns the record."""
    holder = world.runs.get((run.key[0], promise.named_after), run)
    nonce = nonce_for(world.lottery_key, holder.uid, promise.number)
    name, number = promise.beacon or ("", 0)
    mixed = BeaconInput(name, number, world.beacon_values.get((name, number), ""))
    return make_record(promise.name, holder.uid, promise.number, nonce, case.case, mixed)


def refuse_draw(trial: Trial, run: RunState) -> None:
    """Records that nothing was drawn, since the nonce is not the committed one, and makes new promises."""
    world = trial.world
    members = [
        (member, member.promise) for member in world.run_graph.members(run) if member.promise is not None
    ]
    for member, promise in members:
        record = draw_and_record(world, member, promise, PromiseCase(world, member, promise))
        cause, refused = (
            Cause(Reason.KEY_CHANGED, promise.name),
            make_refused_record(record, promise.commitment),
        )
        trial.begin_action("Withdraw", member, world.now, cause, promise=promise, record=refused)
        end_if_in_the_way(trial, member)
    if run.gang:
        make_gang_promise(trial, [member for member, _ in members])
    elif run.waiting:
        make_promise(trial, run, members[0][1].pod_size)


def confirm_in_place(trial: Trial, run: RunState, promise: Promise) -> bool:
    """Confirms a provisional or opportunistic Run whose promise is due, if that breaks no other promise."""
    checkpoint, now = trial.checkpoint(), trial.world.now
    if run.opportunistic_gpus:
        repay_opportunistic(trial, run)
        return run.promise is None
    charge_promised_payers(trial, run, promise)
    trial.begin_action("Confirm", run, now, Cause(Reason.ACTIVATED, promise.name), promise=promise)
    if keeps_other_promises(trial.world, run):
        return True
    trial.rollback(checkpoint)
    return False


def charge_promised_payers(trial: Trial, run: RunState, promise: Promise) -> None:
    """Charges a Run that started early to the payers that it was promised, pod by pod, as far as possible.

    Family charges on these payers are recalled if needed, and provisional work that they pay for ends.
    """
    left, now = dict(promise.funding), trial.world.now
    for lease in sorted(run.leases.values(), key=lambda lease: (lease.group, lease.name)):
        kept = min(left.get(lease.payer, 0), lease.gpus) // run.pod_size
        left[lease.payer] = left.get(lease.payer, 0) - kept * run.pod_size
        pods = list(pods_of(lease.slots, run.pod_size))[kept:]
        if not pods:
            continue
        promised = {key for key, _ in promise.funding if key != lease.payer}
        charge = partial(charge_to, trial, run, lease, pods, promised)
        if not charge() and not reclaim_least(trial, recall_actions(trial, run, now), lambda: True, charge):
            payers = dict.fromkeys(promised, 0)
            reclaim_least(trial, provisional_reclaims_for(trial, run, promise, payers), lambda: True, charge)


def charge_to(
    trial: Trial, run: RunState, lease: GpuLease, pods: list[PodSlots], payers: Container[EnvelopeKey]
) -> bool:
    """Charges these pods of a lease to these payers only, if they can pay and no other promise breaks."""
    world, checkpoint = trial.world, trial.checkpoint()
    others = {candidate.envelope.key for candidate in payer_candidates(world, run)}
    others = {key for key in others if key not in payers}
    slots = join_pods(pods)
    part = msgspec.structs.replace(lease, slots=slots, gpus=count_slots(slots))
    cause = Cause(Reason.ADMITTED, run.owner, part.gpus, part.gpus)
    trial.begin_action("Repay", run, world.now, cause)
    trial.end_pods(run, lease.name, pods, world.now, "Repaid")
    if repay(trial, run, part, world.now, others) and keeps_other_promises(world, run):
        return True
    trial.rollback(checkpoint)
    return False


def resolve(
    trial: Trial, run: RunState, promise: Promise, case: PromiseCase, record: Record
) -> Reason | None:
    """Applies what was decided and starts the Run; returns the reason if it cannot start."""
    world = trial.world
    if not record.decision.packs:
        return crowding_reason(case)
    cause = Cause(Reason.ACTIVATED, promise.name, promise.width, promise.width)
    apply_decision(trial, case, record, cause)

    def funded() -> bool:
        return not funding_refusals(world, run, promise.width, promise.pod_size, world.now)

    def begin() -> bool:
        return start_as_promised(trial, run, promise, cause)

    def recall() -> bool:
        if not funding_refusals(world, run, promise.width, promise.pod_size, world.now, anywhere=True):
            return False
        recalls = recalls_for_start(trial, run, world.now, promise.width, promise.pod_size)
        return reclaim_least(trial, recalls, funded, begin)

    if not begin() and not recall():
        _, lacking = funding_at(world, run, promise.width, promise.pod_size, world.now, promise.precedence)
        return Reason.FUNDING_LOST if lacking else Reason.CROWDED_OUT
    trial.begin_action("Activate", run, world.now, cause, promise=promise, record=record)
    return None


def crowding_reason(case: PromiseCase) -> Reason:
    """Returns why the slice of a promise cannot be cleared."""
    world, promise = case.world, case.promise
    domains = world.fleet.flavor(promise.flavor).domains_of_slice(promise.domain_gpus)
    meets = any(meets_lottery(world, domain, promise) for domain in domains)
    return Reason.COLLISION if meets or case.left_out else Reason.CROWDED_OUT


def start_as_promised(trial: Trial, run: RunState, promise: Promise, cause: Cause) -> bool:
    """Starts in the promised slice, charged to the promised payers, on whom other promises count as well.

    If these pay for relatives now, the family charges are recalled (C11). Other payers may be charged if no
    other promise breaks, or if nothing else helps. Before that, provisional work that uses the promised
    budget ends (R6).
    """
    checkpoint = trial.checkpoint()
    as_promised = partial(attempt_start, trial, run, promise, cause, dict(promise.funding))
    by_anybody = partial(attempt_start, trial, run, promise, cause, None)
    if as_promised():
        return True
    can_pay = partial(promised_payers_can_pay, trial.world, run, promise)
    if not can_pay() and reclaim_least(
        trial,
        recalls_for_start(trial, run, trial.world.now, promise.width, promise.pod_size),
        can_pay,
        as_promised,
    ):
        return True
    if by_anybody() and keeps_other_promises(trial.world, run):
        return True
    trial.rollback(checkpoint)
    return (
        any(
            reclaim_least(trial, provisional_reclaims_for(trial, run, promise, payers), lambda: True, attempt)
            for payers, attempt in ((dict(promise.funding), as_promised), (None, by_anybody))
        )
        or by_anybody()
    )


def attempt_start(
    trial: Trial, run: RunState, promise: Promise, cause: Cause, payers: dict[EnvelopeKey, int] | None
) -> bool:
    """Starts the Run in the promised slice, charged to these payers; None: to any that may pay."""
    checkpoint, now, pod_size = trial.checkpoint(), trial.world.now, promise.pod_size
    trial.begin_action("Start", run, now, cause, pod_size=pod_size)
    slice_ = dict(promise.domain_gpus)
    layout = GangLayout(trial, run, pod_size, now, "Start", promised_slice=slice_, promised_payers=payers)
    if layout.place(promise.width):
        return True
    trial.rollback(checkpoint)
    return False


def promised_payers_can_pay(world: World, run: RunState, promise: Promise) -> bool:
    """Whether each promised payer has enough free budget for its part now."""
    parts = dict(promise.funding)
    return all(
        payable(world, run, candidate, MILLI, world.now) >= parts[candidate.envelope.key]
        for candidate in payer_candidates(world, run)
        if candidate.envelope.key in parts
    )


def apply_decision(trial: Trial, case: PromiseCase, record: Record, cause: Cause) -> None:
    """Ends what was decided: opportunistic work, spares and steps, then the losers.

    Steps of opportunistic work end before the spares whose slots the rest of it may use: that ends with them.
    """
    now = trial.world.now
    victims = [case.victims[index] for index in record.decision.takings]
    whole = {victim.taking.run for victim in victims if victim.leases and victim.taking.kind == "Reclaim"}
    steps = [victim for victim in victims if victim.step and victim.taking.run not in whole]
    shrink_victims(trial, [victim for victim in steps if victim.taking.kind == "Reclaim"], "Reclaimed", cause)
    for victim in victims:
        if not victim.step:
            reclaim_victim(trial, victim, now, cause)
    shrink_victims(trial, [victim for victim in steps if victim.taking.kind == "Shrink"], "Shrink", cause)
    for uid in record.decision.losers:
        for member in trial.world.run_graph.members(case.by_ticket[uid]):
            preempt(trial, member, now, record)


def exempt_survivors(trial: Trial, resolved: Sequence[Resolved]) -> None:
    """Makes everybody immune for a while who had a ticket in these lotteries and lost none of them (R4)."""
    at = trial.world.now
    survivors = {
        member.key: record.reservation
        for case, record in resolved
        for ticket in (case.case.tickets if record.decision.draws else ())
        for member in trial.world.run_graph.members(case.by_ticket[ticket.run])
    }
    for run_key, reservation in survivors.items():
        run = trial.world.runs[run_key]
        if run.phase == "Running" and run.since is not None and run.since < at:
            trial.begin_action("Exempt", run, at, Cause(Reason.NOT_DRAWN, reservation))


def shrink_victims(trial: Trial, steps: Sequence[Victim], reason: ClosureReason, cause: Cause) -> None:
    """Ends these steps of malleable Runs, all steps of a Run in one action."""
    now = trial.world.now
    by_uid: dict[str, list[Victim]] = {}
    for victim in steps:
        by_uid.setdefault(victim.run.uid, []).append(victim)
    for victims_of_run in by_uid.values():
        trial.begin_action("Shrink", victims_of_run[0].run, now, cause)
        parts = [part for victim in victims_of_run for part in victim.step]
        end_lease_parts(trial, victims_of_run[0].run, parts, now, reason)


def provisional_reclaims_for(
    trial: Trial, run: RunState, promise: Promise, payers: dict[EnvelopeKey, int] | None
) -> list[ReclaimAction]:
    """Ends provisional work that yields to the promise and uses its payers or domains, newest first (R6).

    Its nodes count too: the free ones in the slice may be promised whole to larger pods.
    """
    world = trial.world
    domains = dict(promise.domain_gpus)
    if payers is None:
        split, _ = funding_at(world, run, promise.width, promise.pod_size, world.now, promise.precedence)
        payers = dict((*promise.funding, *split))
    users = [
        other
        for other in (world.runs[key] for key in world.provisional_runs)
        if other is not run
        and other.is_provisional_to(promise.precedence)
        and any(
            lease.payer in payers or world.fleet.domain_by_node[node].name in domains
            for lease in other.leases.values()
            for node, _ in lease.slots
            if node in world.fleet.domain_by_node
        )
    ]
    users.sort(key=lambda other: (other.since or 0, other.creation_order), reverse=True)
    return [partial(reclaim_run, trial, other, world.now) for other in users]


def reclaim_victim(trial: Trial, victim: Victim, at: int, cause: Cause) -> None:
    run = victim.run
    if victim.taking.kind == "DropSpares":
        for lease in victim.leases:
            clear_spare(trial, lease, at)
            trial.begin_action("DropSpare", run, at, cause)
            trial.close(lease.name, at, "DropSpare")
    elif victim.taking.kind == "Recall":
        clear_spares_of(trial, run, at)
        requeue(trial, run, at, Cause(Reason.OWNER_NEEDS, run.key[1]), "Recalled")
    else:
        reclaim_run(trial, run, at)


def reclaim_run(trial: Trial, run: RunState, at: int) -> None:
    """Requeues the Run and ends the work on its spares; does nothing if it ended with another Run before."""
    clear_spares_of(trial, run, at)
    requeue(trial, run, at, Cause(Reason.RECLAIMED), "Reclaimed")


def clear_spares_of(trial: Trial, run: RunState, at: int) -> None:
    for lease in sorted(run.leases.values(), key=lambda lease: lease.name):
        if lease.role == "Spare":
            clear_spare(trial, lease, at)


def clear_spare(trial: Trial, spare: GpuLease, at: int) -> None:
    """Ends opportunistic work on the slots of a spare."""
    for node, mask in spare.slots:
        evict_from_spare(trial, node, mask, at, "Reclaimed")


def preempt(trial: Trial, run: RunState, at: int, record: Record) -> None:
    """Requeues a Run that lost the lottery, or fails it if it does not requeue (X6)."""
    if run.phase != "Running":
        return
    clear_spares_of(trial, run, at)
    cause = Cause(Reason.RANDOM_PREEMPT, f"{record.reservation}, seed {record.seed}")
    trial.begin_action("Preempt" if run.run_object.spec.runtime.requeue else "Fail", run, at, cause)
    for name in sorted(run.leases):
        trial.close(name, at, "RandomPreempt")
