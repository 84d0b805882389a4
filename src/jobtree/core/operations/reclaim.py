"""Giving way: unpaid work ends for funded work (P7, C13), and families give back what they lent (C11).

As much as needed, newest first; then whatever turned out not to be needed is given back. Nothing is
taken unless the start it is taken for succeeds.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial

from jobtree.api.kinds.lease import ClosureReason, Role
from jobtree.core.accounts.envelope_accounts import EnvelopeState
from jobtree.core.availability.shrink_steps import LeasePart
from jobtree.core.model.gpu_lease import GpuLease, RunKey, join_pods, lease_number, pods_of
from jobtree.core.model.reasons import Cause, Reason
from jobtree.core.operations.payer_changes import change_payer, newest_first
from jobtree.core.operations.trial import LeaseTerms, Trial
from jobtree.core.runs.run_state import PodSlots, RunState
from jobtree.core.world.world import World

ReclaimAction = Callable[[], None]


def reclaim_least(
    trial: Trial,
    takings: Sequence[ReclaimAction],
    worth: Callable[[], bool],
    attempt: Callable[[], bool],
    probe: Callable[[], bool] | None = None,
) -> bool:
    """Take in order until the attempt succeeds, then give back, last taken first, what it did not need.

    ``worth`` is a cheap test that must hold before an attempt can succeed. Where an attempt takes more of
    others, and chooses what, ``probe`` only tells whether it would succeed: it is made for good at the end.
    """
    probe = probe or attempt
    marks = reclaim_until(trial, takings, worth, probe)
    if not marks:
        return False
    needed = [takings[len(marks) - 1]]
    for mark, taking in reversed(list(zip(marks[:-1], takings, strict=False))):
        trial.rollback(mark)  # what was taken before this one stays as it was taken
        if not repeat_reclaims(needed, worth, probe):
            needed.insert(0, taking)
    trial.rollback(marks[0])
    return repeat_reclaims(needed, worth, attempt)


def reclaim_until(
    trial: Trial, takings: Sequence[ReclaimAction], worth: Callable[[], bool], attempt: Callable[[], bool]
) -> list[int]:
    """Take in order until the attempt succeeds: marks before each; none, and nothing taken, if it fails."""
    marks = list[int]()
    for taking in takings:
        marks.append(trial.checkpoint())
        taking()
        if worth() and attempt():
            return marks
    if marks:
        trial.rollback(marks[0])
    return []


def repeat_reclaims(
    takings: Sequence[ReclaimAction], worth: Callable[[], bool], attempt: Callable[[], bool]
) -> bool:
    for taking in takings:
        taking()
    return worth() and attempt()


def reclaim_actions(trial: Trial, run: RunState, at: int) -> list[ReclaimAction]:
    """Provisional work that uses money kept for the Run, then unpaid work of its flavor, newest first."""
    world, takings = trial.world, list(provisional_reclaims(trial, run, at))
    if world.fleet.flavor(run.flavor).opportunistic_slots:
        unpaid = [
            lease
            for order in world.queue
            for lease in world.runs[order[1:]].leases.values()
            if lease.role == "Opportunistic" and lease.flavor == run.flavor
        ]
        widths: dict[RunKey, int] = {}  # of malleable Runs, after what was listed so far
        takings += [
            one for lease in newest_first(unpaid) for one in opportunistic_reclaims(trial, lease, at, widths)
        ]
    return takings


def provisional_reclaims(trial: Trial, run: RunState, at: int) -> Iterator[ReclaimAction]:
    for other in provisional_runs(trial, run):
        yield partial(requeue, trial, other, at, Cause(Reason.RECLAIMED), "Reclaimed")


def is_funded_without_provisional(trial: Trial, runs: Iterable[RunState], funded: Callable[[], bool]) -> bool:
    """Whether a start can be paid, if provisional work goes that uses money kept for it.

    Only then may unpaid work give way to it: with its place, never with the money of that part of it which
    somebody pays for.
    """
    if funded():
        return True
    mark, now = trial.checkpoint(), trial.world.now
    for taking in [one for run in runs for one in provisional_reclaims(trial, run, now)]:
        taking()
    found = trial.checkpoint() > mark and funded()
    trial.rollback(mark)
    return found


def provisional_runs(trial: Trial, run: RunState) -> list[RunState]:
    """Runs that a Run with money kept for it, but no date, may end to start: newest first (C12)."""
    if not run.waits_for_funding:
        return []
    world = trial.world
    found = [world.runs[key] for key in world.provisional_runs if world.runs[key].flavor == run.flavor]
    return sorted(found, key=lambda other: (other.since or 0, other.creation_order), reverse=True)


def provisional_gpus(trial: Trial, run: RunState) -> int:
    return sum(other.width for other in provisional_runs(trial, run))


def opportunistic_reclaims(
    trial: Trial, lease: GpuLease, at: int, widths: dict[RunKey, int]
) -> Iterator[ReclaimAction]:
    """Unpaid GPUs as what can be ended at a time: steps of a malleable Run, else the whole lease."""
    run = trial.world.runs[lease.run_key]
    shape = run.shape
    if shape is None or not shape.malleable or shape.group:
        yield partial(end_opportunistic, trial, lease, at, "Reclaimed")
        return
    for _ in range(0, lease.gpus, shape.step):
        width = widths[run.key] = widths.get(run.key, run.width) - shape.step
        yield partial(shrink_opportunistic_first, trial, run, width, at)


def recall_actions(trial: Trial, run: RunState, at: int) -> list[ReclaimAction]:
    """What the Run's own envelopes pay for its family, newest first; none of them is elsewhere (C11).

    Not from who has just settled on what it was promised: that it has for an instant at least (R5).
    """
    own, settled = {one.key for one in own_envelopes(trial.world, run, at)}, trial.confirmed_runs()
    return [
        partial(change_payer, trial, lease, at, "Recalled", own)
        for lease in newest_first(recallable_leases(trial.world, run, at))
        if lease.run_key not in settled
    ]


def recallable_leases(world: World, run: RunState, at: int) -> list[GpuLease]:
    """Leases of the family that the Run's owner pays for, save those that were promised until now."""
    return [
        lease
        for one in own_envelopes(world, run, at)
        for lease in one.leases.values()
        if lease.class_ == "Shared" and world.runs[lease.run_key].is_recallable_at(at)
    ]


