"""Ends opportunistic and provisional work for funded starts (P7, C13) and recalls family charges (C11).

Work is ended newest first, as much as a start needs; then everything that the start turned out not to need
is restored. If the start fails, nothing is ended.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import partial

from jobtree.api.kinds.lease import ClosureReason, Role
from jobtree.api.schema.quantities import SECOND
from jobtree.core.accounts.envelope_accounts import EnvelopeState
from jobtree.core.availability.shrink_steps import LeasePart
from jobtree.core.funding.cover import payable_gpus
from jobtree.core.model.gpu_lease import GpuLease, RunKey, lease_number, pods_of
from jobtree.core.model.reasons import Cause, Reason
from jobtree.core.operations.payer_changes import (
    change_payer,
    change_payer_of_gpus,
    keeps_other_promises,
    newest_first,
)
from jobtree.core.operations.promise_changes import keep_date
from jobtree.core.operations.trial import Trial
from jobtree.core.runs.run_state import PodSlots, RunState
from jobtree.core.world.world import World

ReclaimAction = Callable[[], None]


def reclaim_least(
    trial: Trial,
    actions: Sequence[ReclaimAction],
    worth: Callable[[], bool],
    attempt: Callable[[], bool],
    probe: Callable[[], bool] | None = None,
) -> bool:
    """Reclaims in order until the attempt succeeds, then restores, last first, what the attempt did not need.

    ``worth`` is a cheap test that must hold before an attempt can succeed. If an attempt itself reclaims work
    and chooses it, ``probe`` only tests whether it would succeed; the attempt is made once, at the end.
    """
    probe = probe or attempt
    checkpoints = reclaim_until(trial, actions, worth, probe)
    if not checkpoints:
        return False
    needed = [actions[len(checkpoints) - 1]]
    for checkpoint, action in reversed(list(zip(checkpoints[:-1], actions, strict=False))):
        trial.rollback(checkpoint)  # what was reclaimed before this action stays reclaimed
        if not repeat_reclaims(needed, worth, probe):
            needed.insert(0, action)
    trial.rollback(checkpoints[0])
    return repeat_reclaims(needed, worth, attempt)


def reclaim_until(
    trial: Trial, actions: Sequence[ReclaimAction], worth: Callable[[], bool], attempt: Callable[[], bool]
) -> list[int]:
    """Reclaims in order until the attempt succeeds; returns the checkpoint before each action.

    If the attempt never succeeds, everything is rolled back and the list is empty.
    """
    checkpoints = list[int]()
    for action in actions:
        checkpoints.append(trial.checkpoint())
        action()
        if worth() and attempt():
            return checkpoints
    if checkpoints:
        trial.rollback(checkpoints[0])
    return []


def repeat_reclaims(
    actions: Sequence[ReclaimAction], worth: Callable[[], bool], attempt: Callable[[], bool]
) -> bool:
    for action in actions:
        action()
    return worth() and attempt()


def reclaim_actions(
    trial: Trial, run: RunState, at: int, safe: Container[RunKey] = (), *, after_notice: bool = False
) -> list[ReclaimAction]:
    """Ends provisional work that uses budget reserved for the Run, then opportunistic work, newest first.

    What is paid in part is looked at as R14 says. Runs that are safe only shrink. With ``after_notice``,
    promised starts are not protected any more.
    """
    world, actions = trial.world, list(provisional_reclaims(trial, run, at))
    considers_recalls = world.considers_recalls(run)
    if world.fleet.flavor(run.flavor).opportunistic_slots:
        opportunistic = [
            lease
            for creation_order in world.queue
            for lease in world.runs[creation_order[1:]].leases.values()
            if lease.role == "Opportunistic"
            and lease.flavor == run.flavor
            and (after_notice or world.runs[lease.run_key].is_reclaimable_at(at))
            and (considers_recalls or not is_paid_in_part(world.runs[lease.run_key]))
        ]
        widths: dict[RunKey, int] = {}  # of malleable Runs, after the actions listed so far
        actions += [
            action
            for lease in newest_first(opportunistic)
            for action in opportunistic_reclaims(trial, lease, at, widths, safe)
        ]
    return actions


def is_paid_in_part(run: RunState) -> bool:
    """Whether funded GPUs end with the opportunistic ones of this Run, its own or of its gang (C13, J3)."""
    return run.opportunistic_gpus > 0 and (run.is_partly_opportunistic or bool(run.gang))


def provisional_reclaims(trial: Trial, run: RunState, at: int) -> Iterator[ReclaimAction]:
    for other in provisional_runs(trial, run):
        yield partial(requeue, trial, other, at, Cause(Reason.RECLAIMED), "Reclaimed")


def is_funded_without_provisional(trial: Trial, runs: Iterable[RunState], funded: Callable[[], bool]) -> bool:
    """Whether a start can be paid once provisional work that uses budget reserved for it has ended.

    Opportunistic work may be reclaimed for a start only then: for its GPUs, never for the budget of the part
    of it that is funded.
    """
    if funded():
        return True
    checkpoint, now = trial.checkpoint(), trial.world.now
    for action in [action for run in runs for action in provisional_reclaims(trial, run, now)]:
        action()
    funded_then = trial.checkpoint() > checkpoint and funded()
    trial.rollback(checkpoint)
    return funded_then


def provisional_runs(trial: Trial, run: RunState) -> list[RunState]:
    """Runs that a Run with reserved budget but no date may end in order to start, newest first (C12)."""
    if not run.waits_for_funding:
        return []
    world = trial.world
    runs = [world.runs[key] for key in world.provisional_runs if world.runs[key].flavor == run.flavor]
    return sorted(runs, key=lambda other: (other.since or 0, other.creation_order), reverse=True)


def provisional_gpus(trial: Trial, run: RunState) -> int:
    return sum(other.width for other in provisional_runs(trial, run))


def opportunistic_reclaims(
    trial: Trial, lease: GpuLease, at: int, widths: dict[RunKey, int], safe: Container[RunKey]
) -> Iterator[ReclaimAction]:
    """Actions that end an opportunistic lease: step by step if its Run is malleable, and else as a whole."""
    run = trial.world.runs[lease.run_key]
    shape = run.shape
    if shape is None or not shape.malleable or shape.group:
        if run.key not in safe:
            yield partial(end_opportunistic, trial, lease, at, "Reclaimed")
        return
    for _ in range(0, lease.gpus, shape.step):
        width = widths[run.key] = widths.get(run.key, run.width) - shape.step
        if width < shape.min and run.key in safe:
            return
        yield partial(shrink_opportunistic_first, trial, run, width, at)


def recalls_for_start(  # noqa: PLR0913  for which start, and when
    trial: Trial, run: RunState, at: int, width: int, pod_size: int, *, after_notice: bool = False
) -> list[ReclaimAction]:
    """Recalls for a start at that width: of each lease first as many pods as budget lacks, then the rest.

    With ``after_notice``, a start that has just been promised is not protected any more.
    """
    own_keys = {envelope.key for envelope in own_envelopes(trial.world, run, at)}

    def recall_pods(lease: GpuLease) -> None:
        if lease.name not in trial.world.posted_leases:
            return  # it was recalled with the rest of another lease
        missing = width - payable_gpus(trial.world, run, pod_size, at)
        gpus = missing if 0 < missing < lease.gpus else lease.gpus
        change_payer_of_gpus(trial, lease, gpus, at, "Recalled", own_keys)

    def recall_rest(lease: GpuLease) -> None:
        rest = trial.world.runs[lease.run_key].leases.values()
        for other in newest_first([other for other in rest if other.class_ == "Shared"]):
            if other.payer == lease.payer and other.group == lease.group:
                change_payer(trial, other, at, "Recalled", own_keys)

    actions: list[ReclaimAction] = []
    recallable_at = at + SECOND if after_notice else at
    for lease in newest_first(recallable_leases(trial.world, run, recallable_at)):
        actions.append(partial(recall_pods, lease))
        if lease.gpus > trial.world.runs[lease.run_key].pod_size:
            actions.append(partial(recall_rest, lease))
    return actions


def recall_actions(trial: Trial, run: RunState, at: int) -> list[ReclaimAction]:
    """Actions that end what the Run's own envelopes pay for its family, newest first (C11).

    Such a lease is not moved to another of these envelopes.
    """
    own_keys = {envelope.key for envelope in own_envelopes(trial.world, run, at)}
    return [
        partial(change_payer, trial, lease, at, "Recalled", own_keys)
        for lease in newest_first(recallable_leases(trial.world, run, at))
    ]


def runs_with_notice(trial: Trial, runs: Iterable[RunState], at: int) -> frozenset[RunKey]:
    """Returns the Runs that a recall for these Runs may demote, and that must have notice before they stop.

    Those that run opportunistically or provisionally anyway may stop at any time.
    """
    world = trial.world
    holders = {lease.run_key for run in runs for lease in recallable_leases(world, run, at)}
    gangs = (world.run_graph.members(world.runs[key]) for key in holders)
    return frozenset(
        member.key
        for gang in gangs
        if not any(member.opportunistic_gpus or member.provisional for member in gang)
        for member in gang
        if member.phase == "Running"
    )


def recallable_leases(world: World, run: RunState, at: int) -> list[GpuLease]:
    """Family charges of the Run's owner, except those that are protected because they were promised."""
    return [
        lease
        for envelope in own_envelopes(world, run, at)
        for lease in envelope.leases.values()
        if lease.class_ == "Shared" and world.runs[lease.run_key].is_recallable_at(at)
    ]


