"""Who is asked when something could start: Runs that wait, in order, and Runs that want to be wider.

The queue holds what waits by creation, and what holds GPUs that nobody pays for: a payer is looked for as for
those that wait. A running Run that wants more GPUs or lacks spares is eager in its flavor, once its pause
since the last change is over (E1); until then it ripens. One that is wider than it wants to be is noted for
the next plan.

Of the queue only those are asked who are awake, or whom something that came free could help (``sleepers``).
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from jobtree.api.schema.quantities import SECOND
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import CreationOrder
from jobtree.core.runs.rank_assignment import reassign_ranks
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.inactive_queue import InactiveQueue, ReconsideredUpTo, WaitSignature
from jobtree.core.world.timers import may_grow_at

if TYPE_CHECKING:
    from jobtree.core.world.world import World


class RunQueue:
    def __init__(self, world: "World") -> None:
        self._world = world
        self.queue: list[CreationOrder] = []  # Runs that wait, or hold GPUs that nobody pays for
        self._awake: dict[CreationOrder, None] = {}  # of those: whoever must be asked
        self._sleepers = InactiveQueue()
        self._came: set[CreationOrder] = set()  # into the queue, since this round of asking began
        self._left: set[CreationOrder] = set()
        self._listed: set[CreationOrder] = set()  # who is to be asked in this round, or was
        self._roused: ReconsideredUpTo = {}  # up to how many GPUs those who slept were listed, by like
        self._woken: set[CreationOrder] = set()  # since they were last listed
        self._gains: list[int] = []  # of all flavors then
        self._ripening: list[tuple[int, RunKey]] = []  # when Runs that want to grow may
        self._kept: list[tuple[int, str]] = []  # when all of a flavor are to be asked, though nothing changed

    def update(self, run: RunState) -> None:
        """Put the Run into the queue or take it out, as it stands now."""
        belongs = run.waiting or (run.opportunistic_gpus > 0 and not run.cancelled)
        if not belongs:
            self.remove(run)
            return
        if not run.queued:
            insort(self.queue, run.creation_order)
            run.enter_queue()
            record_either(run.creation_order, self._left, self._came)
            self._world.fleet.flavor(run.flavor).queue_checked_generation = -1
        self.mark_active(run)

    def remove(self, run: RunState) -> None:
        if run.queued:
            del self.queue[bisect_left(self.queue, run.creation_order)]
            run.leave_queue()
            record_either(run.creation_order, self._came, self._left)
            self._sleepers.remove(run.creation_order)
            self._awake.pop(run.creation_order, None)

    def mark_active(self, run: RunState) -> None:
        """Something about a Run in the queue changed: it is asked whatever comes free."""
        self._sleepers.remove(run.creation_order)
        if run.creation_order not in self._awake:
            self._awake[run.creation_order] = None
            self._woken.add(run.creation_order)

    def mark_inactive(self, run: RunState) -> None:
        """A Run in the queue was asked: most need not be asked again until something could help them."""
        biggest = self._world.fleet.flavor(run.flavor).biggest_node
        if run.creation_order in self._awake and self._sleepers.add(run, biggest):
            del self._awake[run.creation_order]

    def begin_round(self) -> None:
        """All who are in the queue now have their turn before those who come into it."""
        self._came.clear()
        self._left.clear()

    def active_runs(self, most: Callable[[WaitSignature], int]) -> list[CreationOrder]:
        """Who is to be asked in this round, in order, if at most so many GPUs could be there for each."""
        self._listed, self._roused = set(), {}
        return sorted(self._new_candidates(self._awake, most))  # most of them in order already

    def newly_active_runs(
        self, order: CreationOrder, most: Callable[[WaitSignature], int]
    ) -> list[CreationOrder]:
        """Who behind that one is to be asked as well, and was not when they were last listed."""
        woken = [one for one in self._woken if one > order and one in self._awake]
        if not woken and self._gains == self._reconsider_generations():
            self._woken = set()
            return []
        return [one for one in self._new_candidates(woken, most) if one > order]

    def _new_candidates(
        self, awake: Iterable[CreationOrder], most: Callable[[WaitSignature], int]
    ) -> list[CreationOrder]:
        """Those of them, and of all who sleep, that were not listed before."""
        gained = {
            one.name
            for one in self._world.fleet.flavors.values()
            if one.inactive_checked_generation != one.reconsider_generation
        }
        self._woken, self._gains = set(), self._reconsider_generations()
        came, listed = self._came, self._listed
        everyone = (*awake, *self._sleepers.to_reconsider(most, gained, self._roused))
        found = [one for one in everyone if one not in came and one not in listed]
        self._listed.update(found)
        return found

    def _reconsider_generations(self) -> list[int]:
        return [one.reconsider_generation for one in self._world.fleet.flavors.values()]

    def is_active(self, order: CreationOrder, most: Callable[[WaitSignature], int]) -> bool:
        """Whether one of those who were to be asked is to be asked still."""
        return order in self._awake or self._sleepers.may_reconsider(order, most)

    def update_growth(self, run: RunState) -> None:
        """A running Run may be wider than it wants to be now, or want more than it has (E1, E2)."""
        world, shape = self._world, run.shape
        if run.phase != "Running" or shape is None:
            return
        if shape.malleable and run.width > shape.desired:
            world.runs_to_check.add(run.key)
        flavor, at = world.fleet.flavor(shape.flavor), may_grow_at(run)
        if not run.wants_growth or at > world.now:
            flavor.growth_candidates.discard(run.key)
        else:
            flavor.growth_candidates.add(run.creation_order)
            flavor.growth_checked_generation = -1
        if run.wants_growth and at > world.now:
            heappush(self._ripening, (at, run.key))
            world.timers.schedule_run(run)

    def schedule_recall(self, run: RunState, *, settled: bool) -> None:
        """A promise was kept with money of the family: who lent it is asked again when it may recall it.

        From who has settled on its promise it may from the next second on, too, however long that one runs.
        """
        until = run.protected_until
        if until is not None and settled:
            until = self._world.now + SECOND
        if until is not None and until > self._world.now:
            heappush(self._kept, (until, run.flavor))
            self._world.timers.schedule_run(run)

    def schedule_payer_check(self, run: RunState, at: int | None) -> None:
        """A Run that holds unpaid GPUs was asked, and somebody may pay for them from that instant on."""
        if at != run.payable_at:
            run.set_payable_at(at)
            self._world.timers.schedule_run(run)
            if at is not None:
                heappush(self._kept, (at, run.flavor))

    def process_due(self) -> None:
        """The clock moved: some may grow now, recall what they have lent, or be paid for."""
        while self._kept and self._kept[0][0] <= self._world.now:
            self._world.fleet.flavor(heappop(self._kept)[1]).reconsider_generation += 1
        runs, now = self._world.runs, self._world.now
        while self._ripening and self._ripening[0][0] <= now:
            _, key = heappop(self._ripening)
            if key in runs:
                self.update_growth(runs[key])

    def leases_changed(self, run: RunState) -> None:
        """The Run's leases changed for good: so did its ranks, and perhaps what it wants."""
        if run.phase == "Running":
            reassign_ranks(run)
            self.update_growth(run)
        else:
            run.assign_ranks({})
            self._world.fleet.flavor(run.flavor).growth_candidates.discard(run.key)


def record_either(order: CreationOrder, undone: set[CreationOrder], done: set[CreationOrder]) -> None:
    """Note that one thing was done, or that the other is undone."""
    if order in undone:
        undone.remove(order)
    else:
        done.add(order)
