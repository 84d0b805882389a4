"""The Runs that a pass must consider: waiting Runs in creation order, and running Runs that want to grow.

The queue has the waiting Runs, and the Runs with opportunistic GPUs, for which a pass looks for a payer. Of
the queue, a pass considers the active Runs, and the inactive ones that a change could help
(``inactive_queue``).

A running Run that wants more GPUs or lacks spares is a growth candidate of its flavor once its interval since
the last change is over (E1). A Run that is wider than it wants to be is checked by the next pass.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import CreationOrder
from jobtree.core.runs.rank_assignment import reassign_ranks
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.fleet import Fleet
from jobtree.core.world.inactive_queue import InactiveQueue, MaxGpus, ReconsideredUpTo, WaitSignature
from jobtree.core.world.pending_changes import PendingChanges
from jobtree.core.world.timers import TimerQueue, may_grow_at
from jobtree.core.world.waiting_line import WaitingLine

MaxGpusFor = Callable[[WaitSignature], MaxGpus]


class RunQueue:
    def __init__(
        self, runs: dict[RunKey, RunState], fleet: Fleet, timers: TimerQueue, changes: PendingChanges
    ) -> None:
        self._runs = runs
        self._fleet = fleet
        self._timers = timers
        self._changes = changes
        self.queue: list[CreationOrder] = []  # waiting Runs, and Runs with opportunistic GPUs
        self._active: dict[CreationOrder, None] = {}  # Runs of the queue that a pass must consider
        self._inactive = InactiveQueue()
        self.line = WaitingLine()
        self._activated: list[RunState] = []  # Runs that were inactive when this pass began
        self._entered: set[CreationOrder] = set()  # Runs that entered the queue since this round began
        self._left: set[CreationOrder] = set()
        self._listed: set[CreationOrder] = set()  # Runs that this round has listed
        self._reconsidered: ReconsideredUpTo = {}  # GPUs up to which inactive Runs were listed
        self._holders: frozenset[CreationOrder] = frozenset()  # of promised room, when Runs were last listed
        self._newly_active: set[CreationOrder] = set()  # since active Runs were last listed
        self._generations: list[int] = []  # of all flavors, when active Runs were last listed
        self._growth_times: list[tuple[int, RunKey]] = []  # when Runs that want to grow may
        self._reconsider_times: list[tuple[int, str]] = []  # when to reconsider a flavor without a change

    def update(self, run: RunState) -> None:
        """Adds a changed Run to the queue, or removes it."""
        belongs = run.waiting or (run.opportunistic_gpus > 0 and not run.cancelled)
        if not belongs:
            self.remove(run)
            return
        if not run.queued:
            insort(self.queue, run.creation_order)
            run.enter_queue()
            record_either(run.creation_order, self._left, self._entered)
            self._fleet.flavor(run.flavor).queue_checked_generation = -1
        self.line.update(run)
        self.mark_active(run)

    def remove(self, run: RunState) -> None:
        self.line.remove(run)
        if run.queued:
            del self.queue[bisect_left(self.queue, run.creation_order)]
            run.leave_queue()
            record_either(run.creation_order, self._entered, self._left)
            self._leave_inactive(run)
            self._active.pop(run.creation_order, None)

    def mark_active(self, run: RunState) -> None:
        """Has the next pass consider a changed Run of the queue."""
        self._leave_inactive(run)
        if run.creation_order not in self._active:
            self._active[run.creation_order] = None
            self._newly_active.add(run.creation_order)

    def _leave_inactive(self, run: RunState) -> None:
        if self._inactive.remove(run.creation_order):
            self._activated.append(run)

    def mark_inactive(self, run: RunState) -> None:
        """Skips a Run that a pass has considered until a change could help it, if it can be skipped."""
        biggest_node = self._fleet.flavor(run.flavor).biggest_node
        if run.creation_order in self._active and self._inactive.add(run, biggest_node):
            del self._active[run.creation_order]

    def begin_pass(self) -> None:
        """Begins a pass, which changes Runs and rolls all changes back."""
        self._activated.clear()

    def end_pass(self) -> None:
        """Makes the Runs that the pass activated inactive again, once its changes are rolled back."""
        activated, self._activated = self._activated, []
        for run in activated:
            self.mark_inactive(run)

    def begin_round(self, promise_depth: int) -> None:
        """Begins a round: Runs that enter the queue from here on wait for the next one."""
        self._entered.clear()
        self._left.clear()
        for order in list(self.line.moved_up(promise_depth)):
            self.mark_active(self._runs[order[1:]])

    def active_runs(self, max_gpus: MaxGpusFor) -> list[CreationOrder]:
        """Returns the Runs that this round considers, in creation order."""
        self._listed, self._reconsidered = set(), {}
        return sorted(self._new_candidates(self._active, max_gpus))  # most of them are in order already

    def newly_active_runs(self, creation_order: CreationOrder, max_gpus: MaxGpusFor) -> list[CreationOrder]:
        """Returns Runs behind ``creation_order`` that became active since the last call."""
        active = [order for order in self._newly_active if order > creation_order and order in self._active]
        if not active and self._generations == self._reconsider_generations():
            self._newly_active = set()
            return []
        return [order for order in self._new_candidates(active, max_gpus) if order > creation_order]

    def _new_candidates(self, active: Iterable[CreationOrder], max_gpus: MaxGpusFor) -> list[CreationOrder]:
        """Returns those of the active and all inactive Runs to consider that this round has not listed."""
        changed_flavors = {
            flavor.name
            for flavor in self._fleet.flavors.values()
            if flavor.inactive_checked_generation != flavor.reconsider_generation
        }
        self._newly_active, self._generations = set(), self._reconsider_generations()
        entered, listed = self._entered, self._listed
        self._holders = self._holders_of_room(changed_flavors)
        inactive = self._inactive.to_reconsider(max_gpus, changed_flavors, self._holders, self._reconsidered)
        candidates = [
            order
            for order in dict.fromkeys((*active, *inactive))
            if order not in entered and order not in listed
        ]
        self._listed.update(candidates)
        return candidates

    def _holders_of_room(self, flavors: Iterable[str]) -> frozenset[CreationOrder]:
        """Returns the Runs whose promises count on domains of these flavors that have free GPUs."""
        return frozenset(
            self._runs[run_key].creation_order
            for flavor in map(self._fleet.flavor, sorted(flavors))
            for domain in flavor.in_pack_order(1)
            for run_key in domain.promises
        )

    def _reconsider_generations(self) -> list[int]:
        return [flavor.reconsider_generation for flavor in self._fleet.flavors.values()]

    def is_active(self, creation_order: CreationOrder, max_gpus: MaxGpusFor) -> bool:
        """Whether a Run that this round has listed must still be considered."""
        return creation_order in self._active or self._inactive.may_reconsider(
            creation_order, max_gpus, self._holders
        )

    def update_growth(self, run: RunState) -> None:
        """Updates whether a running Run is a growth candidate, or wider than it wants to be (E1, E2)."""
        shape, now = run.shape, self._timers.now
        if run.phase != "Running" or shape is None:
            return
        if shape.malleable and run.width > shape.desired:
            self._changes.runs_to_check.add(run.key)
        flavor, at = self._fleet.flavor(shape.flavor), may_grow_at(run)
        wants_growth = run.wants_growth
        if not wants_growth or at > now:
            flavor.growth_candidates.discard(run.key)
        else:
            flavor.growth_candidates.add(run.creation_order)
            flavor.growth_checked_generation = -1
        if wants_growth and at > now:
            heappush(self._growth_times, (at, run.key))
            self._timers.schedule_run(run)

    def schedule_recall(self, run: RunState) -> None:
        """Schedules when a promised start may lose its payers of the family, and then its slots."""
        for until in (run.recallable_from, run.reclaimable_from):
            if until is not None and until > self._timers.now:
                heappush(self._reconsider_times, (until, run.flavor))
                self._timers.schedule_run(run)

    def schedule_payer_check(self, run: RunState, at: int | None) -> None:
        """Schedules when the opportunistic GPUs of a Run may find a payer; None: never."""
        if at != run.payable_at:
            run.set_payable_at(at)
            self._timers.schedule_run(run)
            if at is not None:
                heappush(self._reconsider_times, (at, run.flavor))

    def process_due(self) -> None:
        """Handles what became due when the clock advanced: growth, recalls and payers."""
        now = self._timers.now
        while self._reconsider_times and self._reconsider_times[0][0] <= now:
            self._fleet.flavor(heappop(self._reconsider_times)[1]).reconsider_generation += 1
        while self._growth_times and self._growth_times[0][0] <= now:
            _, key = heappop(self._growth_times)
            if key in self._runs:
                self.update_growth(self._runs[key])

    def leases_changed(self, run: RunState) -> None:
        """Updates ranks and growth of a Run after a plan changed its leases."""
        if run.phase == "Running":
            reassign_ranks(run)
            self.update_growth(run)
        else:
            run.assign_ranks({})
            self._fleet.flavor(run.flavor).growth_candidates.discard(run.key)


def record_either(
    creation_order: CreationOrder, undone: set[CreationOrder], done: set[CreationOrder]
) -> None:
    """Records that a Run entered or left the queue, unless that undoes the opposite."""
    if creation_order in undone:
        undone.remove(creation_order)
    else:
        done.add(creation_order)
