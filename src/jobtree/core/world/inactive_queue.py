"""Waiting Runs that need not be asked until enough GPUs, or enough money, might be there.

Who has a promise and was told what it lacks sleeps among its like: Runs of one owner that lack the same,
place or money, for pods of one size, in the order of the GPUs that they need at least. What could be there at
most is told for all of them at once (``Chances.most``), and wakes those who need no more than that. Of those
whose promise has no date the first is asked each time: where it finds none, nobody behind it does. Any change
of a Run itself wakes it, and it sleeps again only when it has been asked.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Container, Iterator
from operator import itemgetter
from typing import NamedTuple, TypeVar

import msgspec

from jobtree.core.model.gang_shape import Shape
from jobtree.core.model.promise import Order, Promise, Rank
from jobtree.core.model.reasons import Reason
from jobtree.core.runs.run_state import RunState

Entry = TypeVar("Entry", tuple[int, Order], Rank)

OF_PLACE = frozenset({Reason.NO_FREE_SLOTS, Reason.GROUP_TOO_LARGE, Reason.HELD})


Dateless = tuple[str, Shape | None, bool, bool]


def dateless(state: RunState, promise: Promise) -> Dateless:
    """What finding a date depends on, besides who was promised something before."""
    return state.owner, state.shape, bool(promise.funding), bool(promise.slips)


class Like(msgspec.Struct, frozen=True):
    """What Runs have in common that wait for the same."""

    flavor: str
    owner: str
    sponsors: tuple[str, ...]
    place: bool  # was told that only place lacks; else money lacks, too
    size: int  # of a pod
    biggest_node: int  # of the flavor, from which the size was found
    dateless: Dateless | None  # without a date: what finding one depends on


Roused = dict[Like, int]


class Sleeper(NamedTuple):
    like: Like
    need: int
    rank: Rank


class Sleepers:
    def __init__(self) -> None:
        self._likes: dict[Order, Sleeper] = {}
        self._needs: dict[Like, list[tuple[int, Order]]] = {}
        self._lines: dict[Like, list[Rank]] = {}  # of those without a date

    def lay(self, state: RunState, biggest_node: int) -> bool:
        """Let it sleep, if it is a Run that can; whether it does."""
        shape, promise = state.shape, state.promise
        if shape is None or promise is None or state.gang or shape.allow_opportunistic:
            return False
        if not state.waiting or state.verdict is None or state.verdict.phase != "Reserved":
            return False
        if promise.at is None and state.quotas:
            return False  # what a tree may still use is not the same for all
        like = Like(
            flavor=shape.flavor,
            owner=state.owner,
            sponsors=state.sponsors,
            place=told_of_place(state),
            size=shape.pod_size(biggest_node),
            biggest_node=biggest_node,
            dateless=dateless(state, promise) if promise.at is None else None,
        )
        self._likes[state.order] = Sleeper(like, shape.min, promise.rank)
        insort(self._needs.setdefault(like, []), (shape.min, state.order))
        if like.dateless is not None:
            insort(self._lines.setdefault(like, []), promise.rank)
        return True

    def wake(self, order: Order) -> None:
        found = self._likes.pop(order, None)
        if found is not None:
            like, need, rank = found
            take_out(self._needs, like, (need, order))
            if like.dateless is not None:
                take_out(self._lines, like, rank)

    def rises(self, order: Order, most: Callable[[Like], int]) -> bool:
        """Whether this one sleeps, and needs no more GPUs than are there at most, or is its first."""
        found = self._likes.get(order)
        if found is None:
            return False
        line = self._lines.get(found.like)
        return (line is not None and line[0] == found.rank) or found.need <= most(found.like)

    def roused(self, most: Callable[[Like], int], flavors: Container[str], up_to: Roused) -> Iterator[Order]:
        """Those of these flavors who need no more GPUs than ``most`` says could be there for their like.

        ``up_to`` remembers of each like what was there before: whoever was roused by that is not again.
        """
        for like, needs in self._needs.items():
            if like.flavor not in flavors:
                continue
            before, now = up_to.get(like, 0), most(like)
            if now > before:
                up_to[like] = now
                places = (bisect_right(needs, gpus, key=itemgetter(0)) for gpus in (before, now))
                yield from (order for _, order in needs[slice(*places)])
            if like.dateless is not None:
                yield self._lines[like][0][2]


def take_out(found: dict[Like, list[Entry]], like: Like, entry: Entry) -> None:
    """One of a sorted list, and with the last of them the list."""
    entries = found[like]
    del entries[bisect_left(entries, entry)]
    if not entries:
        del found[like]


def told_of_place(state: RunState) -> bool:
    """Whether the Run was told that only place lacks."""
    return state.verdict is not None and all(why.reason in OF_PLACE for why in state.verdict.whys)
