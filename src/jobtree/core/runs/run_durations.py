"""How long Runs ran: every owner's admissions, as the ledger tells them, and what follows for others.

A history is kept by events, from closed leases alone, in whatever order they arrive: a world that is read
anew from its objects knows the same. An admission begins with leases of reason ``Start`` and ends with the
last lease before the next one. It is a whole observation if the work itself ended (Completed, Failed,
Cancelled), else a censored one: the Run would have gone on for longer than that.

``SurvivalCurve`` is the product-limit estimate over such observations, in integers. Asked about a Run that
has run for some time already it answers on that condition, so a long job is not expected to end soon just
because most are short; and where nothing observed lasted so long, it has no answer.

Of very many Runs of a size the last ones say how long the next will take. A replay, whose ledger is never
read anew, forgets older ones that are over (``trim``).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from heapq import nlargest
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import NamedTuple

from jobtree.api.kinds.lease import ClosureReason
from jobtree.core.model.gpu_lease import GpuLease
from jobtree.core.model.outcomes import RUN_END_CLOSURES

MIN_OBSERVATIONS = 5  # fewer Runs that ended say nothing about the next
MAX_OBSERVATIONS = 1000  # of one owner and size that count, of Runs that were the last to end
WHOLE = 1 << 40

Observation = tuple[int, bool]  # for how long, and whether the work ended then


def size_class(gpus: int) -> int:
    """Sizes that count as similar: up to twice as many GPUs."""
    return (gpus - 1).bit_length()


class PastRun:
    """What closed leases tell of one Run."""

    __slots__ = ("ends", "known", "last", "starts")

    def __init__(self) -> None:
        self.starts: dict[int, int] = {}  # GPUs by the instant of an admission
        self.ends: dict[int, bool] = {}  # whether the work ended at that instant
        self.last = 0  # the latest of them
        self.known: list[tuple[int, Observation]] | None = None  # its admissions, once somebody asked

    def admissions(self) -> Iterator[tuple[int, Observation]]:
        """Size class, duration, and whether it was the work that ended it."""
        starts = sorted(self.starts)
        ends = sorted(self.ends)
        for start, following in zip_longest(starts, starts[1:]):
            before = len(ends) if following is None else bisect_right(ends, following)
            if before and ends[before - 1] > start:
                end = ends[before - 1]
                yield size_class(self.starts[start]), (end - start, self.ends[end])


class RunHistory:
    def __init__(self) -> None:
        self.by_owner: dict[str, dict[str, PastRun]] = {}
        self.ended: dict[str, int] = {}  # how many leases of an owner have, ever
        self.curves: dict[str, SurvivalCurves] = {}  # what was made of an owner's Runs
        self._trimmed: dict[str, int] = {}  # Runs of an owner that were left when it was last looked

    def close(self, lease: GpuLease, end: int, reason: ClosureReason | None) -> None:
        """A lease ended, for that reason."""
        past = self.by_owner.setdefault(lease.owner, {}).setdefault(lease.uid, PastRun())
        self.ended[lease.owner] = self.ended.get(lease.owner, 0) + 1
        if lease.reason == "Start" and lease.role != "Spare":
            past.starts[lease.start] = past.starts.get(lease.start, 0) + lease.gpus
        past.ends[end] = past.ends.get(end, False) or reason in RUN_END_CLOSURES
        past.last, past.known = max(past.last, end), None

    def trim(self, owner: str) -> None:
        """Forget Runs that are over and too many to count, once an owner has twice as many as were left."""
        runs = self.by_owner.get(owner, {})
        if len(runs) <= 2 * self._trimmed.get(owner, MAX_OBSERVATIONS):
            return
        counted = {uid for seen in self._seen(owner).values() for _, uid, _ in last_of(seen)}
        over = [uid for uid, past in runs.items() if uid not in counted and past.ends.get(past.last)]
        for uid in over:
            del runs[uid]
        self._trimmed[owner] = max(MAX_OBSERVATIONS, len(runs))

    def drop(self, lease: GpuLease, end: int) -> None:
        """A lease has left the ledger: a world that is read anew does not know of it either."""
        past = self.by_owner.get(lease.owner, {}).get(lease.uid)
        if past is None:
            return
        if lease.reason == "Start" and lease.role != "Spare":
            past.starts[lease.start] = past.starts.get(lease.start, 0) - lease.gpus
            if past.starts[lease.start] <= 0:
                del past.starts[lease.start]
        past.ends.pop(end, None)
        past.last, past.known = max(past.ends, default=0), None
        if not past.ends:
            del self.by_owner[lease.owner][lease.uid]

    def forget(self, before: int) -> None:
        """Runs whose last lease ended before that instant are no longer in the ledger."""
        for runs in self.by_owner.values():
            for uid in [uid for uid, past in runs.items() if past.last < before]:
                del runs[uid]

    def of(self, owner: str) -> dict[int, list[Observation]]:
        """The owner's observations by size class, of the last Runs that ended."""
        seen = self._seen(owner)
        return {size: [one for *_, one in last_of(found)] for size, found in seen.items()}

    def _seen(self, owner: str) -> dict[int, list[tuple[int, str, Observation]]]:
        """All of them, with when the Run ended last."""
        found: dict[int, list[tuple[int, str, Observation]]] = {}
        for uid, past in self.by_owner.get(owner, {}).items():
            if past.known is None:
                past.known = list(past.admissions())
            for size, observation in past.known:
                found.setdefault(size, []).append((past.last, uid, observation))
        return found


def last_of(seen: list[tuple[int, str, Observation]]) -> list[tuple[int, str, Observation]]:
    return seen if len(seen) <= MAX_OBSERVATIONS else nlargest(MAX_OBSERVATIONS, seen)


class SurvivalCurve:
    """What part of Runs still goes on after a time."""

    def __init__(self, observations: Iterable[Observation]) -> None:
        found = sorted(observations)
        self.ended = sum(ended for _, ended in found)
        self._times: list[int] = []  # at which some ended
        self._gone: list[int] = []  # the part that has ended by then, of WHOLE
        self._after: dict[tuple[int, int], list[int | None]] = {}  # what was asked
        left, at_risk = WHOLE, len(found)
        for duration, group in groupby(found, key=itemgetter(0)):
            together = list(group)
            ended = sum(end for _, end in together)
            if ended:
                left = left * (at_risk - ended) // at_risk
                self._times.append(duration)
                self._gone.append(WHOLE - left)
            at_risk -= len(together)

    @property
    def has_estimate(self) -> bool:
        """Whether enough has been seen to say anything."""
        return self.ended >= MIN_OBSERVATIONS

    def duration(self, age: int, part: int, parts: int) -> int | None:
        """After what time in all that part of those has ended which have run for ``age`` already."""
        known = bisect_right(self._times, age)
        left = WHOLE - (self._gone[known - 1] if known else 0)
        gone = WHOLE - left * (parts - part) // parts
        found = max(known, bisect_left(self._gone, gone))
        return self._times[found] if found < len(self._times) else None

    def durations(self, age: int, parts: int) -> list[int | None]:
        """The same for the middles of so many equal parts; it changes only when others have ended by then."""
        key = (bisect_right(self._times, age), parts)
        found = self._after.get(key)
        if found is None:
            middles = range(1, 2 * parts, 2)
            found = self._after[key] = [self.duration(age, middle, 2 * parts) for middle in middles]
        return found


class SurvivalCurves(NamedTuple):
    """How long an owner's Runs of each size class last, as it was known at an instant."""

    at: int
    ended: int  # leases of that owner by then
    by_size: dict[int, SurvivalCurve]
