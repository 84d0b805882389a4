"""Waiting Runs that need not be asked until enough GPUs, or enough money, might be there.

Who has a promise and was told what it lacks sleeps among its like: Runs of one owner that lack the same, place
or money, for pods of one size, in the order of the GPUs that they need at least. What could be there at most is
told for all of them at once (``Chances.most``), and wakes those who need no more than that. Whose promise has no
date is woken too by whatever could bring one (``hopes``). Any change of a Run itself wakes it, and it sleeps
again only when it has been asked.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Container, Iterator

import msgspec

from jobtree.core.promise import Order
from jobtree.core.reasons import Reason
from jobtree.core.runs import Hope, RunState

OF_PLACE = frozenset({Reason.NO_FREE_SLOTS, Reason.GROUP_TOO_LARGE, Reason.HELD})


class Like(msgspec.Struct, frozen=True):
    """What Runs have in common that wait for the same."""

    flavor: str
    owner: str
    sponsors: tuple[str, ...]
    place: bool  # was told that only place lacks; else money lacks, too
    size: int  # of a pod
    biggest_node: int  # of the flavor, from which the size was found
    hope: Hope | None  # without a date: what was known when one was last looked for


class Sleepers:
    def __init__(self) -> None:
        self._likes: dict[Order, tuple[Like, int]] = {}
        self._needs: dict[Like, list[tuple[int, Order]]] = {}

    def lay(self, state: RunState, biggest_node: int) -> bool:
        """Let it sleep, if it is a Run that can; whether it does."""
        shape, promise = state.shape, state.promise
        if shape is None or promise is None or state.gang or shape.allow_opportunistic:
            return False
        if not state.waiting or state.verdict is None or state.verdict.phase != "Reserved":
            return False
        like = Like(
            flavor=shape.flavor,
            owner=state.owner,
            sponsors=state.sponsors,
            place=told_of_place(state),
            size=shape.pod_size(biggest_node),
            biggest_node=biggest_node,
            hope=state.hoped if promise.at is None else None,
        )
        self._likes[state.order] = (like, shape.min)
        insort(self._needs.setdefault(like, []), (shape.min, state.order))
        return True

    def wake(self, order: Order) -> None:
        found = self._likes.pop(order, None)
        if found is not None:
            like, need = found
            needs = self._needs[like]
            del needs[bisect_left(needs, (need, order))]
            if not needs:
                del self._needs[like]

    def rises(self, order: Order, most: Callable[[Like], int]) -> bool:
        """Whether this one sleeps and needs no more GPUs than could be there for its like."""
        found = self._likes.get(order)
        return found is not None and found[1] <= most(found[0])

    def roused(self, most: Callable[[Like], int], flavors: Container[str]) -> Iterator[Order]:
        """Those of these flavors who need no more GPUs than ``most`` says could be there for their like."""
        for like, needs in self._needs.items():
            if like.flavor not in flavors:
                continue
            for _, order in needs[: bisect_right(needs, most(like), key=lambda need: need[0])]:
                yield order


def told_of_place(state: RunState) -> bool:
    """Whether the Run was told that only place lacks."""
    return state.verdict is not None and all(why.reason in OF_PLACE for why in state.verdict.whys)
