"""Runs of one flavor that may grow as soon as there is room and money.

Most of them were told why they cannot, and nothing has come of it since: they stand among their like, by
creation, so that the first of them answers for all. Whoever was told nothing, or something else, or wants to
be asked apart, is restless.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator

from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import CreationOrder

GrowthSignature = tuple[object, ...]  # whatever decides whether a Run could take a step


class GrowthCandidates:
    __slots__ = ("_alike", "_likes", "_orders")

    def __init__(self) -> None:
        self._orders: dict[RunKey, CreationOrder] = {}
        self._likes: dict[RunKey, GrowthSignature] = {}  # of those that are not restless
        self._alike: dict[GrowthSignature | None, list[CreationOrder]] = {}  # None: the restless

    def __bool__(self) -> bool:
        return bool(self._orders)

    def __iter__(self) -> Iterator[RunKey]:
        return iter(self._orders)

    def __contains__(self, run_key: RunKey) -> bool:
        return run_key in self._orders

    def add(self, order: CreationOrder) -> None:
        """It wants more, or something else than before."""
        self.discard(order[1:])
        self._orders[order[1:]] = order
        insort(self._alike.setdefault(None, []), order)

    def discard(self, run_key: RunKey) -> None:
        order = self._orders.pop(run_key, None)
        if order is not None:
            like = self._likes.pop(run_key, None)
            orders = self._alike[like]
            del orders[bisect_left(orders, order)]
            if not orders:
                del self._alike[like]

    def set_signature(self, run_key: RunKey, like: GrowthSignature | None) -> None:
        """It was told something else: that it cannot grow, like these (None: anything but that)."""
        order = self._orders.get(run_key)
        if order is None or self._likes.get(run_key) == like:
            return
        self.add(order)
        if like is not None:
            self.discard(run_key)
            self._orders[run_key], self._likes[run_key] = order, like
            insort(self._alike.setdefault(like, []), order)

    def first_of_each_signature(
        self, after: CreationOrder | None
    ) -> list[tuple[CreationOrder, GrowthSignature | None]]:
        """The first of every kind behind that Run, or at all; the restless are a kind of their own."""
        found = ((like, self.next_with_signature(like, after)) for like in self._alike)
        return [(order, like) for like, order in found if order is not None]

    def next_with_signature(
        self, like: GrowthSignature | None, after: CreationOrder | None
    ) -> CreationOrder | None:
        orders = self._alike[like]
        at = 0 if after is None else bisect_left(orders, after)
        if at < len(orders) and orders[at] == after:
            at += 1
        return orders[at] if at < len(orders) else None
