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

from jobtree.core.model.gang_shape import GangShape
from jobtree.core.model.promise import CreationOrder, Precedence, Promise
from jobtree.core.model.reasons import Reason
from jobtree.core.runs.run_state import RunState

SortedEntry = TypeVar("SortedEntry", tuple[int, CreationOrder], Precedence)

PLACEMENT_REASONS = frozenset({Reason.NO_FREE_SLOTS, Reason.GROUP_TOO_LARGE, Reason.HELD})


DateSignature = tuple[str, GangShape | None, bool, bool]


def date_signature(run: RunState, promise: Promise) -> DateSignature:
    """What finding a date depends on, besides who was promised something before."""
    return run.owner, run.shape, bool(promise.funding), bool(promise.slips)


class WaitSignature(msgspec.Struct, frozen=True):
    """What Runs have in common that wait for the same."""

    flavor: str
    owner: str
    sponsors: tuple[str, ...]
    place: bool  # was told that only place lacks; else money lacks, too
    size: int  # of a pod
    biggest_node: int  # of the flavor, from which the size was found
    dateless: DateSignature | None  # without a date: what finding one depends on


ReconsideredUpTo = dict[WaitSignature, int]


class InactiveRun(NamedTuple):
    like: WaitSignature
    need: int
    precedence: Precedence


class InactiveQueue:
    def __init__(self) -> None:
        self._likes: dict[CreationOrder, InactiveRun] = {}
        self._needs: dict[WaitSignature, list[tuple[int, CreationOrder]]] = {}
        self._lines: dict[WaitSignature, list[Precedence]] = {}  # of those without a date

    def add(self, run: RunState, biggest_node: int) -> bool:
        """Let it sleep, if it is a Run that can; whether it does."""
        shape, promise = run.shape, run.promise
        if shape is None or promise is None or run.gang or shape.allow_opportunistic:
            return False
        if not run.waiting or run.verdict is None or run.verdict.phase != "Reserved":
            return False
        if promise.at is None and run.quotas:
            return False  # what a tree may still use is not the same for all
        like = WaitSignature(
            flavor=shape.flavor,
            owner=run.owner,
            sponsors=run.sponsors,
            place=lacks_room_only(run),
            size=shape.pod_size(biggest_node),
            biggest_node=biggest_node,
            dateless=date_signature(run, promise) if promise.at is None else None,
        )
        self._likes[run.creation_order] = InactiveRun(like, shape.min, promise.precedence)
        insort(self._needs.setdefault(like, []), (shape.min, run.creation_order))
        if like.dateless is not None:
            insort(self._lines.setdefault(like, []), promise.precedence)
        return True

    def remove(self, order: CreationOrder) -> None:
        found = self._likes.pop(order, None)
        if found is not None:
            like, need, precedence = found
            remove_sorted(self._needs, like, (need, order))
            if like.dateless is not None:
                remove_sorted(self._lines, like, precedence)

    def may_reconsider(self, order: CreationOrder, most: Callable[[WaitSignature], int]) -> bool:
        """Whether this one sleeps, and needs no more GPUs than are there at most, or is its first."""
        found = self._likes.get(order)
        if found is None:
            return False
        line = self._lines.get(found.like)
        return (line is not None and line[0] == found.precedence) or found.need <= most(found.like)

    def to_reconsider(
        self, most: Callable[[WaitSignature], int], flavors: Container[str], up_to: ReconsideredUpTo
    ) -> Iterator[CreationOrder]:
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


def remove_sorted(
    found: dict[WaitSignature, list[SortedEntry]], like: WaitSignature, entry: SortedEntry
) -> None:
    """One of a sorted list, and with the last of them the list."""
    entries = found[like]
    del entries[bisect_left(entries, entry)]
    if not entries:
        del found[like]


def lacks_room_only(run: RunState) -> bool:
    """Whether the Run was told that only place lacks."""
    return run.verdict is not None and all(why.reason in PLACEMENT_REASONS for why in run.verdict.causes)