def own_envelopes(world: World, run: RunState, at: int) -> list[EnvelopeState]:
    envelopes = world.budgets.by_owner.get(run.owner, ())
    return [envelope for envelope in envelopes if envelope.spec.flavor == run.flavor and envelope.open_at(at)]


def end_opportunistic(trial: Trial, lease: GpuLease, at: int, reason: ClosureReason) -> None:
    """Ends an opportunistic lease (C13).

    A malleable Run loses the group of the lease and keeps a width that it may have; any other is requeued.
    """
    world = trial.world
    if lease.name not in world.posted_leases:
        return  # it ended with another lease of its Run
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
    while (run.width - shape.min) % shape.step:  # end whole groups until the width is allowed
        last = max(other.group for other in run.leases.values())
        close_all(trial, [other for other in run.leases.values() if other.group == last], at, "Shrink")


def evict_from_spare(trial: Trial, node: str, mask: int, at: int, reason: ClosureReason) -> None:
    """Ends opportunistic work on these slots of a spare (F1)."""
    world = trial.world
    for name in sorted(world.leases_by_node.get(node, ())):
        lease = world.posted_leases[name].lease if name in world.posted_leases else None
        if lease and lease.role == "Opportunistic" and dict(lease.slots).get(node, 0) & mask:
            end_opportunistic(trial, lease, at, reason)


