"""Admission, in creation order (P7).

The whole width; a malleable Run else the widest step that fits; else unpaid, if the Run allows it;
else it waits, and the verdict says why. "No" is a value here, never an exception.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from jobtree.core.funding.cover import funding_refusals
from jobtree.core.model.gang_shape import GangShape
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.reasons import Cause, Reason, Verdict
from jobtree.core.operations.gang_layout import GangLayout
from jobtree.core.operations.payer_changes import repay_opportunistic
from jobtree.core.operations.promise_changes import exhausts_own_promise, find_date, make_promise
from jobtree.core.operations.reclaim import (
    ReclaimAction,
    is_funded_without_provisional,
    provisional_gpus,
    recall_actions,
    recallable_leases,
    reclaim_actions,
    reclaim_least,
    reclaim_until,
)
from jobtree.core.operations.trial import Trial
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.domain import total_placeable
from jobtree.core.supply.flavor_pool import FlavorPool
from jobtree.core.supply.node_slots import PodDemand
from jobtree.core.world.date_search_generation import should_search_date
from jobtree.core.world.world import World


class AdmissionHints(Protocol):
    """Whether something might give way to a start, or it is known that nothing would come of that."""

    def may_start_by_reclaim(self, run: RunState) -> bool:
        """Work that nobody pays for might."""

    def may_start_by_recall(self, run: RunState) -> bool:
        """What its family uses of the owner's money might."""

    def is_known_dateless(self, run: RunState) -> bool:
        """There is no date for it, since there is none for another like it, for whom money is kept first."""

    def record_dateless(self, run: RunState) -> None:
        """No date was found for this one."""


class NoHints:
    """Where nothing is known: all of it might."""

    def may_start_by_reclaim(self, run: RunState) -> bool:  # noqa: ARG002  the question's signature
        return True

    def may_start_by_recall(self, run: RunState) -> bool:  # noqa: ARG002  the question's signature
        return True

    def is_known_dateless(self, run: RunState) -> bool:  # noqa: ARG002  the question's signature
        return False

    def record_dateless(self, run: RunState) -> None:
        """Nothing is remembered here."""


NO_HINTS = NoHints()


def admit(trial: Trial, run: RunState, help_: AdmissionHints = NO_HINTS) -> Verdict | None:
    """Start a waiting Run if it can, or find payers for one that holds unpaid GPUs."""
    if run.phase == "Running":
        repay_opportunistic(trial, run)
        return None
    return start_or_promise(trial, run, help_)


def start_or_promise(trial: Trial, run: RunState, help_: AdmissionHints) -> Verdict | None:
    """Start the Run, or give it a Reservation and say why it waits."""
    shape = run.shape
    assert shape is not None
    flavor = trial.world.fleet.flavors.get(shape.flavor)
    size = shape.pod_size(flavor.biggest_node if flavor else 1)
    if run.precedence_at(trial.world.now) is not None:
        return None  # its promise is due this very instant: the next pass activates it
    if flavor is not None and start_funded(trial, run, shape, flavor, size, help_):
        return None
    whys = tuple(refusal_causes(trial, run, shape, flavor, size))
    if run.promise is None:
        make_promise(trial, run, size)
    elif (
        should_search_date(trial.world, run)
        and not help_.is_known_dateless(run)
        and not find_date(trial, run, size)
    ):
        help_.record_dateless(run)
    if flavor is not None and start_interim(trial, run, shape, flavor, size):
        if run.opportunistic_gpus:
            repay_opportunistic(trial, run)  # a part of it may be paid for at once (C8)
        return None
    return Verdict("Reserved", whys)


def start_funded(  # noqa: PLR0913, PLR0917  whose, of what shape, where, and who may help
    trial: Trial, run: RunState, shape: GangShape, flavor: FlavorPool, size: int, help_: AdmissionHints
) -> bool:
    """Start at the widest width that somebody pays for and that stands in no promise's way."""
    reach = flavor.free + flavor.opportunistic_slots + provisional_gpus(trial, run)
    if reach < shape.total and help_.may_start_by_recall(run):
        # What is recalled may be demoted, and then it is unpaid too.
        reach += sum(lease.gpus for lease in recallable_leases(trial.world, run, trial.world.now))
    return any(width <= reach and start_at_width(trial, run, width, size, help_) for width in shape.widths())


