"""Room that comes and is taken up over the coming hours, and the first instant at which there is enough."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from jobtree.core.accounts.envelope_accounts import FOREVER
from jobtree.core.availability.occupancy import ALWAYS

StepFunction = tuple[list[int], list[int]]  # instants, and how much there is from each on


class OccupiedInterval(NamedTuple):
    """GPUs that a waiting Run will take up, from when to when; the first to end come first."""

    end: int
    start: int
    gpus: int


def pods_over_time(free: Sequence[int], released: Iterable[tuple[int, int, int]], size: int) -> StepFunction:
    """What fits, in units of that size, as GPUs come free in one place after another.

    ``released``, in order: the instant, the place, and the GPUs.
    """
    room = list(free)
    count = sum([gpus // size for gpus in room if gpus > 0])
    times, counts = [ALWAYS], [count]
    for at, place, gpus in released:
        before = room[place]
        after = room[place] = before + gpus
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
    """The same GPU by GPU, in whatever place; an instant may come twice, the last time with all of it."""
    found = sorted(released)
    times = [ALWAYS, *(at for at, _ in found)]
    counts = list(accumulate((gpus for _, gpus in found), initial=free))
    known = bisect_left(times, FOREVER)
    return times[:known], counts[:known]


def first_after_intervals(  # noqa: PLR0913, PLR0917  one question with its circumstances
    at: int, room: StepFunction, visits: Sequence[OccupiedInterval], size: int, needed: int, before: int
) -> int | None:
    """The first instant at which so many pods fit beside all visits that have not ended."""
    times, pods = room
    step = max(bisect_right(times, at) - 1, bisect_left(pods, needed))
    if step == len(pods) or (at := max(at, times[step])) >= before:
        return None
    gone = bisect_right(visits, (at, FOREVER))
    taken = sum(-(-one.gpus // size) for one in visits[gone:])
    while pods[step] - taken < needed:
        end = visits[gone].end if gone < len(visits) else FOREVER
        at = min(end, times[step + 1] if step + 1 < len(times) else FOREVER)
        if at >= before:
            return None
        while step + 1 < len(times) and times[step + 1] <= at:
            step += 1
        while gone < len(visits) and visits[gone].end <= at:
            taken -= -(-visits[gone].gpus // size)
            gone += 1
    return at


def first_between_intervals(  # noqa: PLR0913, PLR0917  one question with its circumstances
    at: int,
    room: StepFunction,
    visits: Sequence[OccupiedInterval],
    size: int,
    needed: int,
    span: int,
    before: int,
) -> int | None:
    """The first instant at which so many pods fit beside all visits that they would meet within the span."""
    times, pods = room
    enough = bisect_left(pods, needed)  # what fits, visits apart, only grows
    if enough == len(pods):
        return None
    at = max(at, times[enough])
    if at >= before:
        return None

    def fits(instant: int) -> bool:
        have = pods[bisect_right(times, instant) - 1]
        for _, start, gpus in visits[bisect_right(visits, (instant, FOREVER)) :]:
            if start < instant + span:
                have -= -(-gpus // size)
                if have < needed:
                    return False
        return True

    if fits(at):
        return at
    ends = [one[0] for one in visits[bisect_right(visits, (at, FOREVER)) : bisect_left(visits, (before,))]]
    later = [*times[bisect_right(times, at) : bisect_left(times, before)], *ends]
    return next((instant for instant in sorted(later) if fits(instant)), None)


def change_instants(at: int, times: Sequence[int], visits: Sequence[OccupiedInterval]) -> Iterator[int]:
    """Instants from ``at`` on at which there may be more than before."""
    yield at
    yield from times[bisect_right(times, at) :]
    yield from (one.end for one in visits if at < one.end < FOREVER)
