"""Leases as the cluster tells them: in any order, more than once, with or without their Run.

What a closed lease used is in the sums once, however often it is told; its slots may be others' by now. An
open one counts once its Run is there: without one nobody holds it, and it is to be closed. A Run that holds
leases is running, whatever its status says yet: the leases are the truth, and the status follows.
"""

from typing import TYPE_CHECKING

from jobtree.api.kinds.lease import ClosureReason
from jobtree.api.kinds.lease import Lease as WireLease
from jobtree.api.schema.quantities import parse_time
from jobtree.core.model.gpu_lease import Lease, RunKey, from_wire, number_of
from jobtree.core.runs.rank_assignment import read_seats, reseat
from jobtree.core.runs.run_state import FINISHED, RunState

if TYPE_CHECKING:
    from jobtree.core.world.world import World


class Intake:
    def __init__(self, world: "World") -> None:
        self._world = world
        self.orphans: dict[RunKey, dict[str, Lease]] = {}  # without their Run: they hold nothing
        self.closed: set[str] = set()  # names of leases whose use is in the sums

    def put(self, lease: WireLease) -> None:
        """A lease as the ledger has it."""
        known = from_wire(lease)
        self._world.strangers.know_run(known.uid, known.run[0])
        if lease.status.end is not None:
            self._take_in_closed(known, parse_time(lease.status.end), lease.status.closure_reason)
        elif known.name not in self._world.held and known.name not in self.closed:
            self.take_in_open(known)
        state = self._world.holdings.run_of(known)
        if state is not None:
            state.opened = max(state.opened, number_of(known))
            self.adopt(state)

    def take_in_open(self, lease: Lease) -> None:
        state = self._world.holdings.run_of(lease)
        if state is None:
            self.orphans.setdefault(lease.run, {})[lease.name] = lease
        else:
            self._world.holdings.open(lease)
            self.adopt(state)

    def take_orphans(self, state: RunState) -> None:
        """A Run came: leases that came before it count now."""
        waiting = self.orphans.get(state.key, {})
        for lease in [lease for lease in waiting.values() if lease.uid == state.uid]:
            del waiting[lease.name]
            self._world.holdings.open(lease)
        if not waiting:
            self.orphans.pop(state.key, None)

    def _take_in_closed(self, lease: Lease, end: int, reason: ClosureReason | None) -> None:
        if lease.name in self.closed:
            return
        self.closed.add(lease.name)
        self._world.history.close(lease, end, reason)
        waiting = self.orphans.get(lease.run, {})
        if waiting.pop(lease.name, None) is not None and not waiting:
            del self.orphans[lease.run]
        if lease.name in self._world.held:
            self._world.holdings.close(lease.name, end)
        else:
            self._settle(lease, end)

    def _settle(self, lease: Lease, end: int) -> None:
        """Count what it used, where that is not carried already."""
        world = self._world
        held = world.holdings.holding(lease)
        if lease.name not in world.ledger.leaving.get(lease.payer[0], ()):
            world.holdings.settle_payer(held, end, 1)
        if held.run is None or lease.name not in held.run.leaving:
            world.holdings.settle_run(held, end, 1)
        world.alarms.watch_envelope(held.envelope)  # what it used is gone: hours may run out sooner
        if held.run is not None:
            world.alarms.watch_quotas(held.run.quotas)

    def adopt(self, state: RunState) -> None:
        """A Run that holds leases is running, whatever its status says yet."""
        if not state.leases or state.phase in FINISHED:
            return
        world, held = self._world, state.leases.values()
        state.opened = max(state.opened, *map(number_of, held))
        if state.phase != "Running":
            self._resume(state)
        world.holdings.repost(list(state.leases))
        recall_seats(state)
        reseat(state)
        if any(world.ground.has_failed(node, lease.name) for lease in held for node, _ in lease.slots):
            world.attention.add(state.key)  # it failed, or comes later than its leases
        world.line.note_wishes(state)
        world.line.note_kept(state, settled=False)
        world.line.place(state)

    def _resume(self, state: RunState) -> None:
        state.phase = "Running"
        state.attempt = max(state.attempt, 1)
        if state.since is None:
            state.since = min(lease.start for lease in state.leases.values())
        state.changed_at = max(state.changed_at, state.since)
        if not state.pod_size and state.shape:
            biggest = self._world.fleet.flavor(state.shape.flavor).biggest_node
            state.pod_size = state.shape.pod_size(biggest)
        self._world.alarms.watch_run(state)


def recall_seats(state: RunState) -> None:
    """Leases may arrive one by one: every rank comes back to the seat that the status tells."""
    taken = set(state.seats.values())
    told = read_seats(state.run.status.ranks)
    state.seats = {seat: pod for seat, pod in told.items() if pod not in taken} | state.seats
