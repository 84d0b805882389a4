"""Starts a gang of stages together, or makes one promise to it (J3).

The members are placed, promised and resolved like any Run, in turn and in one trial; if one fails, all are
rolled back. A gang reclaims as a single Run does: opportunistic work for its GPUs and never for its budget,
and family charges only if budget is all it lacks (C11, C13). It starts at its full width or, if that does not
fit, with every malleable member at its minimum; it has no interim start.
"""

from collections.abc import Container, Iterator, Sequence
from math import gcd

from jobtree.core.funding.cover import funding_refusals
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.reasons import Cause, Reason, Verdict
from jobtree.core.operations.gang_layout import GangLayout
from jobtree.core.operations.reclaim import (
    is_funded_without_provisional,
    recall_actions,
    reclaim_actions,
    reclaim_least,
    runs_with_notice,
)
from jobtree.core.operations.stage_gang_promise import (
    by_width,
    empty_gang_promises,
    find_gang_date,
    make_gang_promise,
    member_pod_size,
    promise_gang_place,
)
from jobtree.core.operations.trial import Trial
from jobtree.core.planning.admission import refusal_causes
from jobtree.core.planning.recall_notice import is_preferred, promise_after_recall, recall_options
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World

Widths = dict[str, int]  # by UID; 0: no GPUs


def waits_in_gang(run: RunState) -> bool:
    """Whether the Run waits to start together with others."""
    return bool(run.gang) and run.phase != "Running"


def admit_gang(trial: Trial, run: RunState) -> Verdict | None:
    """Starts a gang of stages or gives it one Reservation; its first waiting member with GPUs does so."""
    members = waiting_members(trial.world, run)
    if leader_of(members) is not run:
        return gang_verdict(trial, run, members)
    if any(member.precedence_at(trial.world.now) is not None for member in members):
        return None  # their promise is due at this instant: the next pass activates it
    for widths in gang_widths(members):
        if start_gang_at_widths(trial, members, widths):
            return None
    verdict = gang_verdict(trial, run, members)
    if run.promise is None:
        if not promise_gang_place(trial, run, members):
            make_best_gang_promise(trial, run, members)
    elif any(trial.world.should_search_date(member) for member in members):
        find_gang_date(trial, members)
    return verdict


def waiting_members(world: World, run: RunState) -> list[RunState]:
    return [member for member in world.run_graph.members(run) if member.phase in ("Pending", "Reserved")]


def leader_of(members: Sequence[RunState]) -> RunState:
    """Returns the first member with GPUs, which is planned for all of them."""
    return next(member for member in members if member.shape is not None)


def gang_verdict(trial: Trial, run: RunState, members: Sequence[RunState]) -> Verdict:
    """Returns why the gang waits: at its leader every cause, at the others the name of the leader."""
    leader = leader_of(members)
    if leader is not run:
        return Verdict("Reserved", (Cause(Reason.TOGETHER, leader.key[1]),))
    names = ", ".join(member.key[1] for member in members if member is not run)
    return Verdict("Reserved", (Cause(Reason.TOGETHER, names), *gang_refusal_causes(trial, members)))


def make_best_gang_promise(trial: Trial, run: RunState, members: Sequence[RunState]) -> None:
    """Promises the gang its earliest start: beside all promises, or after a recall with notice (C11)."""
    checkpoint, gpu_members = trial.checkpoint(), by_width(members)
    least_widths = gang_widths(members)[-1]
    options = recall_options(
        trial, gpu_members, lambda: start_gang_at_widths(trial, members, least_widths, after_notice=True)
    )
    make_gang_promise(trial, members)
    if is_preferred(trial.world, options, run.promise):
        trial.rollback(checkpoint)
        undated = empty_gang_promises(trial, gpu_members)
        if not promise_after_recall(trial, gpu_members, undated, options):
            make_gang_promise(trial, members)


def gang_widths(members: Sequence[RunState]) -> list[Widths]:
    """The widths to try: the full width of all members, then the least width of all."""
    full_widths = {member.uid: member.shape.widths()[0] if member.shape else 0 for member in members}
    least_widths = {member.uid: member.shape.min if member.shape else 0 for member in members}
    return [full_widths] if full_widths == least_widths else [full_widths, least_widths]


