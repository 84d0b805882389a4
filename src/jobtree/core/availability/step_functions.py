"""Step functions of time: how many pods or GPUs are free from each instant on, and the first with enough."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from jobtree.core.accounts.envelope_accounts import FOREVER
from jobtree.core.availability.occupancy import ALWAYS

StepFunction = tuple[list[int], list[int]]  # instants in order, and the amount that is free from each on


class OccupiedInterval(NamedTuple):
    """GPUs that a waiting Run will use, from ``start`` to ``end``; sorts by end."""

    end: int
    start: int
    gpus: int


def pods_over_time(free: Sequence[int], released: Iterable[tuple[int, int, int]], size: int) -> StepFunction:
    """Returns how many pods of that size fit over time, as nodes release GPUs.

    ``free`` has the free GPUs of each node. ``released`` lists, in order: the instant, the index of the node,
    and the GPUs.
    """
    free_gpus = list(free)
    count = sum([gpus // size for gpus in free_gpus if gpus > 0])
    times, counts = [ALWAYS], [count]
    for at, index, gpus in released:
        before = free_gpus[index]
        after = free_gpus[index] = before + gpus
        more = max(0, after) // size - max(0, before) // size
        if more:
            count += more
            if times[-1] == at:
                counts[-1] = count
            else:
                times.append(at)
                counts.append(count)
    return times, counts


def gpus_over_time(free: int, released: Iterable[tuple[int, int]]) -> StepFunction:
    """Returns how many GPUs are free over time, on any node.

    ``released`` lists instants and GPUs. If an instant is in the result twice, the last amount is right.
    """
    releases = sorted(released)
    times = [ALWAYS, *(at for at, _ in releases)]
    amounts = list(accumulate((gpus for _, gpus in releases), initial=free))
    finite = bisect_left(times, FOREVER)
    return times[:finite], amounts[:finite]


def earliest_open_ended_fit(  # noqa: PLR0913, PLR0917  one question with its circumstances
    at: int,
    free_pods: StepFunction,
    occupied: Sequence[OccupiedInterval],
    size: int,
    needed: int,
    before: int,
) -> int | None:
    """Returns the first instant from ``at`` on and before ``before`` at which the pods fit without an end.

    They must fit beside all intervals that have not ended by then, also beside those that begin later.
    """
    times, pods = free_pods
    step = max(bisect_right(times, at) - 1, bisect_left(pods, needed))
    if step == len(pods) or (at := max(at, times[step])) >= before:
        return None
    ended = bisect_right(occupied, (at, FOREVER))
    taken = sum(-(-interval.gpus // size) for interval in occupied[ended:])
    while pods[step] - taken < needed:
        end = occupied[ended].end if ended < len(occupied) else FOREVER
        at = min(end, times[step + 1] if step + 1 < len(times) else FOREVER)
        if at >= before:
            return None
        while step + 1 < len(times) and times[step + 1] <= at:
            step += 1
        while ended < len(occupied) and occupied[ended].end <= at:
            taken -= -(-occupied[ended].gpus // size)
            ended += 1
    return at


def earliest_fit_for_duration(  # noqa: PLR0913, PLR0917  one question with its circumstances
    at: int,
    free_pods: StepFunction,
    occupied: Sequence[OccupiedInterval],
    size: int,
    needed: int,
    duration: int,
    before: int,
) -> int | None:
    """Returns the first instant from ``at`` on and before ``before`` at which the pods fit for a duration.

    They must fit beside all intervals that overlap with it.
    """
    times, pods = free_pods
    enough = bisect_left(pods, needed)  # without the intervals the pods that fit only increase
    if enough == len(pods):
        return None
    at = max(at, times[enough])
    if at >= before:
        return None

    def fits(instant: int) -> bool:
        left = pods[bisect_right(times, instant) - 1]
        for _, start, gpus in occupied[bisect_right(occupied, (instant, FOREVER)) :]:
            if start < instant + duration:
                left -= -(-gpus // size)
                if left < needed:
                    return False
        return True

    if fits(at):
        return at
    first, last = bisect_right(occupied, (at, FOREVER)), bisect_left(occupied, (before,))
    ends = [interval[0] for interval in occupied[first:last]]
    later = [*times[bisect_right(times, at) : bisect_left(times, before)], *ends]
    return next((instant for instant in sorted(later) if fits(instant)), None)


def increase_instants(at: int, times: Sequence[int], occupied: Sequence[OccupiedInterval]) -> Iterator[int]:
    """Yields ``at`` and all later instants at which more may be free than before, not in order."""
    yield at
    yield from times[bisect_right(times, at) :]
    yield from (interval.end for interval in occupied if at < interval.end < FOREVER)
