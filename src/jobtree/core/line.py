"""Who is asked when something could start: Runs that wait, in order, and Runs that want to be wider.

The queue holds what waits by creation, and what holds GPUs that nobody pays for: a payer is looked for as for
those that wait. A running Run that wants more GPUs or lacks spares is eager in its flavor, once its pause
since the last change is over (E1); until then it ripens. One that is wider than it wants to be is noted for
the next plan.
"""

from bisect import bisect_left, insort
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from jobtree.core.alarms import ripe_at
from jobtree.core.lease import RunKey
from jobtree.core.promise import Order
from jobtree.core.runs import RunState
from jobtree.core.seats import reseat

if TYPE_CHECKING:
    from jobtree.core.world import World


class Line:
    def __init__(self, world: "World") -> None:
        self._world = world
        self.queue: list[Order] = []  # Runs that wait, or hold GPUs that nobody pays for
        self._ripening: list[tuple[int, RunKey]] = []  # when Runs that want to grow may

    def place(self, state: RunState) -> None:
        """Put the Run into the queue or take it out, as it stands now."""
        belongs = state.waiting or (state.unpaid > 0 and not state.cancelled)
        if belongs and not state.queued:
            insort(self.queue, state.order)
            state.queued = True
        elif not belongs:
            self.leave(state)

    def leave(self, state: RunState) -> None:
        if state.queued:
            del self.queue[bisect_left(self.queue, state.order)]
            state.queued = False

    def note_wishes(self, state: RunState) -> None:
        """A running Run may be wider than it wants to be now, or want more than it has (E1, E2)."""
        world, shape = self._world, state.shape
        if state.phase != "Running" or shape is None:
            return
        if shape.malleable and state.width > shape.desired:
            world.attention.add(state.key)
        flavor, at = world.fleet.flavor(shape.flavor), ripe_at(state)
        if not state.wants_more or at > world.now:
            flavor.eager.pop(state.key, None)
        else:
            flavor.eager[state.key] = None
            flavor.asked = -1
        if state.wants_more and at > world.now:
            heappush(self._ripening, (at, state.key))
            world.alarms.watch_run(state)

    def ripen(self) -> None:
        """The clock moved: some may grow now."""
        runs, now = self._world.runs, self._world.now
        while self._ripening and self._ripening[0][0] <= now:
            _, key = heappop(self._ripening)
            if key in runs:
                self.note_wishes(runs[key])

    def follow_leases(self, state: RunState) -> None:
        """The Run's leases changed for good: so did its ranks, and perhaps what it wants."""
        if state.phase == "Running":
            reseat(state)
            self.note_wishes(state)
        else:
            state.seats = {}
            self._world.fleet.flavor(state.flavor).eager.pop(state.key, None)