def shrink_opportunistic_first(trial: Trial, run: RunState, width: int, at: int) -> None:
    """Shrinks a malleable Run to that width, opportunistic pods first; requeues it below its minimum."""
    excess = run.width - width
    if run.shape is None or not run.opportunistic_gpus or excess <= 0:
        return
    cause = Cause(Reason.RECLAIMED, "", 0, min(run.opportunistic_gpus, excess))
    if width < run.shape.min:
        requeue(trial, run, at, cause, "Reclaimed")
        return
    trial.begin_action("Shrink", run, at, cause)
    remaining = end_pods_of_role(trial, run, "Opportunistic", excess, at)
    end_pods_of_role(trial, run, "Active", remaining, at)
    drop_orphaned_spares(trial, run, at)


def requeue(trial: Trial, run: RunState, at: int, cause: Cause, reason: ClosureReason) -> None:
    """Ends all leases of the Run and of its gang; they wait again with their old creation time."""
    for member in trial.world.run_graph.members(run):
        if member.phase == "Running":
            trial.begin_action("Requeue", member, at, cause)
            close_all(trial, list(member.leases.values()), at, reason)


def end_if_in_the_way(trial: Trial, run: RunState) -> None:
    """Ends provisional work whose promise has moved later, if other promises cannot be kept beside it.

    A Run that runs early and is not provisional holds the new date too, or gives up its promise (R7).
    """
    promise = run.promise
    if run.provisional and run.phase == "Running" and not keeps_other_promises(trial.world, run):
        requeue(trial, run, trial.world.now, Cause(Reason.RECLAIMED), "Reclaimed")
    elif run.keeps_date and promise is not None and not promise.held and not keep_date(trial, run):
        cause = Cause(Reason.SUPERSEDED, promise.name)
        trial.begin_action("Supersede", run, trial.world.now, cause, promise=promise)


def close_all(trial: Trial, leases: Sequence[GpuLease], at: int, reason: ClosureReason) -> None:
    for lease in sorted(leases, key=lease_number):
        trial.close(lease.name, at, reason)


def end_lease_parts(
    trial: Trial, run: RunState, parts: Iterable[LeasePart], at: int, reason: ClosureReason
) -> None:
    """Ends these pods, and spares of groups that are gone, as part of the action that was begun last."""
    lost_pods: dict[str, set[PodSlots]] = {}
    for part in parts:
        lost_pods.setdefault(part.lease, set()).add((part.node, part.mask))
    for name in sorted(lost_pods):
        trial.end_pods(run, name, lost_pods[name], at, reason)
    drop_orphaned_spares(trial, run, at)


def drop_orphaned_spares(trial: Trial, run: RunState, at: int) -> None:
    """Ends spares of groups that are gone."""
    groups = {lease.group for lease in run.leases.values() if lease.role != "Spare"}
    close_all(trial, [lease for lease in run.leases.values() if lease.group not in groups], at, "Shrink")


def end_pods_of_role(trial: Trial, run: RunState, role: Role, gpus: int, at: int) -> int:
    """Ends so many GPUs in that role, pod by pod, highest rank first; returns how many are left to end."""
    reason: ClosureReason = "Reclaimed" if role == "Opportunistic" else "Shrink"
    leases = sorted(
        (lease for lease in run.leases.values() if lease.role == role),
        key=lambda lease: (lease.group, lease.start, lease_number(lease)),
    )
    while gpus > 0 and leases:
        lease = leases.pop()
        pods = list(pods_of(lease.slots, run.pod_size))
        lost_pods = pods[max(0, len(pods) - gpus // run.pod_size) :]
        trial.end_pods(run, lease.name, lost_pods, at, reason)
        gpus -= len(lost_pods) * run.pod_size
    return gpus
