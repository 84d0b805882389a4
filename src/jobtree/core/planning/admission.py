"""Admission, in creation order (P7).

The whole width; a malleable Run else the widest step that fits; else unpaid, if the Run allows it;
else it waits, and the verdict says why. "No" is a value here, never an exception.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from jobtree.core.funding.cover import refusals
from jobtree.core.model.gang_shape import Shape
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.reasons import Reason, Verdict, Why
from jobtree.core.operations.gang_layout import Layout
from jobtree.core.operations.payer_changes import find_payers
from jobtree.core.operations.promise_changes import find_date, promise_start, uses_up_its_own
from jobtree.core.operations.reclaim import (
    Taking,
    funded_without,
    loans,
    provisional_gpus,
    recalls,
    reclaims,
    take_enough,
    take_least,
)
from jobtree.core.operations.trial import Trial
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.domain import total_placeable
from jobtree.core.supply.flavor_pool import Flavor
from jobtree.core.supply.node_slots import Demand
from jobtree.core.world.date_search_generation import hopeful
from jobtree.core.world.world import World


class Help(Protocol):
    """Whether something might give way to a start, or it is known that nothing would come of that."""

    def by_unpaid(self, state: RunState) -> bool:
        """Work that nobody pays for might."""

    def by_family(self, state: RunState) -> bool:
        """What its family uses of the owner's money might."""

    def hopeless(self, state: RunState) -> bool:
        """There is no date for it, since there is none for another like it, for whom money is kept first."""

    def note_hopeless(self, state: RunState) -> None:
        """No date was found for this one."""


class AnyHelp:
    """Where nothing is known: all of it might."""

    def by_unpaid(self, state: RunState) -> bool:  # noqa: ARG002  the question's signature
        return True

    def by_family(self, state: RunState) -> bool:  # noqa: ARG002  the question's signature
        return True

    def hopeless(self, state: RunState) -> bool:  # noqa: ARG002  the question's signature
        return False

    def note_hopeless(self, state: RunState) -> None:
        """Nothing is remembered here."""


ANY_HELP = AnyHelp()


def consider(trial: Trial, state: RunState, help_: Help = ANY_HELP) -> Verdict | None:
    """Start a waiting Run if it can, or find payers for one that holds unpaid GPUs."""
    if state.phase == "Running":
        find_payers(trial, state)
        return None
    return start(trial, state, help_)


def start(trial: Trial, state: RunState, help_: Help) -> Verdict | None:
    """Start the Run, or give it a Reservation and say why it waits."""
    shape = state.shape
    assert shape is not None
    flavor = trial.world.fleet.flavors.get(shape.flavor)
    size = shape.pod_size(flavor.biggest_node if flavor else 1)
    if state.standing(trial.world.now) is not None:
        return None  # its promise is due this very instant: the next pass activates it
    if flavor is not None and start_funded(trial, state, shape, flavor, size, help_):
        return None
    whys = tuple(why_not(trial, state, shape, flavor, size))
    if state.promise is None:
        promise_start(trial, state, size)
    elif hopeful(trial.world, state) and not help_.hopeless(state) and not find_date(trial, state, size):
        help_.note_hopeless(state)
    if flavor is not None and start_on_sufferance(trial, state, shape, flavor, size):
        if state.unpaid:
            find_payers(trial, state)  # a part of it may be paid for at once (C8)
        return None
    return Verdict("Reserved", whys)


def start_funded(  # noqa: PLR0913, PLR0917  whose, of what shape, where, and who may help
    trial: Trial, state: RunState, shape: Shape, flavor: Flavor, size: int, help_: Help
) -> bool:
    """Start at the widest width that somebody pays for and that stands in no promise's way."""
    reach = flavor.free + flavor.unpaid_slots + provisional_gpus(trial, state)
    if reach < shape.total and help_.by_family(state):
        # What is recalled may be demoted, and then it is unpaid too.
        reach += sum(lease.gpus for lease in loans(trial.world, state, trial.world.now))
    return any(width <= reach and start_at(trial, state, width, size, help_) for width in shape.widths())


