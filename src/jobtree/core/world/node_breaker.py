"""The breaker: nodes that are lost together in large numbers are held, because it may be the network (F2c).

It trips for the fleet, or for a domain, of at least four nodes, if more than half of them became NotReady
within ``nodeGrace``. A node that is Ready again counts for another ``nodeGrace``, so that the rest does not
fail while nodes return one by one. A node that is NotReady and out of service counts too, but is not held.
All of this follows from the conditions of the nodes, so a restart changes nothing.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from itertools import accumulate

from jobtree.api.kubernetes.node import Node
from jobtree.core.supply.fleet import Fleet

LEAST_NODES = 4
FLEET = ("", "")
Scope = tuple[str, str]  # flavor and domain, or FLEET
Window = tuple[int, int]  # first and last instant


class ScopeReadiness:
    """The nodes of the fleet or of a domain, by the instants at which they became NotReady or Ready."""

    def __init__(self) -> None:
        self.nodes = 0
        self.lost_nodes = 0
        self.lost: dict[int, int] = {}  # these nodes, which are NotReady, by the instant since which
        self.ready: list[
            int
        ] = []  # instants since which nodes are Ready, sorted; those without one are left out

    def change(self, node: Node, sign: int) -> None:
        """Adds a node, or with ``sign`` -1 removes it."""
        self.nodes += sign
        lost, ready = node.not_ready_since_ms, node.ready_since_ms
        if lost is not None:
            self.lost_nodes += sign
            self.lost[lost] = self.lost.get(lost, 0) + sign
            if not self.lost[lost]:
                del self.lost[lost]
        elif ready is not None and sign > 0:
            insort(self.ready, ready)
        elif ready is not None:
            del self.ready[bisect_left(self.ready, ready)]

    def windows(self, now: int, grace: int) -> Iterator[Window]:
        """Yields the windows of that length in which too many nodes were lost."""
        if not self.lost or self.nodes < LEAST_NODES:
            return
        returned = len(self.ready) - bisect_right(self.ready, now - grace)
        needed = self.nodes // 2 + 1 - returned
        if needed > self.lost_nodes:
            return
        instants = sorted(self.lost)
        totals = [0, *accumulate(self.lost[at] for at in instants)]
        for first, at in enumerate(instants):
            if totals[bisect_right(instants, at + grace)] - totals[first] >= needed:
                yield at, at + grace


class NodeBreaker:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._scopes: dict[Scope, ScopeReadiness] = {}

    def change(self, node: Node, sign: int) -> None:
        """Adds a node, or with ``sign`` -1 removes it."""
        for scope in (FLEET, scope_of(node)):
            readiness = self._scopes.setdefault(scope, ScopeReadiness())
            readiness.change(node, sign)
            if not readiness.nodes:
                del self._scopes[scope]

    def holds(self, node: Node, now: int) -> bool:
        """Whether a node that is NotReady does not fail, because too many were lost together with it."""
        since = node.not_ready_since_ms
        if since is None or node.failed:
            return False
        return any(
            first <= since <= last
            for scope in (FLEET, scope_of(node))
            for first, last in self._scopes[scope].windows(now, self._fleet.node_grace_ms)
        )


def scope_of(node: Node) -> Scope:
    return node.flavor, str(node.domain)
