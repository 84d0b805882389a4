"""Corrects forecasts of starts by how past forecasts came out.

A forecast knows how long Runs last. It does not know which younger Runs take GPUs in between, or what owners
recall. So its errors are larger than the differences between its sample paths. Past estimates show by how
much.

- The first estimate of each waiting Run is kept: when it was made, its p50 and p90, the mean of the forecast,
  and when the Run then started, provisionally or not. A start that is undone at its own instant does not
  count.
- The expected wait is a mixture of the waits on the sample paths, which weigh as much as ``PRIOR`` estimates,
  and the last ``MAX_WAITS`` true waits, each scaled by the mean of the forecast that it belongs to.
- The quantile of the mixture that becomes the p50 is adjusted by outcomes. Each start that comes by its p50
  makes the next p50 a little earlier. Each p50 that passes makes it a little later, as soon as it has passed:
  if a Run that still waits did not count, only early starts would. The p90 is adjusted in the same way. So
  half of the starts come by their p50 and nine in ten by their p90, whatever is wrong with the mixture, also
  where many Runs start at the very instant that was promised. All outcomes count for ever: if a miss were
  forgotten, the next estimates would be too early again.
- Runs that get estimates within minutes of each other depend on the same events, and none of them has started
  when the last one gets its estimate. Beyond ``BURST`` of them, each makes the p90 of the next later, as if
  its own had passed already. Otherwise one wrong forecast would be wrong for all of them.

All figures are integers that follow from the estimates and the starts. A world that reads them again gets the
same figures, or nearly the same if an adjustment reached one of its bounds in between.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import msgspec

from jobtree.api.schema.quantities import MINUTE
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.runs.run_durations import WHOLE

MAX_WAITS = 200  # true waits that count
PRIOR = 12  # estimates that the sample paths of a forecast weigh as much as
LEAST_MEAN = 15 * MINUTE  # a mean wait is at least this long
PARTS = 1000  # levels are parts of this
BURST = 4  # estimates within LEAST_MEAN of each other that do not delay the next
STEP = 30  # of PARTS; the step up after a late start plus the step down after one in time
MIN_P90_LEVEL = PARTS // 2  # what half of the starts came by is no bound for nine in ten
MAX_LEVEL = 2 * PARTS  # many late starts of one burst must not make the next estimate years long


class StartEstimate(NamedTuple):
    p50: int
    p90: int
    mean: int  # of the forecast alone


class FirstEstimate(msgspec.Struct, frozen=True):
    """The first estimate for a waiting Run, when it was made, and when the Run then started."""

    at: int
    p50: int
    p90: int
    mean: int
    start: int | None = None


class QuantileTracker:
    """The level at which the mixture is read, so that the wanted share of starts comes by the estimate."""

    def __init__(self, share: int, first_level: int, min_level: int = -MAX_LEVEL) -> None:
        self.level = first_level  # of PARTS of the mixture; it may lie below 0 or above PARTS
        self.later = STEP * share // PARTS  # the step up after a late start
        self._earlier = STEP - self.later  # the step down after a start in time
        self._min_level = min_level
        self._due: list[tuple[int, RunKey]] = []  # estimates of waiting Runs, by Reservation
        self.missed: set[RunKey] = set()  # Reservations of waiting Runs whose estimate has passed

    def expect(self, reservation: RunKey, by: int) -> None:
        heappush(self._due, (by, reservation))

    def pop_overdue(self, now: int) -> list[RunKey]:
        """Removes the estimates that have passed, and returns their Reservations."""
        overdue = []
        while self._due and self._due[0][0] < now:
            overdue.append(heappop(self._due)[1])
        return overdue

    def record_outcome(self, *, in_time: bool) -> None:
        """Moves the level, within its bounds, after a start in time or an estimate that has passed."""
        level = self.level - self._earlier if in_time else self.level + self.later
        self.level = max(self._min_level, min(MAX_LEVEL, level))


class StartCalibration:
    """First estimates by the key of their Reservation, and their outcomes."""

    def __init__(self) -> None:
        self._p50_tracker = QuantileTracker(500, 400)  # forecasts alone are too late more often than not
        self._p90_tracker = QuantileTracker(900, 870, MIN_P90_LEVEL)
        self._waiting: dict[RunKey, RunKey] = {}  # Reservations by the key of their waiting Run
        self._started: dict[RunKey, RunKey] = {}  # the same, of Runs that started at ``_started_at``
        self._started_at = 0
        self._estimates: dict[RunKey, FirstEstimate] = {}
        self._recent: list[int] = []  # when the last estimates were made
        self._counted: list[RunKey] = []  # Reservations whose true waits count, the oldest first
        self._ratios: list[int] = []  # their true waits relative to the mean of their forecast, sorted
        self._loaded: list[tuple[RunKey, FirstEstimate]] = []  # with a start, not counted yet

    # Events

    def of(self, reservation: RunKey) -> FirstEstimate | None:
        """Returns the first estimate for the Run of a Reservation."""
        return self._estimates.get(reservation)

    def record_estimate(self, run_key: RunKey, reservation: RunKey, estimate: FirstEstimate) -> None:
        """Records the first estimate for a waiting Run; later ones do not count."""
        if run_key not in self._waiting:
            self._waiting[run_key] = reservation
            self._estimates[reservation] = estimate
            self._recent.append(estimate.at)
            self._p50_tracker.expect(reservation, estimate.p50)
            self._p90_tracker.expect(reservation, estimate.p90)

    def load_estimate(self, run_key: RunKey, reservation: RunKey, estimate: FirstEstimate) -> None:
        """Loads the first estimate that a Reservation object holds."""
        if reservation in self._estimates:
            return
        if estimate.start is None:
            self.record_estimate(run_key, reservation, estimate)
        else:
            self._estimates[reservation] = estimate
            self._loaded.append((reservation, estimate))

    def record_start(self, run_key: RunKey, at: int) -> None:
        """Records that a Run starts."""
        reservation = self._waiting.pop(run_key, None)
        if reservation is not None:
            self.close_instant(at)
            self._started[run_key], self._started_at = reservation, at
            self._estimates[reservation] = msgspec.structs.replace(self._estimates[reservation], start=at)

    def undo_start(self, run_key: RunKey, at: int) -> None:
        """Undoes a start of this same instant; an earlier start stays."""
        if at == self._started_at and run_key in self._started:
            reservation = self._waiting[run_key] = self._started.pop(run_key)
            self._estimates[reservation] = msgspec.structs.replace(self._estimates[reservation], start=None)

    def drop_run(self, run_key: RunKey) -> None:
        """Forgets the estimate of a deleted Run that never started: it has no outcome."""
        reservation = self._waiting.pop(run_key, None)
        if reservation is not None:
            del self._estimates[reservation]
            for tracker in (self._p50_tracker, self._p90_tracker):
                tracker.missed.discard(reservation)

    # Calibration

    def close_instant(self, now: int) -> None:
        """Counts the starts of earlier instants, and the estimates that have passed by now."""
        if self._loaded:
            loaded, self._loaded = sorted(self._loaded, key=lambda entry: (entry[1].start, entry[0])), []
            for reservation, _ in loaded:
                self._count_start(reservation)
        if self._started and self._started_at < now:
            started, self._started = self._started, {}
            for reservation in started.values():
                self._count_start(reservation)
        for tracker in (self._p50_tracker, self._p90_tracker):
            for reservation in tracker.pop_overdue(now):
                estimate = self._estimates.get(reservation)
                if estimate is not None and estimate.start is None:
                    tracker.record_outcome(in_time=False)
                    tracker.missed.add(reservation)

    def _count_start(self, reservation: RunKey) -> None:
        estimate = self._estimates[reservation]
        assert estimate.start is not None
        for tracker, by in ((self._p50_tracker, estimate.p50), (self._p90_tracker, estimate.p90)):
            if reservation in tracker.missed:
                tracker.missed.discard(reservation)  # counted when the estimate passed
            else:
                tracker.record_outcome(in_time=estimate.start <= by)
        self._counted.append(reservation)
        insort(self._ratios, ratio_of(estimate))
        for oldest in self._counted[:-MAX_WAITS]:
            del self._ratios[bisect_left(self._ratios, ratio_of(self._estimates.pop(oldest)))]
        del self._counted[:-MAX_WAITS]

    def calibrated(self, now: int, starts: Sequence[int], latest: int) -> StartEstimate:
        """Returns the estimate of a start from its instants on the sample paths of a forecast, sorted."""
        self.close_instant(now)
        waits = [at - now for at in starts]
        mean = max(LEAST_MEAN, sum(waits) // len(waits))
        mixture = WaitMixture(waits, mean, self._ratios)
        self._recent = [at for at in self._recent if now - at <= LEAST_MEAN]
        burst_margin = self._p90_tracker.later * max(0, len(self._recent) - BURST)
        p50 = now + mixture.quantile(self._p50_tracker.level)
        p90 = now + mixture.quantile(min(MAX_LEVEL, self._p90_tracker.level + burst_margin))
        return StartEstimate(min(latest, p50), min(latest, max(p50, p90)), now + mean)


def ratio_of(estimate: FirstEstimate) -> int:
    """Returns how long the Run waited, relative to the mean wait of the forecast, in parts of WHOLE."""
    assert estimate.start is not None
    return (estimate.start - estimate.at) * WHOLE // (estimate.mean - estimate.at)


class WaitMixture:
    """The distribution of a wait: the waits on the sample paths, and past waits scaled by the mean."""

    def __init__(self, waits: Sequence[int], mean: int, past_ratios: Sequence[int]) -> None:
        self._waits, self._mean, self._past_ratios = waits, mean, past_ratios

    def quantile(self, level: int) -> int:
        """Returns the shortest wait after which ``level`` of PARTS of the Runs have started.

        Below 0 and above PARTS, the shortest and the longest wait are scaled.
        """
        past_ratios = self._past_ratios
        needed_weight = level * (PRIOR + len(past_ratios)) * WHOLE // PARTS
        path = bisect_left(self._waits, needed_weight, key=self._weight)
        candidates = [self._waits[path]] if path < len(self._waits) else []
        past = bisect_left(past_ratios, needed_weight, key=lambda ratio: self._weight(self._scaled(ratio)))
        candidates += [self._scaled(past_ratios[past])] if past < len(past_ratios) else []
        if candidates:
            return max(0, min(candidates) * min(PARTS, PARTS + level) // PARTS)
        longest = max(self._waits[-1], self._scaled(past_ratios[-1]) if past_ratios else 0)
        return longest * max(PARTS, level) ** 2 // PARTS**2

    def _scaled(self, ratio: int) -> int:
        return -(-ratio * self._mean // WHOLE)

    def _weight(self, wait: int) -> int:
        """Returns the weight of all waits that are at most this long; one estimate weighs WHOLE."""
        of_paths = bisect_right(self._waits, wait) * PRIOR * WHOLE // len(self._waits)
        return of_paths + bisect_right(self._past_ratios, wait * WHOLE // self._mean) * WHOLE
