"""Stages that start together (J3): one gang for admission, Reservation, resolution and lottery.

Each member is laid out, promised and resolved like any Run, one after the other in one trial; nothing is
kept unless all of them succeed. What a gang may take is what a Run alone may: unpaid work gives way with its
place and never with its money, and money is recalled only where nothing else lacks (C11, C13). A gang starts
at its full width or, where that does not fit, every malleable member at its minimum; it does not start on
sufferance.
"""

from collections.abc import Iterator, Sequence
from math import gcd

from jobtree.core.funding.cover import funding_refusals
from jobtree.core.model.reasons import Cause, Reason, Verdict
from jobtree.core.operations.gang_layout import GangLayout
from jobtree.core.operations.reclaim import (
    is_funded_without_provisional,
    recall_actions,
    reclaim_actions,
    reclaim_least,
)
from jobtree.core.operations.stage_gang_promise import find_gang_date, make_gang_promise, member_pod_size
from jobtree.core.operations.trial import Trial
from jobtree.core.planning.admission import refusal_causes
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.date_search_generation import should_search_date

Widths = dict[str, int]  # by UID; 0: no GPUs


def waits_in_gang(run: RunState) -> bool:
    """Whether it waits to start together with others."""
    return bool(run.gang) and run.phase != "Running"


def admit_gang(trial: Trial, run: RunState) -> Verdict | None:
    """Start a gang of stages, or give it one Reservation; only the first member that waits asks."""
    party = [one for one in trial.world.run_graph.members(run) if one.phase in ("Pending", "Reserved")]
    leader = next(one for one in party if one.shape is not None)
    if leader is not run:
        return Verdict("Reserved", (Cause(Reason.TOGETHER, leader.key[1]),))
    if any(one.precedence_at(trial.world.now) is not None for one in party):
        return None  # their promise is due this very instant: the next pass activates it
    for widths in gang_widths(party):
        if start_gang_at_widths(trial, party, widths):
            return None
    whys = gang_refusal_causes(trial, party)
    if run.promise is None:
        make_gang_promise(trial, party)
    elif any(should_search_date(trial.world, one) for one in party):
        find_gang_date(trial, party)
    names = ", ".join(one.key[1] for one in party if one is not run)
    return Verdict("Reserved", (Cause(Reason.TOGETHER, names), *dict.fromkeys(whys)))


def gang_widths(party: Sequence[RunState]) -> list[Widths]:
    """Full width for all; else the least for all."""
    full = {one.uid: one.shape.widths()[0] if one.shape else 0 for one in party}
    least = {one.uid: one.shape.min if one.shape else 0 for one in party}
    return [full] if full == least else [full, least]


def gang_refusal_causes(trial: Trial, party: Sequence[RunState]) -> list[Cause]:
    """Why they cannot start: what one of them lacks, else what they lack together."""
    world = trial.world
    alone: list[Cause] = []
    sums: dict[str, int] = {}
    for one in party:
        shape = one.shape
        if shape is None:
            continue
        flavor, size = world.fleet.flavors.get(shape.flavor), member_pod_size(trial, one)
        alone += refusal_causes(trial, one, shape, flavor, size)
        sums[shape.flavor] = sums.get(shape.flavor, 0) + shape.min
    short = [why for why in alone if why.reason is not Reason.HELD]
    least = {one.uid: one.shape.min for one in party if one.shape is not None}
    short += gang_funding_refusals(trial, party, least)
    for name, gpus in sums.items():
        free = world.fleet.flavor(name).free
        if free < gpus:
            short.append(Cause(Reason.NO_FREE_SLOTS, f"flavor {name}", free, gpus))
    return list(dict.fromkeys(short)) or alone


def start_gang_at_widths(trial: Trial, party: Sequence[RunState], widths: Widths) -> bool:
    """Start all members, on free slots, else on those of unpaid work, else with recalled money."""
    now, kinds = trial.world.now, one_member_per_flavor(party)

    def attempt() -> bool:
        return place_members(trial, party, widths)

    def funded() -> bool:
        return not any(gang_funding_refusals(trial, party, widths))

    def reclaim() -> bool:
        # As for a Run alone: unpaid work gives way with its place, never with what others pay for it.
        if not is_funded_without_provisional(trial, kinds, funded):
            return False
        takings = [one for run in kinds for one in reclaim_actions(trial, run, now)]
        return reclaim_least(trial, takings, funded, attempt)

    if attempt() or reclaim():
        return True
    if not any(gang_funding_refusals(trial, party, widths, anywhere=True)):
        return False
    loans = [one for run in kinds for one in recall_actions(trial, run, now)]
    return reclaim_least(trial, loans, funded, lambda: attempt() or reclaim())


def one_member_per_flavor(party: Sequence[RunState]) -> list[RunState]:
    """One member for each flavor: all of them have one owner and the same payers (J2)."""
    found: dict[str, RunState] = {}
    for one in party:
        if one.shape is not None:
            found.setdefault(one.flavor, one)
    return list(found.values())


def gang_funding_refusals(
    trial: Trial, party: Sequence[RunState], widths: Widths, *, anywhere: bool = False
) -> Iterator[Cause]:
    """Why nobody pays for them: for one of them, or for all of one flavor together."""
    world, now = trial.world, trial.world.now
    for first in one_member_per_flavor(party):
        same = [one for one in party if one.shape is not None and one.flavor == first.flavor]
        sizes = [member_pod_size(trial, one) for one in same]
        for one, size in zip(same, sizes, strict=True):
            yield from funding_refusals(world, one, widths[one.uid], size, now, anywhere=anywhere)
        gpus = sum(widths[one.uid] for one in same)
        yield from funding_refusals(world, first, gpus, gcd(*sizes), now, anywhere=anywhere)


def place_members(trial: Trial, party: Sequence[RunState], widths: Widths) -> bool:
    """All members start, in place of what they are promised, or nothing is kept."""
    mark = trial.checkpoint()
    if not all(place_member(trial, one, widths[one.uid]) for one in party):
        trial.rollback(mark)
        return False
    for one in party:
        if one.promise is not None:
            cause = Cause(Reason.SUPERSEDED, one.promise.name)
            trial.begin_action("Supersede", one, trial.world.now, cause, promise=one.promise)
    return True


def place_member(trial: Trial, run: RunState, width: int) -> bool:
    """One member starts at that width; without GPUs it just starts."""
    now, size = trial.world.now, member_pod_size(trial, run)
    cause = Cause(Reason.ADMITTED, run.owner, width, width) if run.shape else Cause(Reason.NO_GPUS)
    trial.begin_action("Start", run, now, cause, pod_size=size)
    return run.shape is None or GangLayout(trial, run, size, now, "Start").place(width)
