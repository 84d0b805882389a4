"""The case of a promise as it will be after earlier promises have started.

Until a far start, promises made before it come due in its domains. Provisional work is reclaimed for them,
and their Runs occupy the slice, with tickets once they can be drawn. If such a start needs a lottery its
losers are not known: this case assumes those with the most tickets. Nothing is drawn and no nonce is used.
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
    """A Run that will have started by then, and its GPUs by node."""

    run: RunState
    promise: Promise
    gpus: dict[str, int]


class FutureCase(PromiseCase):
    """A case with the Runs that will occupy the slice then in place of those that occupy it now."""

    def __init__(self, world: World, run: RunState, promise: Promise) -> None:
        self._arrivals: list[ExpectedArrival] = []
        self._room: dict[str, int] = {}  # GPUs by node that will be free then
        super().__init__(world, run, promise)
        taken: dict[str, int] = {}
        for arrival in self._arrivals:
            for node, gpus in arrival.gpus.items():
                taken[node] = taken.get(node, 0) + gpus
        rooms = self.case.nodes
        self.case = msgspec.structs.replace(
            self.case,
            nodes=tuple(NodeRoom(r.node, r.domain, max(0, r.free - taken.get(r.node, 0))) for r in rooms),
            tickets=tuple(
                sorted((*self.case.tickets, *self._arrival_tickets()), key=lambda ticket: ticket.run)
            ),
        )
        self.holders = [*self.holders, *(arrival.run for arrival in self._arrivals)]

    def _arrival_tickets(self) -> Iterator[Ticket]:
        for arrival in self._arrivals:
            if self.promise.disruption == LOTTERY and arrival.promise.immune_until <= self.at:
                yield Ticket(arrival.run.uid, tuple(sorted(arrival.gpus.items())))

    def _ticket_holders(self) -> tuple[list[RunState], list[RunState]]:
        """Returns the Runs that still run then, and those that will have ended or been reclaimed."""
        running, ended = super()._ticket_holders()
        self._room = {name: node.free for name, node in self.nodes.items()}
        for run in ended:
            self._add_freed(run)
        for promise in self._earlier_promises():
            for run in [
                run for run in running if run.provisional and run.is_provisional_to(promise.precedence)
            ]:
                self._remove(run, running, ended)
            self._add_arrival(promise, running, ended)
        return running, ended

    def _remove(self, run: RunState, running: list[RunState], ended: list[RunState]) -> None:
        running.remove(run)
        ended.append(run)
        self._add_freed(run)

    def _add_freed(self, run: RunState) -> None:
        for node, gpus in self._gpus(list(run.leases.values())):
            self._room[node] += gpus

    def _earlier_promises(self) -> list[Promise]:
        """Promises with precedence that come due in these domains before this one, by date."""
        domains = self.world.fleet.flavor(self.promise.flavor).domains
        mine = self.promise.precedence
        promises = {
            key: promise
            for name in self.domains
            if name in domains
            for key, promise in domains[name].promises.items()
            if promise.at is not None
            and promise.at < self.at < (FOREVER if promise.end is None else promise.end)
            and promise.precedence < mine
            and self.world.runs[key].waiting
        }
        return sorted(promises.values(), key=lambda promise: (promise.at or 0, promise.precedence))

    def _add_arrival(self, promise: Promise, running: list[RunState], ended: list[RunState]) -> None:
        """Gives the promised GPUs in these domains to their Run; the widest Runs lose first."""
        losers: list[RunState] | None = None
        while (gpus := self._fit(promise)) is None:
            losers = self._losers(promise, running) if losers is None else losers
            if not losers:
                return  # it will run somewhere in these domains, but it is not known on which nodes
            self._remove(losers.pop(0), running, ended)
        self._arrivals.append(ExpectedArrival(self.world.runs[promise.run_key], promise, gpus))
        for node, taken in gpus.items():
            self._room[node] -= taken

    def _losers(self, promise: Promise, running: list[RunState]) -> list[RunState]:
        """The Runs that could be drawn for it, the widest first."""
        if promise.disruption != LOTTERY:
            return []
        policy, now = self.world.policy, self.world.now
        drawable = [run for run in running if immune_until(policy, run, now) <= (promise.at or 0)]
        return sorted(drawable, key=lambda run: (-run.width, run.creation_order))

    def _fit(self, promise: Promise) -> dict[str, int] | None:
        """Returns the GPUs of its pods in these domains by node; None if not all pods fit."""
        gpus_by_node: dict[str, int] = {}
        pod_size, room = promise.pod_size, self._room
        for domain, gpus in promise.domain_gpus:
            if domain not in self.domains:
                continue
            missing = gpus // pod_size
            for name in self.names.get(domain, ()):
                pods = min(missing, max(0, room[name]) // pod_size)
                if pods:
                    gpus_by_node[name] = pods * pod_size
                    missing -= pods
                    if not missing:
                        break
            if missing:
                return None
        return gpus_by_node