def start_on_sufferance(trial: Trial, state: RunState, shape: Shape, flavor: Flavor, size: int) -> bool:
    """Start provisionally on what is promised to others, or unpaid; either way it keeps its Reservation."""
    if shape.checkpoint is not None and start_provisionally(trial, state, shape, size):
        return True
    reach = flavor.free + flavor.spare_slots if shape.allow_opportunistic else 0
    return any(width <= reach and start_unpaid(trial, state, width, size) for width in shape.widths())


def start_at(trial: Trial, state: RunState, width: int, size: int, help_: Help = ANY_HELP) -> bool:
    """Start at that width: on free slots, else on those of unpaid work, else with recalled money."""
    start = Start(trial, state, width, size)
    return (
        start.attempt()
        or (help_.by_unpaid(state) and start.reclaim())
        or (help_.by_family(state) and start.recall())
    )


class Start:
    """A start at one width, and what may give way to it."""

    def __init__(self, trial: Trial, state: RunState, width: int, size: int) -> None:
        self._trial, self._world, self._now = trial, trial.world, trial.world.now
        self._state, self._width, self._size = state, width, size
        self._flavor = trial.world.fleet.flavor(state.flavor)

    def attempt(self) -> bool:
        """On slots that are free, with money that is."""
        trial, state, mark = self._trial, self._state, self._trial.mark()
        self._begin()
        if not Layout(trial, state, self._size, self._now, "Start").place(self._width):
            trial.rollback(mark)
            return False
        promise = state.promise
        if promise is not None:
            why = Why(Reason.SUPERSEDED, promise.name)
            trial.act("Supersede", state, self._now, why, promise=promise)
        return True

    def _begin(self) -> None:
        why = Why(Reason.ADMITTED, self._state.owner, self._width, self._width)
        self._trial.act("Start", self._state, self._now, why, pod_size=self._size)

    def _funded(self) -> bool:
        return not refusals(self._world, self._state, self._width, self._size, self._now)

    def reclaim(self) -> bool:
        """On slots of unpaid work, as much of it as needed."""
        return self._may_reclaim() and take_least(self._trial, *self._terms())

    def _could_reclaim(self) -> bool:
        return self._may_reclaim() and bool(take_enough(self._trial, *self._terms()))

    def _may_reclaim(self) -> bool:
        return funded_without(self._trial, [self._state], self._funded) and self._makes_place([])

    def _terms(self) -> tuple[list[Taking], Callable[[], bool], Callable[[], bool]]:
        def worth() -> bool:
            return self._flavor.free >= self._width and self._funded()

        return reclaims(self._trial, self._state, self._now), worth, self.attempt

    def recall(self) -> bool:
        """With money that the family gives back (C11), if it was money that lacked, not a place."""
        if not refusals(self._world, self._state, self._width, self._size, self._now, anywhere=True):
            return False  # what pays in some places only does not count
        takings = recalls(self._trial, self._state, self._now)
        return self._makes_place(takings) and take_least(
            self._trial,
            takings,
            self._funded,
            lambda: self.attempt() or self.reclaim(),
            probe=lambda: self.attempt() or self._could_reclaim(),
        )

    def _makes_place(self, takings: Sequence[Taking]) -> bool:
        """Whether it might find its place if all these were taken, and then all unpaid work too.

        Less never makes more place than all: where this says no, to try them one by one would be in vain.
        """
        trial, mark, found = self._trial, self._trial.mark(), False
        for taking in takings:
            taking()
        for taking in reclaims(trial, self._state, self._now):
            taking()
        if trial.mark() > mark:
            self._begin()
            found = may_fit(Layout(trial, self._state, self._size, self._now, "Start"), self._width)
        trial.rollback(mark)
        return found


def may_fit(layout: Layout, width: int) -> bool:
    """Whether pods for that width have a place, promises kept, as far as counting tells."""
    shape, size = layout.shape, layout.size
    chunk = max(size, shape.group) if shape.spread else width
    missing = width // chunk * chunk
    for domain in list(layout.flavor.in_pack_order(min(chunk, missing))):
        missing -= max(0, layout.unheld_gpus(domain)) // chunk * chunk
        if missing <= 0:
            return True
    return missing <= 0


