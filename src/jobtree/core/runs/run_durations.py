"""Records how long the Runs of each owner ran, and estimates how long other Runs will run.

It also records when Jobtree last stopped each Run, and the closure reason.

``RunHistory`` is updated by closed leases only, in any order in which they arrive, so a world that is read
from its objects again has the same history. An admission begins with leases of reason ``Start`` and ends with
the last lease that closes before the next admission. If the work itself ended (Completed, Failed, Cancelled),
it is a whole observation. Otherwise it is a censored one: the Run would have run for longer.

``SurvivalCurve`` is the product-limit estimate over such observations, in integers. For a Run that has run
for some time it counts only observations that lasted as long, so a long Run is not expected to end soon
because most Runs are short. Where no observation lasted as long, it has no estimate.

Of many Runs of one size, only those that ended last count. A replay never reads its ledger again, so it can
forget older ones that have ended (``trim``).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from heapq import nlargest
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import NamedTuple

from jobtree.api.kinds.lease import ClosureReason
from jobtree.core.model.gpu_lease import GpuLease
from jobtree.core.model.outcomes import RUN_END_CLOSURES, STOP_CLOSURES

MIN_OBSERVATIONS = 5  # Runs that must have ended for an estimate
MAX_OBSERVATIONS = 1000  # of one owner and size class that count: those of the Runs that ended last
WHOLE = 1 << 40  # shares are integers; this is a share of 1

Stop = tuple[int, str]  # the instant, and the closure reason
Observation = tuple[int, bool]  # the duration in milliseconds, and whether the work ended then
RunObservation = tuple[int, str, Observation]  # with the last end and the UID of the Run


def size_class(gpus: int) -> int:
    """Returns the size class of a number of GPUs; a class ends at each power of two."""
    return (gpus - 1).bit_length()


class PastRun:
    """What is known of one Run from its closed leases."""

    __slots__ = ("cached_admissions", "ends", "last_end", "recalled_at", "starts", "stop")

    def __init__(self) -> None:
        self.starts: dict[int, int] = {}  # GPUs by the instant of an admission
        self.ends: dict[int, bool] = {}  # whether the work ended at that instant
        self.last_end = 0
        self.stop: Stop | None = None  # the last end of a lease that may have stopped the Run
        self.recalled_at = 0  # when an owner last recalled what it paid for the Run
        self.cached_admissions: list[tuple[int, Observation]] | None = None  # None: to be computed

    def record_stop(self, end: int, reason: ClosureReason | None) -> None:
        """Records the end of a lease that may have stopped the Run. Of two at one instant, any order is fine.

        A Run that was demoted by a recall and then reclaimed was stopped for its owner (C14).
        """
        if reason == "Recalled":
            self.recalled_at = max(self.recalled_at, end)
        if reason in STOP_CLOSURES:
            self.stop = max(self.stop or (0, ""), (end, reason))

    def admissions(self) -> Iterator[tuple[int, Observation]]:
        """Yields the size class and the observation of each admission."""
        starts = sorted(self.starts)
        ends = sorted(self.ends)
        for start, next_start in zip_longest(starts, starts[1:]):
            ended_before = len(ends) if next_start is None else bisect_right(ends, next_start)
            if ended_before and ends[ended_before - 1] > start:
                end = ends[ended_before - 1]
                yield size_class(self.starts[start]), (end - start, self.ends[end])


class RunHistory:
    def __init__(self) -> None:
        self.by_owner: dict[str, dict[str, PastRun]] = {}  # Runs by UID
        self.ended: dict[str, int] = {}  # leases of an owner that have closed, ever
        self.curves: dict[str, SurvivalCurves] = {}  # of an owner's Runs, cached by the forecast
        self._trimmed: dict[str, int] = {}  # Runs of an owner that the last trim kept

    def close(self, lease: GpuLease, end: int, reason: ClosureReason | None) -> None:
        """Adds a lease that closed for that reason."""
        past = self.by_owner.setdefault(lease.owner, {}).setdefault(lease.uid, PastRun())
        self.ended[lease.owner] = self.ended.get(lease.owner, 0) + 1
        if lease.reason == "Start" and lease.role != "Spare":
            past.starts[lease.start] = past.starts.get(lease.start, 0) + lease.gpus
        past.ends[end] = past.ends.get(end, False) or reason in RUN_END_CLOSURES
        past.last_end, past.cached_admissions = max(past.last_end, end), None
        past.record_stop(end, reason)

    def last_stop(self, owner: str, uid: str, since: int) -> Stop | None:
        """Returns when and why Jobtree last stopped a Run that does not run, after an admission at ``since``.

        None: it was not stopped since then, or its leases ended for another reason later.
        """
        past = self.by_owner.get(owner, {}).get(uid)
        if past is None or past.stop is None or not since <= past.stop[0] == past.last_end:
            return None
        at, reason = past.stop
        owner_needs = reason == "Reclaimed" and past.recalled_at >= since
        return at, "OwnerNeeds" if owner_needs else reason

    def trim(self, owner: str) -> None:
        """Forgets ended Runs that do not count, once an owner has twice as many as the last trim kept."""
        runs = self.by_owner.get(owner, {})
        if len(runs) <= 2 * self._trimmed.get(owner, MAX_OBSERVATIONS):
            return
        counted = {
            uid for observations in self._observations(owner).values() for _, uid, _ in last_of(observations)
        }
        ended = [uid for uid, past in runs.items() if uid not in counted and past.ends.get(past.last_end)]
        for uid in ended:
            del runs[uid]
        self._trimmed[owner] = max(MAX_OBSERVATIONS, len(runs))

    def drop(self, lease: GpuLease, end: int) -> None:
        """Removes a closed lease that left the ledger: a world that is read again does not have it."""
        past = self.by_owner.get(lease.owner, {}).get(lease.uid)
        if past is None:
            return
        if lease.reason == "Start" and lease.role != "Spare":
            past.starts[lease.start] = past.starts.get(lease.start, 0) - lease.gpus
            if past.starts[lease.start] <= 0:
                del past.starts[lease.start]
        past.ends.pop(end, None)
        past.last_end, past.cached_admissions = max(past.ends, default=0), None
        if not past.ends:
            del self.by_owner[lease.owner][lease.uid]

    def forget(self, before: int) -> None:
        """Forgets the Runs whose last lease ended before that instant; the ledger has them no longer."""
        for runs in self.by_owner.values():
            for uid in [uid for uid, past in runs.items() if past.last_end < before]:
                del runs[uid]

    def of(self, owner: str) -> dict[int, list[Observation]]:
        """Returns the owner's observations by size class, of the Runs that ended last."""
        return {
            size: [observation for *_, observation in last_of(observations)]
            for size, observations in self._observations(owner).items()
        }

    def _observations(self, owner: str) -> dict[int, list[RunObservation]]:
        """Returns all observations of an owner by size class."""
        by_size: dict[int, list[RunObservation]] = {}
        for uid, past in self.by_owner.get(owner, {}).items():
            if past.cached_admissions is None:
                past.cached_admissions = list(past.admissions())
            for size, observation in past.cached_admissions:
                by_size.setdefault(size, []).append((past.last_end, uid, observation))
        return by_size


