"""Starts waiting Runs, or makes promises to them, in creation order (P7).

A Run starts at its whole width; else, if it is malleable, at the widest step that fits; else provisionally or
opportunistically, if it may. Else it waits, and its verdict has every cause.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from jobtree.core.funding.cover import funding_refusals
from jobtree.core.model.gang_shape import GangShape
from jobtree.core.model.reasons import ROOM, Cause, Reason, Verdict
from jobtree.core.model.refusals import describe
from jobtree.core.model.widest_width import TRIED_IN_ORDER, widest_width
from jobtree.core.operations.family_promises import promise_before_family, start_before_family
from jobtree.core.operations.gang_layout import GangLayout
from jobtree.core.operations.payer_changes import repay_opportunistic
from jobtree.core.operations.promise_changes import (
    empty_promise,
    find_date,
    make_promise,
    promise_place,
)
from jobtree.core.operations.reclaim import provisional_gpus, recallable_leases
from jobtree.core.operations.trial import Trial
from jobtree.core.planning.recall_notice import is_preferred, promise_after_recall, recall_options
from jobtree.core.planning.start_attempt import StartAttempt, start_provisionally
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.domain import total_placeable
from jobtree.core.supply.flavor_pool import FlavorPool
from jobtree.core.supply.node_slots import PodDemand


class AdmissionHints(Protocol):
    """What is known about starts that would fail, so that they need not be tried."""

    def may_start_by_reclaim(self, run: RunState) -> bool:
        """Whether the Run might start if opportunistic work ended."""

    def may_start_by_recall(self, run: RunState) -> bool:
        """Whether the Run might start if its owner recalled family charges."""

    def is_known_dateless(self, run: RunState) -> bool:
        """Whether the Run has no date because another one like it, with an earlier precedence, has none."""

    def record_dateless(self, run: RunState) -> None:
        """Records that no date was found for this Run."""


class NoHints:
    """Knows nothing: every start must be tried."""

    def may_start_by_reclaim(self, run: RunState) -> bool:  # noqa: ARG002  the protocol's signature
        return True

    def may_start_by_recall(self, run: RunState) -> bool:  # noqa: ARG002  the protocol's signature
        return True

    def is_known_dateless(self, run: RunState) -> bool:  # noqa: ARG002  the protocol's signature
        return False

    def record_dateless(self, run: RunState) -> None:
        """Does nothing."""


NO_HINTS = NoHints()


def admit(trial: Trial, run: RunState, hints: AdmissionHints = NO_HINTS) -> Verdict | None:
    """Starts a waiting Run if it can start, or finds payers for a running one with opportunistic GPUs."""
    if run.phase == "Running":
        repay_opportunistic(trial, run)
        return None
    return start_or_promise(trial, run, hints)


def start_or_promise(trial: Trial, run: RunState, hints: AdmissionHints) -> Verdict | None:
    """Starts the Run, or gives it a Reservation and returns why it waits."""
    shape = run.shape
    assert shape is not None
    flavor = trial.world.fleet.flavors.get(shape.flavor)
    pod_size = shape.pod_size(flavor.biggest_node if flavor else 1)
    if run.precedence_at(trial.world.now) is not None:
        return None  # its promise is due at this instant: the next pass activates it
    if flavor is not None:
        start = partial(start_funded, trial, run, shape, flavor, pod_size, hints)
        if start() or start_before_family(trial, run, start):
            return None
    causes = tuple(refusal_causes(trial, run, shape, flavor, pod_size))
    moved_others = False
    if run.promise is None:
        moved_others = make_best_promise(trial, run, shape, pod_size)
    elif trial.world.should_search_date(run) and not hints.is_known_dateless(run):
        moved_others = promise_before_family(trial, run, pod_size)
        if not moved_others and not find_date(trial, run, pod_size):
            hints.record_dateless(run)
    if moved_others and flavor is not None and start():
        return None  # beside its own promise, now that those of the family have moved
    if flavor is not None and start_interim(trial, run, shape, flavor, pod_size):
        if run.opportunistic_gpus:
            repay_opportunistic(trial, run)  # a part of it may be funded at once (C8)
        return None
    return Verdict("Reserved", causes)


def make_best_promise(trial: Trial, run: RunState, shape: GangShape, pod_size: int) -> bool:
    """Promises the Run its earliest start: beside all promises, before the family, or after a recall.

    Returns whether promises of the family moved for it.
    """
    if promise_place(trial, run, pod_size):
        return False
    checkpoint = trial.checkpoint()
    start = StartAttempt(trial, run, shape.min, pod_size, after_notice=True)
    options = recall_options(trial, [run], start.recall)

    def promise_beside_others() -> bool:
        if promise_before_family(trial, run, pod_size):
            return True
        make_promise(trial, run, pod_size)
        return False

    moved_others = promise_beside_others()
    if is_preferred(trial.world, options, run.promise):
        trial.rollback(checkpoint)
        undated = empty_promise(trial.world, run, pod_size, run, run.reservations_made + 1)
        moved_others = not promise_after_recall(trial, [run], [undated], options) and promise_beside_others()
    return moved_others


def start_funded(  # noqa: PLR0913, PLR0917  whose, of what shape, where, and who may help
    trial: Trial, run: RunState, shape: GangShape, flavor: FlavorPool, pod_size: int, hints: AdmissionHints
) -> bool:
    """Starts at the widest width that is funded and breaks no promise."""
    reachable_gpus = flavor.free + flavor.opportunistic_slots + provisional_gpus(trial, run)
    if reachable_gpus < shape.total and hints.may_start_by_recall(run):
        # A lease that is recalled may be demoted, and is then opportunistic too.
        reachable_gpus += sum(lease.gpus for lease in recallable_leases(trial.world, run, trial.world.now))
    widths = shape.widths(reachable_gpus)
    unfunded = first_funded(trial, run, widths, pod_size) if hints.may_start_by_recall(run) else 0
    return any(
        start_at_widest(trial, part, lambda width: start_at_width(trial, run, width, pod_size, hints))
        for part in (widths[:unfunded], widths[unfunded:])
    )


def first_funded(trial: Trial, run: RunState, widths: range, pod_size: int) -> int:
    """Returns how many of many widths lack budget: they can start by a recall, narrower ones cannot."""
    if len(widths) <= TRIED_IN_ORDER:
        return 0

    def is_funded(width: int) -> bool:
        return not funding_refusals(trial.world, run, width, pod_size, trial.world.now, anywhere=True)

    return bisect_left(widths, True, key=is_funded)  # noqa: FBT003  the value that is searched


def start_at_widest(trial: Trial, widths: Sequence[int], start: Callable[[int], bool]) -> bool:
    """Starts at the widest of these widths at which ``start`` succeeds."""
    checkpoint, started = trial.checkpoint(), 0

    def fits(width: int) -> bool:
        nonlocal started
        trial.rollback(checkpoint)
        started = width if start(width) else 0
        return started > 0

    width = widest_width(widths, fits)
    return width is not None and (width == started or fits(width))


def start_interim(trial: Trial, run: RunState, shape: GangShape, flavor: FlavorPool, pod_size: int) -> bool:
    """Starts provisionally on what is promised to others, or opportunistically; keeps the Reservation."""
    if shape.checkpoint is not None and start_at_widest(
        trial, shape.widths(flavor.free), lambda width: start_provisionally(trial, run, width, pod_size)
    ):
        return True
    reachable_gpus = flavor.free + flavor.spare_slots if shape.allow_opportunistic else 0
    return start_at_widest(
        trial, shape.widths(reachable_gpus), lambda width: start_opportunistic(trial, run, width, pod_size)
    )


def start_at_width(
    trial: Trial, run: RunState, width: int, pod_size: int, hints: AdmissionHints = NO_HINTS
) -> bool:
    """Starts at that width: on free slots, else on those of opportunistic work, else with recalled budget."""
    start = StartAttempt(trial, run, width, pod_size)
    return (
        start.attempt()
        or (hints.may_start_by_reclaim(run) and start.reclaim())
        or (hints.may_start_by_recall(run) and start.recall())
    )


def start_opportunistic(trial: Trial, run: RunState, width: int, pod_size: int) -> bool:
    """Starts on slots that no envelope pays for: free ones, else also those of other Runs' spares (P7)."""
    checkpoint, now = trial.checkpoint(), trial.world.now
    for on_spares in (False, True):
        trial.begin_action(
            "Start", run, now, Cause(Reason.OPPORTUNISTIC, "", width, width), pod_size=pod_size
        )
        if GangLayout(trial, run, pod_size, now, "Start", opportunistic=True, may_use_spares=on_spares).place(
            width
        ):
            return True
        trial.rollback(checkpoint)
    return False


