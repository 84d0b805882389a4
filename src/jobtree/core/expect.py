"""When a waiting Run is expected to start, which may well be before it is promised to.

A promise is an upper bound: it counts on certain ends only. Here Runs end when they are likely to, and those
who wait start one behind the other (``outlook``). Where nothing is known about anybody in the way there is
no answer. What is told follows from this and from what came of earlier tellings (``experience``).

Nothing here decides, so it is bounded. An outlook is asked on while little has changed, and made anew when

- it is older than a twentieth of the usual wait that it foresees; where many were played through not before
  about as many were told behind them, unless it is older than a quarter of that wait;
- nodes or budgets have changed;
- much of what was free has been taken since;
- a Run that came since would start soon: its own wait, too, is twenty times as long as an outlook is old.
"""

from jobtree.core.books import FOREVER
from jobtree.core.experience import LEAST_MEAN, Expected, Told
from jobtree.core.outlook import Outlook
from jobtree.core.promise import Promise
from jobtree.core.runs import RunState
from jobtree.core.world import World

STANDS = 20  # an outlook may be as old as this part of the wait that it foresees
DEAR_STANDS = 4  # the same, of one that was dear and has not yet told enough
CHEAP = 16  # Runs played through that cost next to nothing


class Expectations:
    """What those who wait in a world are told, for as long as it ``stands``."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._outlook: Outlook | None = None
        self._asked = 0  # that did not stand in line when the outlook was made

    def start_of(self, state: RunState) -> Expected | None:
        """By when it starts as likely as not, and nine times in ten; None where nobody can say."""
        promise = state.promise
        if promise is None or not state.waiting:
            return None
        starts = self._starts(state, promise)
        if not starts:
            return None
        now, latest = self._world.now, FOREVER if promise.at is None else promise.at
        return self._world.experience.likely(now, [max(now, at) for at in starts], max(now, latest))

    def tell(self, state: RunState) -> Expected | None:
        """The same, and the Run is told so: what comes of it will be experience."""
        found = self.start_of(state)
        if found is not None and state.promise is not None:
            told = Told(self._world.now, found.p50, found.p90, found.mean)
            self._world.experience.tell(state.key, (state.key[0], state.promise.name), told)
        return found

    def _starts(self, state: RunState, promise: Promise) -> list[int]:
        """The instants at which it may start; where need be, an outlook is made anew for who came since."""
        outlook = self._outlook
        if outlook is not None and outlook.knows(state):
            return outlook.starts(state, promise)
        if outlook is not None and not outlook.drifted(state):
            self._asked += 1
            starts = outlook.starts(state, promise)
            wait = starts[len(starts) // 2] - self._world.now if starts else 0
            if (self._world.now - outlook.at) * STANDS <= max(LEAST_MEAN, wait):
                return starts
        self._outlook, self._asked = Outlook(self._world), 0
        return self._outlook.starts(state, promise)

    def stands(self) -> bool:
        """Whether it may be asked on: little has changed since, measured by how long there is to wait."""
        outlook = self._outlook
        if outlook is None:
            return True
        age, paid_off = self._world.now - outlook.at, self._asked + CHEAP >= outlook.played
        part = STANDS if paid_off else DEAR_STANDS
        return outlook.hopes == self._world.hopes and age * part <= outlook.typical_wait