def last_of(observations: list[RunObservation]) -> list[RunObservation]:
    """Returns the observations that count: those of the Runs that ended last."""
    return observations if len(observations) <= MAX_OBSERVATIONS else nlargest(MAX_OBSERVATIONS, observations)


class SurvivalCurve:
    """The share of Runs that still run after a duration."""

    def __init__(self, observations: Iterable[Observation]) -> None:
        ordered = sorted(observations)
        self.ended = sum(ended for _, ended in ordered)
        self._durations: list[int] = []  # at which Runs ended, in milliseconds
        self._ended_shares: list[int] = []  # the share that has ended after each, of WHOLE
        self._cache: dict[tuple[int, int], list[int | None]] = {}  # results of ``durations``
        running_share, at_risk = WHOLE, len(ordered)
        for duration, group in groupby(ordered, key=itemgetter(0)):
            observed = list(group)
            ended = sum(end for _, end in observed)
            if ended:
                running_share = running_share * (at_risk - ended) // at_risk
                self._durations.append(duration)
                self._ended_shares.append(WHOLE - running_share)
            at_risk -= len(observed)

    @property
    def has_estimate(self) -> bool:
        """Whether enough Runs have ended for an estimate."""
        return self.ended >= MIN_OBSERVATIONS

    def duration(self, age: int, part: int, parts: int) -> int | None:
        """Returns the duration by which ``part`` of ``parts`` of the Runs of that age have ended.

        The duration counts from the start. None: no observation lasted so long.
        """
        passed = bisect_right(self._durations, age)
        running_share = WHOLE - (self._ended_shares[passed - 1] if passed else 0)
        ended_share = WHOLE - running_share * (parts - part) // parts
        index = max(passed, bisect_left(self._ended_shares, ended_share))
        return self._durations[index] if index < len(self._durations) else None

    def durations(self, age: int, parts: int) -> list[int | None]:
        """Returns the duration for the middle of each of so many equal parts of the Runs of that age."""
        key = (bisect_right(self._durations, age), parts)  # ages between two ends have the same durations
        durations = self._cache.get(key)
        if durations is None:
            middles = range(1, 2 * parts, 2)
            durations = self._cache[key] = [self.duration(age, middle, 2 * parts) for middle in middles]
        return durations


class SurvivalCurves(NamedTuple):
    """How long an owner's Runs of each size class last, computed at an instant."""

    at: int
    ended: int  # leases of the owner that had closed by then
    by_size: dict[int, SurvivalCurve]