def refusal_causes(
    trial: Trial, run: RunState, shape: GangShape, flavor: FlavorPool | None, pod_size: int
) -> list[Cause]:
    """Every cause why the Run cannot start at its least width: payers, room, nodes that refused its pods."""
    causes = causes_of_width(trial, run, shape, flavor, pod_size)
    paused = [refusal for refusal in run.refusals if refusal.node in run.avoided_nodes]
    if paused and any(cause.reason.topic == ROOM for cause in causes):
        causes.append(Cause(Reason.UNPLACEABLE, describe(paused)))
    return causes


def causes_of_width(
    trial: Trial, run: RunState, shape: GangShape, flavor: FlavorPool | None, pod_size: int
) -> list[Cause]:
    world = trial.world
    causes = funding_refusals(world, run, shape.min, pod_size, world.now)
    if flavor is None or not flavor.domains:
        return [*causes, Cause(Reason.NO_SUCH_FLAVOR, shape.flavor, 0, shape.min)]
    layout = GangLayout(trial, run, pod_size, world.now, "Start")
    demand, flavor_text = layout.demand(), f"flavor {flavor.name}"
    gpus_together = shape.group if shape.group and shape.spread else 0 if shape.spread else shape.min
    largest_domain_gpus = flavor.largest_domain_pods(demand) * pod_size
    misfits = misfit_text(flavor, demand) if largest_domain_gpus < max(gpus_together, pod_size) else ""
    if largest_domain_gpus < gpus_together or misfits:
        needed = gpus_together or shape.min
        return [*causes, Cause(Reason.GROUP_TOO_LARGE, flavor_text + misfits, largest_domain_gpus, needed)]
    available = placeable_gpus(flavor, demand, shape)
    if available < shape.min:
        return [*causes, Cause(Reason.NO_FREE_SLOTS, flavor_text, available, shape.min)]
    if causes:
        return causes
    available = max(
        (placeable_gpus(flavor, layout.demand(payer), shape) for payer in layout.candidates), default=0
    )
    if available < shape.min:
        return [Cause(Reason.NO_FREE_SLOTS, "where they are paid for", available, shape.min)]
    free = sum(max(0, layout.unreserved_gpus(domain)) for domain in list(flavor.in_pack_order(pod_size)))
    left = min(free, available)
    return [Cause(Reason.HELD, flavor_text, left if left < shape.min else 0, shape.min)]


def misfit_text(flavor: FlavorPool, demand: PodDemand) -> str:
    """Says how many nodes can never run such a pod, and why most of them cannot; empty if all can (N2)."""
    nodes = [state.node for domain in flavor.domains.values() for state in domain.nodes.values()]
    misfits = Counter(why for node in nodes if (why := demand.requirements.misfit(node)))
    if not misfits:
        return ""
    why = min(misfits, key=lambda why: (-misfits[why], why))
    return f"; {misfits.total()} of {len(nodes)} nodes cannot run its pods: {why}"


def placeable_gpus(flavor: FlavorPool, demand: PodDemand, shape: GangShape) -> int:
    """Free GPUs that the Run's pods could use, in whole groups if it has groups (P2)."""
    domains = list(flavor.in_pack_order(demand.size))  # the other domains have no room for a single pod
    if not shape.spread:
        return max((domain.placeable(demand) for domain in domains), default=0) * demand.size
    if not shape.group:
        return total_placeable(domains, demand) * demand.size
    pods = max(1, shape.group // demand.size)
    return sum(domain.placeable(demand) // pods for domain in domains) * shape.group
