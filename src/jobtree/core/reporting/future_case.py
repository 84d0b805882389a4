"""The case of a promise that others come before: who will hold the slice by then.

Between now and a far start, promises made before it come due in its domains. Provisional work yields to them
and is gone; those who are promised stand there, with tickets once they can be drawn. Where such a start needs
a lottery it is not known who loses it: here those with most tickets do. Nothing is drawn, no nonce is used.
"""

from collections.abc import Iterator

import msgspec

from jobtree.core.accounts.envelope_accounts import FOREVER
from jobtree.core.lottery.resolution import NodeRoom, Ticket
from jobtree.core.model.promise import LOTTERY, Promise
from jobtree.core.operations.victims import PromiseCase
from jobtree.core.runs.notice import immune_until
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World


class ExpectedArrival(msgspec.Struct, frozen=True, eq=False):
    """A Run that will have started by then, on these nodes."""

    run: RunState
    promise: Promise
    gpus: dict[str, int]


class FutureCase(PromiseCase):
    """A docket with the holders of that day in place of today's."""

    def __init__(self, world: World, run: RunState, promise: Promise) -> None:
        self._arrivals: list[ExpectedArrival] = []
        self._room: dict[str, int] = {}  # GPUs that are free by then, as far as it is known
        super().__init__(world, run, promise)
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
        self.holders = [*self.holders, *(one.run for one in self._arrivals)]

    def _arrived(self) -> Iterator[Ticket]:
        for one in self._arrivals:
            if self.promise.disruption >= LOTTERY and one.promise.immune_until <= self.at:
                yield Ticket(one.run.uid, tuple(sorted(one.gpus.items())))

    def _ticket_holders(self) -> tuple[list[RunState], list[RunState]]:
        """Those still there then, and those gone: ended, or given way to somebody promised before."""
        stay, gone = super()._ticket_holders()
        self._room = {name: place.free for name, place in self.nodes.items()}
        for run in gone:
            self._add_freed(run)
        for other in self._before():
            precedence = other.precedence
            for run in [one for one in stay if one.provisional and one.is_provisional_to(precedence)]:
                self._remove(run, stay, gone)
            self._add_arrival(other, stay, gone)
        return stay, gone

    def _remove(self, run: RunState, stay: list[RunState], gone: list[RunState]) -> None:
        stay.remove(run)
        gone.append(run)
        self._add_freed(run)

    def _add_freed(self, run: RunState) -> None:
        for node, gpus in self._gpus(list(run.leases.values())):
            self._room[node] += gpus

    def _before(self) -> list[Promise]:
        """Promises that come due in these domains before this one, in time."""
        domains = self.world.fleet.flavor(self.promise.flavor).domains
        mine = self.promise.precedence
        found = {
            key: promise
            for name in self.domains
            if name in domains
            for key, promise in domains[name].promises.items()
            if promise.at is not None
            and promise.at < self.at < (FOREVER if promise.end is None else promise.end)
            and promise.precedence < mine
            and self.world.runs[key].waiting
        }
        return sorted(found.values(), key=lambda promise: (promise.at or 0, promise.precedence))

    def _add_arrival(self, other: Promise, stay: list[RunState], gone: list[RunState]) -> None:
        """Give the promised GPUs in these domains to their Run; who has most there loses first."""
        losers: list[RunState] | None = None
        while (gpus := self._fit(other)) is None:
            losers = self._losers(other, stay) if losers is None else losers
            if not losers:
                return  # cuts, or somebody unforeseen: it stands somewhere, but nobody can say on which node
            self._remove(losers.pop(0), stay, gone)
        self._arrivals.append(ExpectedArrival(self.world.runs[other.run_key], other, gpus))
        for node, taken in gpus.items():
            self._room[node] -= taken

    def _losers(self, other: Promise, stay: list[RunState]) -> list[RunState]:
        """Those who might be drawn for it, the widest first."""
        if other.disruption < LOTTERY:
            return []
        policy, now = self.world.policy, self.world.now
        drawable = [run for run in stay if immune_until(policy, run, now) <= (other.at or 0)]
        return sorted(drawable, key=lambda run: (-run.width, run.creation_order))

    def _fit(self, other: Promise) -> dict[str, int] | None:
        """Nodes for its pods in these domains, by name; None where they do not all fit."""
        found: dict[str, int] = {}
        size, room = other.pod_size, self._room
        for domain, gpus in other.domain_gpus:
            if domain not in self.domains:
                continue
            missing = gpus // size
            for name in self.names.get(domain, ()):
                pods = min(missing, max(0, room[name]) // size)
                if pods:
                    found[name] = pods * size
                    missing -= pods
                    if not missing:
                        break
            if missing:
                return None
        return found