def gang_refusal_causes(trial: Trial, members: Sequence[RunState]) -> list[Cause]:
    """Why the gang cannot start: the causes of single members, and those of all of them together."""
    world = trial.world
    member_causes: list[Cause] = []
    gpus_by_flavor: dict[str, int] = {}
    for member in members:
        shape = member.shape
        if shape is None:
            continue
        flavor, pod_size = world.fleet.flavors.get(shape.flavor), member_pod_size(trial, member)
        member_causes += refusal_causes(trial, member, shape, flavor, pod_size)
        gpus_by_flavor[shape.flavor] = gpus_by_flavor.get(shape.flavor, 0) + shape.min
    shortages = [cause for cause in member_causes if cause.reason is not Reason.HELD]
    least_widths = {member.uid: member.shape.min for member in members if member.shape is not None}
    shortages += gang_funding_refusals(trial, members, least_widths)
    for name, gpus in gpus_by_flavor.items():
        free = world.fleet.flavor(name).free
        if free < gpus:
            shortages.append(Cause(Reason.NO_FREE_SLOTS, f"flavor {name}", free, gpus))
    return widest_shortages(shortages) or member_causes


def widest_shortages(causes: list[Cause]) -> list[Cause]:
    """Returns one cause for each reason and place: what all members lack there includes what one lacks."""
    widest: dict[tuple[Reason, str], Cause] = {}
    for cause in causes:
        known = widest.get((cause.reason, cause.where))
        if known is None or known.need < cause.need:
            widest[cause.reason, cause.where] = cause
    return list(widest.values())


def start_gang_at_widths(
    trial: Trial, members: Sequence[RunState], widths: Widths, *, after_notice: bool = False
) -> bool:
    """Starts all members on free slots, else on those of opportunistic work, else with recalled budget.

    Recalled Runs may stop for it only ``after_notice``.
    """
    now, flavor_members = trial.world.now, one_member_per_flavor(members)

    def attempt() -> bool:
        return place_members(trial, members, widths)

    def funded() -> bool:
        return not any(gang_funding_refusals(trial, members, widths))

    def reclaim(safe: Container[RunKey] = ()) -> bool:
        # As for a single Run: opportunistic work is reclaimed for its GPUs, never for its budget.
        if not is_funded_without_provisional(trial, flavor_members, funded):
            return False
        actions = [
            action
            for run in flavor_members
            for action in reclaim_actions(trial, run, now, safe, after_notice=after_notice)
        ]
        return reclaim_least(trial, actions, funded, attempt)

    if attempt() or reclaim():
        return True
    if not any(map(trial.world.considers_recalls, flavor_members)):
        return False
    if not any(gang_funding_refusals(trial, members, widths, anywhere=True)):
        return False
    recalls = [action for run in flavor_members for action in recall_actions(trial, run, now)]
    safe = frozenset() if after_notice else runs_with_notice(trial, flavor_members, now)
    return reclaim_least(trial, recalls, funded, lambda: attempt() or reclaim(safe))


def one_member_per_flavor(members: Sequence[RunState]) -> list[RunState]:
    """One member for each flavor: all members have one owner and the same payers (J2)."""
    by_flavor: dict[str, RunState] = {}
    for member in members:
        if member.shape is not None:
            by_flavor.setdefault(member.flavor, member)
    return list(by_flavor.values())


def gang_funding_refusals(
    trial: Trial, members: Sequence[RunState], widths: Widths, *, anywhere: bool = False
) -> Iterator[Cause]:
    """Why no payer pays: for single members, and for all members of one flavor together."""
    world, now = trial.world, trial.world.now
    for first in one_member_per_flavor(members):
        same = [member for member in members if member.shape is not None and member.flavor == first.flavor]
        pod_sizes = [member_pod_size(trial, member) for member in same]
        for member, pod_size in zip(same, pod_sizes, strict=True):
            yield from funding_refusals(world, member, widths[member.uid], pod_size, now, anywhere=anywhere)
        gpus = sum(widths[member.uid] for member in same)
        yield from funding_refusals(world, first, gpus, gcd(*pod_sizes), now, anywhere=anywhere)


def place_members(trial: Trial, members: Sequence[RunState], widths: Widths) -> bool:
    """Starts all members in place of their promise, or none."""
    checkpoint = trial.checkpoint()
    if not all(place_member(trial, member, widths[member.uid]) for member in members):
        trial.rollback(checkpoint)
        return False
    for member in members:
        if member.promise is not None:
            cause = Cause(Reason.SUPERSEDED, member.promise.name)
            trial.begin_action("Supersede", member, trial.world.now, cause, promise=member.promise)
    return True


def place_member(trial: Trial, run: RunState, width: int) -> bool:
    """Starts one member at that width; a member without GPUs just starts."""
    now, pod_size = trial.world.now, member_pod_size(trial, run)
    cause = Cause(Reason.ADMITTED, run.owner, width, width) if run.shape else Cause(Reason.NO_GPUS)
    trial.begin_action("Start", run, now, cause, pod_size=pod_size)
    return run.shape is None or GangLayout(trial, run, pod_size, now, "Start").place(width)