def own_envelopes(world: World, run: RunState, at: int) -> list[EnvelopeState]:
    mine = world.budgets.by_owner.get(run.owner, ())
    return [one for one in mine if one.spec.flavor == run.flavor and one.open_at(at)]


def end_opportunistic(trial: Trial, lease: GpuLease, at: int, reason: ClosureReason) -> None:
    """End an unpaid lease. A fixed gang queues again as a whole; a malleable one loses the group (C13)."""
    world = trial.world
    if lease.name not in world.posted_leases:
        return  # it went with another lease of its Run
    run = world.runs[lease.run_key]
    shape = run.shape
    cause = Cause(Reason.RECLAIMED, "", 0, lease.gpus)
    lost = [other for other in run.leases.values() if other.group == lease.group]
    width = run.width - sum(other.gpus for other in lost if other.role != "Spare")
    if shape is None or not shape.malleable or width < shape.min:
        requeue(trial, run, at, cause, reason)
        return
    trial.begin_action("Shrink", run, at, cause)
    close_all(trial, lost, at, reason)
    while (run.width - shape.min) % shape.step:  # whole groups, until it is a width that it may have
        last = max(other.group for other in run.leases.values())
        close_all(trial, [other for other in run.leases.values() if other.group == last], at, "Shrink")


def evict_from_spare(trial: Trial, node: str, mask: int, at: int, reason: ClosureReason) -> None:
    """End unpaid work that stands on these slots, which belong to a spare (F1)."""
    world = trial.world
    for name in sorted(world.leases_by_node.get(node, ())):
        guest = world.posted_leases[name].lease if name in world.posted_leases else None
        if guest and guest.role == "Opportunistic" and dict(guest.slots).get(node, 0) & mask:
            end_opportunistic(trial, guest, at, reason)


