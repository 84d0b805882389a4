"""What came of expected starts so far, and how the next ones are told because of it.

A forecast knows how long Runs last. It does not know what younger Runs take in between, or what owners call
back, so it is early or late by more than its own courses differ. Experience says by how much.

- Every telling is remembered: when it was, its p50 and p90, the mean that the forecast itself gave, and when
  the Run then started, provisionally or not. A start that is taken back at its own instant is none.
- What is likely is a mixture: the courses of the forecast, which weigh as much as ``PRIOR`` tellings, and the
  last ``MOST`` true waits, each in proportion to the mean it was told from.
- Which part of the mixture is told is steered. Every start that came by p50 has the next p50 told from a
  little earlier in the mixture, and every p50 that passes in vain from a little later, as soon as it has
  passed: who still waits is evidence, too, else only the lucky would count. Likewise p90. So half
  of the starts come by p50 and nine in ten by p90, whatever the mixture gets wrong; also where many
  start at the very instant that was promised, and no single instant has half of the starts before it.
  Nothing of that is forgotten: a miss that no longer counted would have the next told earlier again.
- Runs that are told within minutes of each other share one fate, and nothing has come of the first when the
  last is told. Beyond ``BURST`` of them, each counts for the p90 of the next as if it had passed in vain
  already: all of them together would be too much to lose on one guess.

All in integers, from nothing but what was told and what came of it: who reads it again knows the same, or
nearly so where steering came to one of its bounds in between.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import msgspec

from jobtree.api.schema.quantities import MINUTE
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.runs.run_durations import WHOLE

MOST = 200  # true waits that count
PRIOR = 12  # tellings that the courses of a forecast weigh as much as
LEAST_MEAN = 15 * MINUTE  # waits are not told finer than that
PARTS = 1000
BURST = 4  # tellings within LEAST_MEAN that are nothing unusual
STEP = 30  # of PARTS: what one that passed in vain and one that came true move the next, taken together
LEAST_LEVEL = PARTS // 2  # of a p90: what half came by is no bound for nine in ten, lucky as a burst was
MOST_LEVEL = 2 * PARTS  # a burst of Runs that share one fate is no reason to tell the next of years


class StartEstimate(NamedTuple):
    p50: int
    p90: int
    mean: int  # of the forecast alone


class FirstEstimate(msgspec.Struct, frozen=True):
    """What a waiting Run was told, when, and when it then started."""

    at: int
    p50: int
    p90: int
    mean: int
    start: int | None = None


class QuantileTracker:
    """One of the two figures: from where it is told so that its share of the true starts comes by it."""

    def __init__(self, share: int, first: int, least: int = -MOST_LEVEL) -> None:
        self.level = first  # the part of the mixture that is to be told next; it may lie beyond either end
        self.later = STEP * share // PARTS  # what one that passed in vain moves it
        self._earlier = STEP - self.later  # what one that came true moves it
        self._least = least
        self._due: list[tuple[int, RunKey]] = []  # of those that wait: when it will have passed in vain
        self.failed: set[RunKey] = set()  # of those that wait: it has

    def expect(self, name: RunKey, by: int) -> None:
        heappush(self._due, (by, name))

    def pop_overdue(self, now: int) -> list[RunKey]:
        """Who still waits at that instant and should have started before it, as far as the figure says."""
        found = []
        while self._due and self._due[0][0] < now:
            found.append(heappop(self._due)[1])
        return found

    def record_outcome(self, *, came: bool) -> None:
        """It came true, or passed in vain; beyond its bounds the level does not wind up."""
        level = self.level - self._earlier if came else self.level + self.later
        self.level = max(self._least, min(MOST_LEVEL, level))


class StartCalibration:
    """Tellings by the name of their Reservation, in its namespace."""

    def __init__(self) -> None:
        self._half = QuantileTracker(500, 400)  # forecasts alone come too late more often than not
        self._most = QuantileTracker(900, 870, LEAST_LEVEL)
        self._waiting: dict[RunKey, RunKey] = {}  # Reservations by their Run
        self._begun: dict[RunKey, RunKey] = {}  # the same, of those that began at this instant
        self._begun_at = 0
        self._told: dict[RunKey, FirstEstimate] = {}
        self._recent: list[int] = []  # when others were told
        self._known: list[RunKey] = []  # those that started, and count
        self._ratios: list[int] = []  # their waits in proportion to what their forecast gave, sorted
        self._read: list[tuple[RunKey, FirstEstimate]] = []

    # What happens

    def of(self, name: RunKey) -> FirstEstimate | None:
        """What the Run of a Reservation was told first."""
        return self._told.get(name)

    def record_estimate(self, run_key: RunKey, name: RunKey, told: FirstEstimate) -> None:
        """A waiting Run is told for the first time; what it is told later does not count."""
        if run_key not in self._waiting:
            self._waiting[run_key] = name
            self._told[name] = told
            self._recent.append(told.at)
            self._half.expect(name, told.p50)
            self._most.expect(name, told.p90)

    def load_estimate(self, run_key: RunKey, name: RunKey, told: FirstEstimate) -> None:
        """What a Reservation says of its first telling."""
        if name in self._told:
            return
        if told.start is None:
            self.record_estimate(run_key, name, told)
        else:
            self._told[name] = told
            self._read.append((name, told))

    def record_start(self, run_key: RunKey, at: int) -> None:
        """The Run starts."""
        name = self._waiting.pop(run_key, None)
        if name is not None:
            self.close_instant(at)
            self._begun[run_key], self._begun_at = name, at
            self._told[name] = msgspec.structs.replace(self._told[name], start=at)

    def undo_start(self, run_key: RunKey, at: int) -> None:
        """If it began at this very instant, it did not, after all."""
        if at == self._begun_at and run_key in self._begun:
            name = self._waiting[run_key] = self._begun.pop(run_key)
            self._told[name] = msgspec.structs.replace(self._told[name], start=None)

    def drop_run(self, run_key: RunKey) -> None:
        """The Run is gone. If it never started, nobody knows what would have come of it."""
        name = self._waiting.pop(run_key, None)
        if name is not None:
            del self._told[name]
            for aim in (self._half, self._most):
                aim.failed.discard(name)

    # What follows

    def close_instant(self, now: int) -> None:
        """Starts of earlier instants stay, and figures that passed in vain have failed."""
        if self._read:
            read, self._read = sorted(self._read, key=lambda one: (one[1].start, one[0])), []
            for name, _ in read:
                self._finish(name)
        if self._begun and self._begun_at < now:
            begun, self._begun = self._begun, {}
            for name in begun.values():
                self._finish(name)
        for aim in (self._half, self._most):
            for name in aim.pop_overdue(now):
                told = self._told.get(name)
                if told is not None and told.start is None:
                    aim.record_outcome(came=False)
                    aim.failed.add(name)

    def _finish(self, name: RunKey) -> None:
        told = self._told[name]
        assert told.start is not None
        for aim, by in ((self._half, told.p50), (self._most, told.p90)):
            if name in aim.failed:
                aim.failed.discard(name)
            else:
                aim.record_outcome(came=told.start <= by)
        self._known.append(name)
        insort(self._ratios, ratio_of(told))
        for old in self._known[:-MOST]:
            del self._ratios[bisect_left(self._ratios, ratio_of(self._told.pop(old)))]
        del self._known[:-MOST]

    def calibrated(self, now: int, courses: Sequence[int], latest: int) -> StartEstimate:
        """p50 and p90 of a start, from the sorted instants that the courses of a forecast give it."""
        self.close_instant(now)
        waits = [at - now for at in courses]
        mean = max(LEAST_MEAN, sum(waits) // len(waits))
        mixture = WaitMixture(waits, mean, self._ratios)
        self._recent = [at for at in self._recent if now - at <= LEAST_MEAN]
        hedge = self._most.later * max(0, len(self._recent) - BURST)
        half = now + mixture.quantile(self._half.level)
        most = now + mixture.quantile(min(MOST_LEVEL, self._most.level + hedge))
        p50 = min(latest, half)
        return StartEstimate(p50, min(latest, max(half, most)), now + mean)


def ratio_of(told: FirstEstimate) -> int:
    """How long its Run waited, of WHOLE as the mean that the forecast gave."""
    assert told.start is not None
    return (told.start - told.at) * WHOLE // (told.mean - told.at)


class WaitMixture:
    """Waits as the courses of a forecast have them, and as experience has them."""

    def __init__(self, waits: Sequence[int], mean: int, past: Sequence[int]) -> None:
        self._waits, self._mean, self._past = waits, mean, past

    def quantile(self, level: int) -> int:
        """The first wait by which that part has started; out of range, in proportion beyond what is known."""
        need = level * (PRIOR + len(self._past)) * WHOLE // PARTS
        past = self._past
        found = bisect_left(self._waits, need, key=self._share)
        before = [self._waits[found]] if found < len(self._waits) else []
        seen = bisect_left(past, need, key=lambda ratio: self._share(self._scaled(ratio)))
        before += [self._scaled(past[seen])] if seen < len(past) else []
        if before:
            return max(0, min(before) * min(PARTS, PARTS + level) // PARTS)
        last = max(self._waits[-1], self._scaled(past[-1]) if past else 0)
        return last * max(PARTS, level) ** 2 // PARTS**2

    def _scaled(self, ratio: int) -> int:
        return -(-ratio * self._mean // WHOLE)

    def _share(self, wait: int) -> int:
        """How many have started after so long a wait, in WHOLE tellings."""
        of_courses = bisect_right(self._waits, wait) * PRIOR * WHOLE // len(self._waits)
        return of_courses + bisect_right(self._past, wait * WHOLE // self._mean) * WHOLE
