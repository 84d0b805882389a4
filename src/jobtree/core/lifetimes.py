"""How long Runs are likely to run, in a number of courses that things may take.

The duration of a Run is drawn from those of its owner's Runs of similar size (``durations``), on condition
of what it has run already, and is never longer than a declared ``maxDuration``. Without such a history the
declared one is taken, and without either the Run is taken to stay. In each course a Run ends at another
part of its distribution: every part comes once, in an order that the Run's UID gives.
"""

import hashlib

from jobtree.core.books import FOREVER
from jobtree.core.durations import Survival, size_class
from jobtree.core.lease import RunKey
from jobtree.core.runs import RunState
from jobtree.core.stands import certain_end
from jobtree.core.world import World

COURSES = 23  # prime, so that every stride comes to every part


class Lifetimes:
    def __init__(self, world: World) -> None:
        self._world = world
        self._curves: dict[str, dict[int, Survival]] = {}
        self._ends: dict[RunKey, list[int]] = {}
        self._running: dict[str, list[RunState]] | None = None
        self.told: set[RunKey] = set()  # running Runs of which something is known

    def ends(self, run: RunKey) -> list[int]:
        """When a running Run ends, in every course."""
        known = self._ends.get(run)
        if known is None:
            state = self._world.runs.get(run)
            known = self._ends[run] = [FOREVER] * COURSES if state is None else self._likely_ends(state)
        return known

    def _likely_ends(self, state: RunState) -> list[int]:
        now, last = self._world.now, certain_end(self._world, state)
        since = now if state.since is None else state.since
        if last < FOREVER:
            self.told.add(state.key)
        curve = self._curve(state)
        if curve is None:
            return [last] * COURSES
        self.told.add(state.key)
        found = [curve.duration(now - since, part, 2 * COURSES) for part in parts_of(state.uid)]
        return [last if span is None else max(now, min(last, since + span)) for span in found]

    def spans(self, state: RunState) -> list[int]:
        """How long a waiting Run will run, in every course."""
        shape = state.shape
        most = FOREVER if shape is None or shape.max_duration is None else shape.max_duration
        curve = self._curve(state)
        if curve is None:
            return [most] * COURSES
        found = [curve.duration(0, part, 2 * COURSES) for part in parts_of(state.uid)]
        return [most if span is None else min(most, span) for span in found]

    def _curve(self, state: RunState) -> Survival | None:
        """How long Runs of its owner and of similar size last; None where too few ended to tell."""
        if state.owner not in self._curves:
            self._curves[state.owner] = self._curves_of(state.owner)
        shape = state.shape
        curve = self._curves[state.owner].get(size_class(shape.total)) if shape else None
        return curve if curve is not None and curve.tells else None

    def _curves_of(self, owner: str) -> dict[int, Survival]:
        """The owner's history, with those that still run as what they are: not ended yet."""
        found = self._world.history.of(owner)
        for state in self._running_of(owner):
            if state.since is not None and state.shape:
                age = self._world.now - state.since
                found.setdefault(size_class(state.shape.total), []).append((age, False))
        return {size: Survival(observations) for size, observations in found.items()}

    def _running_of(self, owner: str) -> list[RunState]:
        if self._running is None:
            self._running = {}
            for state in self._world.runs.values():
                if state.phase == "Running":
                    self._running.setdefault(state.owner, []).append(state)
        return self._running.get(owner, [])


def parts_of(uid: str) -> list[int]:
    """Odd parts of ``2 · COURSES``, each once: the middles of equal parts, in an order given by the UID."""
    digest = hashlib.sha256(uid.encode()).digest()
    stride, offset = 1 + digest[0] % (COURSES - 1), digest[1]
    return [2 * ((stride * number + offset) % COURSES) + 1 for number in range(COURSES)]