def shrink_opportunistic_first(trial: Trial, run: RunState, width: int, at: int) -> None:
    """A malleable Run shrinks to that width, unpaid pods first; below its minimum it gives up all (C13)."""
    excess = run.width - width
    if run.shape is None or not run.opportunistic_gpus or excess <= 0:
        return
    cause = Cause(Reason.RECLAIMED, "", 0, min(run.opportunistic_gpus, excess))
    if width < run.shape.min:
        requeue(trial, run, at, cause, "Reclaimed")
        return
    trial.begin_action("Shrink", run, at, cause)
    owed = end_pods_of_role(trial, run, "Opportunistic", excess, at)
    end_pods_of_role(trial, run, "Active", owed, at)
    drop_orphaned_spares(trial, run, at)


def requeue(trial: Trial, run: RunState, at: int, cause: Cause, reason: ClosureReason) -> None:
    """Give up everything; the Run, and all that started with it, wait again with their old creation time."""
    for member in trial.world.run_graph.members(run):
        if member.phase == "Running":
            trial.begin_action("Requeue", member, at, cause)
            close_all(trial, list(member.leases.values()), at, reason)


def close_all(trial: Trial, leases: Sequence[GpuLease], at: int, reason: ClosureReason) -> None:
    for lease in sorted(leases, key=lease_number):
        trial.close(lease.name, at, reason)


def end_pods(  # noqa: PLR0913, PLR0917  which pods of whose lease, when and why
    trial: Trial, run: RunState, name: str, pods: Collection[PodSlots], at: int, reason: ClosureReason
) -> GpuLease:
    """End these pods of a lease; the others go on from the same instant, with the same payer."""
    lease = trial.close(name, at, reason)
    keep = [pod for pod in pods_of(lease.slots, run.pod_size) if pod not in pods]
    if keep:
        envelope = trial.world.budgets.envelope(lease.payer, lease.payer_owner, lease.flavor)
        terms = LeaseTerms(envelope, lease.class_, lease.role, lease.group)
        trial.open(run, terms, join_pods(keep), at, "Continue")
    return lease


def end_lease_parts(
    trial: Trial, run: RunState, pieces: Iterable[LeasePart], at: int, reason: ClosureReason
) -> None:
    """End these pods; spares of groups that are gone go with them. The action they belong to has begun."""
    gone: dict[str, set[PodSlots]] = {}
    for piece in pieces:
        gone.setdefault(piece.lease, set()).add((piece.node, piece.mask))
    for name in sorted(gone):
        end_pods(trial, run, name, gone[name], at, reason)
    drop_orphaned_spares(trial, run, at)


def drop_orphaned_spares(trial: Trial, run: RunState, at: int) -> None:
    """Spares of groups that are gone go with them."""
    groups = {lease.group for lease in run.leases.values() if lease.role != "Spare"}
    close_all(trial, [lease for lease in run.leases.values() if lease.group not in groups], at, "Shrink")


def end_pods_of_role(trial: Trial, run: RunState, role: Role, gpus: int, at: int) -> int:
    """Give up so many GPUs held in that role, pod by pod, highest rank first; how many it still owes."""
    reason: ClosureReason = "Reclaimed" if role == "Opportunistic" else "Shrink"
    ranks = sorted(
        (lease for lease in run.leases.values() if lease.role == role),
        key=lambda lease: (lease.group, lease.start, lease_number(lease)),
    )
    while gpus > 0 and ranks:
        lease = ranks.pop()
        pods = list(pods_of(lease.slots, run.pod_size))
        going = pods[max(0, len(pods) - gpus // run.pod_size) :]
        end_pods(trial, run, lease.name, going, at, reason)
        gpus -= len(going) * run.pod_size
    return gpus