def start_provisionally(trial: Trial, state: RunState, shape: Shape, size: int) -> bool:
    """Start in promised slots or with promised money, as long as enough time remains (R6)."""
    now = trial.world.now
    for width in shape.widths():
        mark = trial.mark()
        cause = Why(Reason.PROVISIONAL, "", width, width)
        trial.act("Start", state, now, cause, pod_size=size, provisional=True)
        placed = Layout(trial, state, size, now, "Start").place(width)
        if placed and not uses_up_its_own(trial.world, state):
            return True
        trial.rollback(mark)
    return False


def start_unpaid(trial: Trial, state: RunState, width: int, size: int) -> bool:
    """Start on slots that nobody pays for: free ones, else also those of other Runs' spares (P7)."""
    mark, now = trial.mark(), trial.world.now
    for on_spares in (False, True):
        trial.act("Start", state, now, Why(Reason.OPPORTUNISTIC, "", width, width), pod_size=size)
        if Layout(trial, state, size, now, "Start", unpaid=True, on_spares=on_spares).place(width):
            return True
        trial.rollback(mark)
    return False


def why_not(trial: Trial, state: RunState, shape: Shape, flavor: Flavor | None, size: int) -> list[Why]:
    """Every reason why the Run cannot start at its least width: payers first, then places."""
    world = trial.world
    whys = refusals(world, state, shape.min, size, world.now)
    if flavor is None or not flavor.domains:
        return [*whys, Why(Reason.NO_SUCH_FLAVOR, shape.flavor, 0, shape.min)]
    layout = Layout(trial, state, size, world.now, "Start")
    demand, where = layout.demand(), f"flavor {flavor.name}"
    together = shape.group if shape.group and shape.spread else 0 if shape.spread else shape.min
    most = flavor.largest(demand) * size
    if most < together:
        return [*whys, Why(Reason.GROUP_TOO_LARGE, where, most, together)]
    have = placeable_gpus(flavor, demand, shape)
    if have < shape.min:
        return [*whys, Why(Reason.NO_FREE_SLOTS, where, have, shape.min)]
    if whys:
        return whys
    have = max(
        (placeable_gpus(flavor, layout.demand(payer), shape) for payer in layout.candidates), default=0
    )
    if have < shape.min:
        return [Why(Reason.NO_FREE_SLOTS, "where they are paid for", have, shape.min)]
    free = sum(max(0, layout.unheld_gpus(domain)) for domain in list(flavor.in_pack_order(size)))
    return [Why(Reason.HELD, where, min(free, have), shape.min)]


def retell(world: World, runs: Iterable[RunKey]) -> list[RunKey]:
    """Bring up to date what waiting Runs are told, for whoever writes it down; those told something else.

    A plan passes over those whom a change does not help, so what they were told may speak of earlier figures.
    """
    trial = Trial(world)
    changed = []
    for state in [world.runs[key] for key in runs if key in world.runs]:
        shape, verdict = state.shape, state.verdict
        if shape is None or not state.waiting or verdict is None or verdict.phase != "Reserved":
            continue
        flavor = world.fleet.flavors.get(shape.flavor)
        size = shape.pod_size(flavor.biggest_node if flavor else 1)
        state.verdict = Verdict("Reserved", tuple(why_not(trial, state, shape, flavor, size)))
        if state.verdict != verdict:
            world.line.wake(state)
            changed.append(state.key)
    return changed


def placeable_gpus(flavor: Flavor, demand: Demand, shape: Shape) -> int:
    """Free GPUs that the Run's pods could use, in whole groups where it is grouped (P2)."""
    domains = list(flavor.in_pack_order(demand.size))  # the others are too full for a single pod
    if not shape.spread:
        return max((domain.placeable(demand) for domain in domains), default=0) * demand.size
    if not shape.group:
        return total_placeable(domains, demand) * demand.size
    pods = max(1, shape.group // demand.size)
    return sum(domain.placeable(demand) // pods for domain in domains) * shape.group
