"""Leases as the cluster tells them: in any order, more than once, with or without their Run.

What a closed lease used is in the sums once, however often it is told; its slots may be others' by now. An
open one counts once its Run is there: without one nobody holds it, and it is to be closed. A Run that holds
leases is running, whatever its status says yet: the leases are the truth, and the status follows.
"""

from typing import TYPE_CHECKING

from jobtree.api.kinds.lease import ClosureReason, Lease as WireLease
from jobtree.api.schema.quantities import parse_time
from jobtree.core.model.gpu_lease import GpuLease, RunKey, lease_from_object, lease_number
from jobtree.core.runs.rank_assignment import decode_ranks, reassign_ranks
from jobtree.core.runs.run_state import FINISHED, RunState

if TYPE_CHECKING:
    from jobtree.core.world.world import World


class LeaseIntake:
    def __init__(self, world: "World") -> None:
        self._world = world
        self.orphans: dict[RunKey, dict[str, GpuLease]] = {}  # without their Run: they hold nothing
        self.closed: set[str] = set()  # names of leases whose use is in the sums

    def put(self, lease: WireLease) -> None:
        """A lease as the ledger has it."""
        known = lease_from_object(lease)
        self._world.foreign_pods.register_run(known.uid, known.run_key[0])
        if lease.status.end is not None:
            self._add_closed(known, parse_time(lease.status.end), lease.status.closure_reason)
        elif known.name not in self._world.posted_leases and known.name not in self.closed:
            self.add_open(known)
        run = self._world.open_leases.run_of(known)
        if run is not None:
            run.raise_leases_opened(lease_number(known))
            self.mark_running(run)

    def add_open(self, lease: GpuLease) -> None:
        run = self._world.open_leases.run_of(lease)
        if run is None:
            self.orphans.setdefault(lease.run_key, {})[lease.name] = lease
        else:
            self._world.open_leases.open(lease)
            self.mark_running(run)

    def add_orphans(self, run: RunState) -> None:
        """A Run came: leases that came before it count now."""
        waiting = self.orphans.get(run.key, {})
        for lease in [lease for lease in waiting.values() if lease.uid == run.uid]:
            del waiting[lease.name]
            self._world.open_leases.open(lease)
        if not waiting:
            self.orphans.pop(run.key, None)

    def _add_closed(self, lease: GpuLease, end: int, reason: ClosureReason | None) -> None:
        if lease.name in self.closed:
            return
        self.closed.add(lease.name)
        self._world.run_history.close(lease, end, reason)
        waiting = self.orphans.get(lease.run_key, {})
        if waiting.pop(lease.name, None) is not None and not waiting:
            del self.orphans[lease.run_key]
        if lease.name in self._world.posted_leases:
            self._world.open_leases.close(lease.name, end)
        else:
            self._add_closed_usage(lease, end)

    def _add_closed_usage(self, lease: GpuLease, end: int) -> None:
        """Count what it used, where that is not carried already."""
        world = self._world
        held = world.open_leases.posting_for(lease)
        if lease.name not in world.budgets.archived_leases.get(lease.payer[0], ()):
            world.open_leases.add_closed_usage_of_payer(held, end, 1)
        if held.run is None or lease.name not in held.run.usage.archived_leases:
            world.open_leases.add_closed_usage_of_run(held, end, 1)
        world.timers.schedule_envelope(held.envelope)  # what it used is gone: hours may run out sooner
        if held.run is not None:
            world.timers.schedule_quotas(held.run.quotas)

    def mark_running(self, run: RunState) -> None:
        """A Run that holds leases is running, whatever its status says yet."""
        if not run.leases or run.phase in FINISHED:
            return
        world, held = self._world, run.leases.values()
        run.raise_leases_opened(max(map(lease_number, held)))
        if run.phase != "Running":
            self._resume(run)
        world.open_leases.repost(list(run.leases))
        restore_ranks(run)
        reassign_ranks(run)
        if any(
            world.node_lifecycle.has_failed(node, lease.name) for lease in held for node, _ in lease.slots
        ):
            world.runs_to_check.add(run.key)  # it failed, or comes later than its leases
        world.run_queue.update_growth(run)
        world.run_queue.schedule_recall(run, settled=False)
        world.run_queue.update(run)

    def _resume(self, run: RunState) -> None:
        pod_size = run.pod_size
        if not pod_size and run.shape:
            pod_size = run.shape.pod_size(self._world.fleet.flavor(run.shape.flavor).biggest_node)
        run.resume(pod_size)
        self._world.timers.schedule_run(run)


def restore_ranks(run: RunState) -> None:
    """Leases may arrive one by one: every rank comes back to the seat that the status tells."""
    taken = set(run.rank_slots.values())
    told = decode_ranks(run.run_object.status.ranks)
    run.assign_ranks({seat: pod for seat, pod in told.items() if pod not in taken} | run.rank_slots)
