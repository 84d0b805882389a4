"""Keeps the running Runs of a flavor that want to grow, grouped by what stopped them last.

Runs with the same signature cannot grow for the same reason, so the first of them in creation order answers
for all. A Run without a signature was not refused yet, has changed, or must be asked by itself.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator

from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import CreationOrder

GrowthSignature = tuple[object, ...]  # everything that decides whether a Run could take a step


class GrowthCandidates:
    __slots__ = ("_by_signature", "_orders", "_signatures")

    def __init__(self) -> None:
        self._orders: dict[RunKey, CreationOrder] = {}
        self._signatures: dict[RunKey, GrowthSignature] = {}
        # By signature, in creation order; None: Runs without a signature.
        self._by_signature: dict[GrowthSignature | None, list[CreationOrder]] = {}

    def __bool__(self) -> bool:
        return bool(self._orders)

    def __iter__(self) -> Iterator[RunKey]:
        return iter(self._orders)

    def __contains__(self, run_key: RunKey) -> bool:
        return run_key in self._orders

    def add(self, order: CreationOrder) -> None:
        """Adds a Run, or removes the signature of one that was added before."""
        self.discard(order[1:])
        self._orders[order[1:]] = order
        insort(self._by_signature.setdefault(None, []), order)

    def discard(self, run_key: RunKey) -> None:
        order = self._orders.pop(run_key, None)
        if order is not None:
            signature = self._signatures.pop(run_key, None)
            orders = self._by_signature[signature]
            del orders[bisect_left(orders, order)]
            if not orders:
                del self._by_signature[signature]

    def set_signature(self, run_key: RunKey, signature: GrowthSignature | None) -> None:
        """Sets the signature of a Run that cannot grow; None: the Run must be asked by itself."""
        order = self._orders.get(run_key)
        if order is None or self._signatures.get(run_key) == signature:
            return
        self.add(order)
        if signature is not None:
            self.discard(run_key)
            self._orders[run_key], self._signatures[run_key] = order, signature
            insort(self._by_signature.setdefault(signature, []), order)

    def first_of_each_signature(
        self, after: CreationOrder | None
    ) -> list[tuple[CreationOrder, GrowthSignature | None]]:
        """Returns the first Run behind ``after`` of each signature, and the first without a signature.

        If ``after`` is None, all Runs count.
        """
        firsts = ((signature, self.next_with_signature(signature, after)) for signature in self._by_signature)
        return [(order, signature) for signature, order in firsts if order is not None]

    def next_with_signature(
        self, signature: GrowthSignature | None, after: CreationOrder | None
    ) -> CreationOrder | None:
        orders = self._by_signature[signature]
        at = 0 if after is None else bisect_left(orders, after)
        if at < len(orders) and orders[at] == after:
            at += 1
        return orders[at] if at < len(orders) else None
