"""When a waiting Run is expected to start, which may well be before it is promised to.

A promise is an upper bound: it counts on certain ends only. Here Runs end when they are likely to, and those
who wait start one behind the other (``prospects``). Where nothing is known about anybody in the way there is
no answer. What is told follows from this and from what came of earlier tellings (``start_calibration``).

Nothing here decides, so it is bounded. Prospects are asked on while little has changed, and made anew when

- they are older than a twentieth of the usual wait that they foresee, or of that of a Run that came since;
  where many were played through, and not yet about as many told behind them, than a quarter of it;
- nodes or budgets have changed;
- much of what was free has been taken since.
"""

from jobtree.core.accounts.envelope_accounts import FOREVER
from jobtree.core.model.promise import Promise
from jobtree.core.runs.run_state import RunState
from jobtree.core.runs.start_calibration import LEAST_MEAN, FirstEstimate, StartEstimate
from jobtree.core.start_forecast.queue_forecast import QueueForecast
from jobtree.core.world.world import World

MAX_AGE_DIVISOR = 20  # prospects may be as old as this part of the wait that they foresee
LARGE_MAX_AGE_DIVISOR = 4  # the same, of some that were dear and have not yet told enough
SMALL_SIMULATIONS = 16  # Runs played through that cost next to nothing


class ExpectedStarts:
    """What those who wait in a world are told, for as long as it ``is_current``."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._prospects: QueueForecast | None = None
        self._asked = 0  # that did not stand in line when these were made

    def estimate(self, run: RunState) -> StartEstimate | None:
        """By when it starts as likely as not, and nine times in ten; None where nobody can say."""
        promise = run.promise
        if promise is None or not run.waiting:
            return None
        starts = self._starts(run, promise)
        if not starts:
            return None
        now, latest = self._world.now, FOREVER if promise.at is None else promise.at
        return self._world.start_calibration.calibrated(
            now, [max(now, at) for at in starts], max(now, latest)
        )

    def estimate_and_record(self, run: RunState) -> StartEstimate | None:
        """The same, and the Run is told so: what comes of it will be experience."""
        found = self.estimate(run)
        if found is not None and run.promise is not None:
            told = FirstEstimate(self._world.now, found.p50, found.p90, found.mean)
            self._world.start_calibration.record_estimate(run.key, (run.key[0], run.promise.name), told)
        return found

    def _starts(self, run: RunState, promise: Promise) -> list[int]:
        """The instants at which it may start; where need be, looked for anew for who came since."""
        prospects = self._prospects
        if prospects is not None and prospects.includes(run):
            return prospects.starts(run, promise)
        if prospects is not None and not prospects.is_outdated(run):
            self._asked += 1
            starts = prospects.starts(run, promise)
            wait = starts[len(starts) // 2] - self._world.now if starts else 0
            if self._is_young(prospects, max(LEAST_MEAN, wait)):
                return starts
        self._prospects, self._asked = QueueForecast(self._world), 0
        return self._prospects.starts(run, promise)

    def is_current(self) -> bool:
        """Whether it may be asked on: little has changed since, measured by how long there is to wait."""
        prospects = self._prospects
        if prospects is None:
            return True
        return prospects.hopes == self._world.date_search_generation and self._is_young(
            prospects, prospects.typical_wait
        )

    def _is_young(self, prospects: QueueForecast, wait: int) -> bool:
        """Whether they are not too old for somebody who is to wait so long."""
        paid_off = self._asked + SMALL_SIMULATIONS >= prospects.played
        part = MAX_AGE_DIVISOR if paid_off else LARGE_MAX_AGE_DIVISOR
        return (self._world.now - prospects.at) * part <= wait