def start_interim(trial: Trial, run: RunState, shape: GangShape, flavor: FlavorPool, size: int) -> bool:
    """Start provisionally on what is promised to others, or unpaid; either way it keeps its Reservation."""
    if shape.checkpoint is not None and start_provisionally(trial, run, shape, size):
        return True
    reach = flavor.free + flavor.spare_slots if shape.allow_opportunistic else 0
    return any(width <= reach and start_opportunistic(trial, run, width, size) for width in shape.widths())


def start_at_width(
    trial: Trial, run: RunState, width: int, size: int, help_: AdmissionHints = NO_HINTS
) -> bool:
    """Start at that width: on free slots, else on those of unpaid work, else with recalled money."""
    start = StartAttempt(trial, run, width, size)
    return (
        start.attempt()
        or (help_.may_start_by_reclaim(run) and start.reclaim())
        or (help_.may_start_by_recall(run) and start.recall())
    )


class StartAttempt:
    """A start at one width, and what may give way to it."""

    def __init__(self, trial: Trial, run: RunState, width: int, size: int) -> None:
        self._trial, self._world, self._now = trial, trial.world, trial.world.now
        self._run, self._width, self._size = run, width, size
        self._flavor = trial.world.fleet.flavor(run.flavor)

    def attempt(self) -> bool:
        """On slots that are free, with money that is."""
        trial, run, mark = self._trial, self._run, self._trial.checkpoint()
        self._begin()
        if not GangLayout(trial, run, self._size, self._now, "Start").place(self._width):
            trial.rollback(mark)
            return False
        promise = run.promise
        if promise is not None:
            why = Cause(Reason.SUPERSEDED, promise.name)
            trial.begin_action("Supersede", run, self._now, why, promise=promise)
        return True

    def _begin(self) -> None:
        why = Cause(Reason.ADMITTED, self._run.owner, self._width, self._width)
        self._trial.begin_action("Start", self._run, self._now, why, pod_size=self._size)

    def _funded(self) -> bool:
        return not funding_refusals(self._world, self._run, self._width, self._size, self._now)

    def reclaim(self) -> bool:
        """On slots of unpaid work, as much of it as needed."""
        return self._may_reclaim() and reclaim_least(self._trial, *self._terms())

    def _could_reclaim(self) -> bool:
        return self._may_reclaim() and bool(reclaim_until(self._trial, *self._terms()))

    def _may_reclaim(self) -> bool:
        return is_funded_without_provisional(self._trial, [self._run], self._funded) and self._makes_place([])

    def _terms(self) -> tuple[list[ReclaimAction], Callable[[], bool], Callable[[], bool]]:
        def worth() -> bool:
            return self._flavor.free >= self._width and self._funded()

        return reclaim_actions(self._trial, self._run, self._now), worth, self.attempt

    def recall(self) -> bool:
        """With money that the family gives back (C11), if it was money that lacked, not a place."""
        if not funding_refusals(self._world, self._run, self._width, self._size, self._now, anywhere=True):
            return False  # what pays in some places only does not count
        takings = recall_actions(self._trial, self._run, self._now)
        return self._makes_place(takings) and reclaim_least(
            self._trial,
            takings,
            self._funded,
            lambda: self.attempt() or self.reclaim(),
            probe=lambda: self.attempt() or self._could_reclaim(),
        )

    def _makes_place(self, takings: Sequence[ReclaimAction]) -> bool:
        """Whether it might find its place if all these were taken, and then all unpaid work too.

        Less never makes more place than all: where this says no, to try them one by one would be in vain.
        """
        trial, mark, found = self._trial, self._trial.checkpoint(), False
        for taking in takings:
            taking()
        for taking in reclaim_actions(trial, self._run, self._now):
            taking()
        if trial.checkpoint() > mark:
            self._begin()
            found = may_fit(GangLayout(trial, self._run, self._size, self._now, "Start"), self._width)
        trial.rollback(mark)
        return found


def may_fit(layout: GangLayout, width: int) -> bool:
    """Whether pods for that width have a place, promises kept, as far as counting tells."""
    shape, size = layout.shape, layout.size
    chunk = max(size, shape.group) if shape.spread else width
    missing = width // chunk * chunk
    for domain in list(layout.flavor.in_pack_order(min(chunk, missing))):
        missing -= max(0, layout.unreserved_gpus(domain)) // chunk * chunk
        if missing <= 0:
            return True
    return missing <= 0


