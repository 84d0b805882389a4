"""The case of a promise that others come before: who will hold the slice by then.

Between now and a far start, promises made before it come due in its domains. Provisional work yields to them
and is gone; those who are promised stand there, with tickets once they can be drawn. Where such a start needs
a lottery it is not known who loses it: here those with most tickets do. Nothing is drawn, no nonce is used.
"""

from collections.abc import Iterator

import msgspec

from jobtree.core.books import FOREVER
from jobtree.core.horizon import immune_until
from jobtree.core.promise import LOTTERY, Promise
from jobtree.core.resolve import NodeRoom, Ticket
from jobtree.core.runs import RunState
from jobtree.core.takings import Docket
from jobtree.core.world import World


class Arrival(msgspec.Struct, frozen=True, eq=False):
    """A Run that will have started by then, on these nodes."""

    state: RunState
    promise: Promise
    gpus: dict[str, int]


class Foreseen(Docket):
    """A docket with the holders of that day in place of today's."""

    def __init__(self, world: World, state: RunState, promise: Promise) -> None:
        self._arrivals: list[Arrival] = []
        super().__init__(world, state, promise)
        taken: dict[str, int] = {}
        for one in self._arrivals:
            for node, gpus in one.gpus.items():
                taken[node] = taken.get(node, 0) + gpus
        rooms = self.case.nodes
        self.case = msgspec.structs.replace(
            self.case,
            nodes=tuple(NodeRoom(r.node, r.domain, max(0, r.free - taken.get(r.node, 0))) for r in rooms),
            tickets=tuple(sorted((*self.case.tickets, *self._arrived()), key=lambda ticket: ticket.run)),
        )
        self.holders = [*self.holders, *(one.state for one in self._arrivals)]

    def _arrived(self) -> Iterator[Ticket]:
        for one in self._arrivals:
            if self.promise.level >= LOTTERY and one.promise.firm_until <= self.at:
                yield Ticket(one.state.uid, tuple(sorted(one.gpus.items())))

    def _holders(self) -> tuple[list[RunState], list[RunState]]:
        """Those still there then, and those gone: ended, or given way to somebody promised before."""
        stay, gone = super()._holders()
        for other in self._before():
            for state in [one for one in stay if one.yields_to(other.rank)]:
                stay.remove(state)
                gone.append(state)
            self._let_in(other, stay, gone)
        return stay, gone

    def _before(self) -> list[Promise]:
        """Promises that come due in these domains before this one, in time."""
        domains = self.world.fleet.flavor(self.promise.flavor).domains
        found = {
            key: promise
            for name in self.domains
            if name in domains
            for key, promise in domains[name].promises.items()
            if promise.at is not None
            and promise.at < self.at < (FOREVER if promise.end is None else promise.end)
            and promise.rank < self.promise.rank
            and self.world.runs[key].waiting
        }
        return sorted(found.values(), key=lambda promise: (promise.at or 0, promise.rank))

    def _let_in(self, other: Promise, stay: list[RunState], gone: list[RunState]) -> None:
        """Give the promised GPUs in these domains to their Run; who has most there loses first."""
        drawable = [one for one in stay if immune_until(self.world, one) <= (other.at or 0)]
        losers = sorted(drawable, key=lambda one: (-one.width, one.order)) if other.level >= LOTTERY else []
        while True:
            gpus = self._fit(other, gone)
            if gpus is not None:
                state = self.world.runs[other.run]
                self._arrivals.append(Arrival(state, other, gpus))
                return
            if not losers:
                return  # cuts, or somebody unforeseen: it stands somewhere, but nobody can say on which node
            loser = losers.pop(0)
            stay.remove(loser)
            gone.append(loser)

    def _fit(self, other: Promise, gone: list[RunState]) -> dict[str, int] | None:
        """Nodes for its pods in these domains, by name; None where they do not all fit."""
        freed = dict(self._gpus([lease for state in gone for lease in state.leases.values()]))
        taken: dict[str, int] = {}
        for one in self._arrivals:
            for node, gpus in one.gpus.items():
                taken[node] = taken.get(node, 0) + gpus
        found: dict[str, int] = {}
        for domain, gpus in other.shares:
            if domain not in self.domains:
                continue
            missing = gpus // other.pod_size
            for name, place in sorted(self.nodes.items()):
                if place.domain.name == domain and missing:
                    room = place.free + freed.get(name, 0) - taken.get(name, 0)
                    pods = min(missing, max(0, room) // other.pod_size)
                    if pods:
                        found[name] = pods * other.pod_size
                        missing -= pods
            if missing:
                return None
        return found
