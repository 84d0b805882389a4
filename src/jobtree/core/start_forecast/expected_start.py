"""Gives a waiting Run its expected start (p50 and p90), which may be well before the promised one.

A promise is an upper bound: it counts on certain ends only. Here Runs end when they are likely to end, and
waiting Runs start one after the other (``queue_forecast``). If nothing is known about the Runs in the way,
there is no estimate. Estimates are calibrated by how accurate earlier ones were (``start_calibration``).

Nothing here decides anything, so its cost is bounded. A forecast is used again while little has changed. It
is computed again when

- it is older than a twentieth of the typical wait in it, or of the wait of a Run that came since; if many
  Runs were simulated, and about as many have not used it since, when it is older than a quarter;
- nodes or Budgets have changed;
- many of the GPUs that were free, or much of the budget, have been used since.
"""

from jobtree.core.accounts.envelope_accounts import FOREVER
from jobtree.core.model.promise import Promise
from jobtree.core.runs.run_state import RunState
from jobtree.core.runs.start_calibration import LEAST_MEAN, FirstEstimate, StartEstimate
from jobtree.core.start_forecast.queue_forecast import QueueForecast
from jobtree.core.world.world import World

MAX_AGE_DIVISOR = 20  # a forecast may be this part of the forecast wait old
LARGE_MAX_AGE_DIVISOR = 4  # the same, of an expensive forecast that was little used
SMALL_SIMULATIONS = 16  # a forecast that simulated no more Runs is cheap


class ExpectedStarts:
    """The expected starts of the waiting Runs of a world, from one forecast while it ``is_current``."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._forecast: QueueForecast | None = None
        self._late_arrivals = 0  # Runs that were added to the forecast later

    def estimate(self, run: RunState) -> StartEstimate | None:
        """The instants by which the Run starts with probability 0.5 and 0.9; None if nothing is known."""
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
        """The same; records the estimate, so that its accuracy can be measured when the Run starts."""
        estimate = self.estimate(run)
        if estimate is not None and run.promise is not None:
            first_estimate = FirstEstimate(self._world.now, estimate.p50, estimate.p90, estimate.mean)
            self._world.start_calibration.record_estimate(
                run.key, (run.key[0], run.promise.name), first_estimate
            )
        return estimate

    def _starts(self, run: RunState, promise: Promise) -> list[int]:
        """The instants at which the Run may start, from a new forecast if the last one is outdated for it."""
        forecast = self._forecast
        if forecast is not None and forecast.includes(run):
            return forecast.starts(run, promise)
        if forecast is not None and not forecast.is_outdated(run):
            self._late_arrivals += 1
            starts = forecast.starts(run, promise)
            wait = starts[len(starts) // 2] - self._world.now if starts else 0
            if self._is_recent(forecast, max(LEAST_MEAN, wait)):
                return starts
        self._forecast, self._late_arrivals = QueueForecast(self._world), 0
        return self._forecast.starts(run, promise)

    def is_current(self) -> bool:
        """Whether the forecast can be used again: it is recent, compared with the typical wait."""
        forecast = self._forecast
        if forecast is None:
            return True
        return forecast.date_search_generation == self._world.date_search_generation and self._is_recent(
            forecast, forecast.typical_wait
        )

    def _is_recent(self, forecast: QueueForecast, wait: int) -> bool:
        """Whether a forecast is recent enough for a Run that waits so long."""
        is_small = self._late_arrivals + SMALL_SIMULATIONS >= forecast.simulated
        max_age_divisor = MAX_AGE_DIVISOR if is_small else LARGE_MAX_AGE_DIVISOR
        return (self._world.now - forecast.at) * max_age_divisor <= wait