def start_provisionally(trial: Trial, run: RunState, shape: GangShape, size: int) -> bool:
    """Start in promised slots or with promised money, as long as enough time remains (R6)."""
    now = trial.world.now
    for width in shape.widths():
        mark = trial.checkpoint()
        cause = Cause(Reason.PROVISIONAL, "", width, width)
        trial.begin_action("Start", run, now, cause, pod_size=size, provisional=True)
        placed = GangLayout(trial, run, size, now, "Start").place(width)
        if placed and not exhausts_own_promise(trial.world, run):
            return True
        trial.rollback(mark)
    return False


def start_opportunistic(trial: Trial, run: RunState, width: int, size: int) -> bool:
    """Start on slots that nobody pays for: free ones, else also those of other Runs' spares (P7)."""
    mark, now = trial.checkpoint(), trial.world.now
    for on_spares in (False, True):
        trial.begin_action("Start", run, now, Cause(Reason.OPPORTUNISTIC, "", width, width), pod_size=size)
        if GangLayout(trial, run, size, now, "Start", opportunistic=True, may_use_spares=on_spares).place(
            width
        ):
            return True
        trial.rollback(mark)
    return False


def refusal_causes(
    trial: Trial, run: RunState, shape: GangShape, flavor: FlavorPool | None, size: int
) -> list[Cause]:
    """Every reason why the Run cannot start at its least width: payers first, then places."""
    world = trial.world
    whys = funding_refusals(world, run, shape.min, size, world.now)
    if flavor is None or not flavor.domains:
        return [*whys, Cause(Reason.NO_SUCH_FLAVOR, shape.flavor, 0, shape.min)]
    layout = GangLayout(trial, run, size, world.now, "Start")
    demand, where = layout.demand(), f"flavor {flavor.name}"
    together = shape.group if shape.group and shape.spread else 0 if shape.spread else shape.min
    most = flavor.largest_domain_pods(demand) * size
    if most < together:
        return [*whys, Cause(Reason.GROUP_TOO_LARGE, where, most, together)]
    have = placeable_gpus(flavor, demand, shape)
    if have < shape.min:
        return [*whys, Cause(Reason.NO_FREE_SLOTS, where, have, shape.min)]
    if whys:
        return whys
    have = max(
        (placeable_gpus(flavor, layout.demand(payer), shape) for payer in layout.candidates), default=0
    )
    if have < shape.min:
        return [Cause(Reason.NO_FREE_SLOTS, "where they are paid for", have, shape.min)]
    free = sum(max(0, layout.unreserved_gpus(domain)) for domain in list(flavor.in_pack_order(size)))
    return [Cause(Reason.HELD, where, min(free, have), shape.min)]


def refresh_verdicts(world: World, runs: Iterable[RunKey]) -> list[RunKey]:
    """Bring up to date what waiting Runs are told, for whoever writes it down; those told something else.

    A plan passes over those whom a change does not help, so what they were told may speak of earlier figures.
    """
    trial = Trial(world)
    changed = []
    for run in [world.runs[key] for key in runs if key in world.runs]:
        shape, verdict = run.shape, run.verdict
        if shape is None or not run.waiting or verdict is None or verdict.phase != "Reserved":
            continue
        flavor = world.fleet.flavors.get(shape.flavor)
        size = shape.pod_size(flavor.biggest_node if flavor else 1)
        run.record_verdict(Verdict("Reserved", tuple(refusal_causes(trial, run, shape, flavor, size))))
        if run.verdict != verdict:
            world.run_queue.mark_active(run)
            changed.append(run.key)
    return changed


def placeable_gpus(flavor: FlavorPool, demand: PodDemand, shape: GangShape) -> int:
    """Free GPUs that the Run's pods could use, in whole groups where it is grouped (P2)."""
    domains = list(flavor.in_pack_order(demand.size))  # the others are too full for a single pod
    if not shape.spread:
        return max((domain.placeable(demand) for domain in domains), default=0) * demand.size
    if not shape.group:
        return total_placeable(domains, demand) * demand.size
    pods = max(1, shape.group // demand.size)
    return sum(domain.placeable(demand) // pods for domain in domains) * shape.group
