"""Loads Lease objects in any order, more than once, with or without their Run.

The usage of a closed lease is added once, however often the lease is read; its slots may be in use by other
leases by then. An open lease counts once its Run is there. Without its Run it occupies nothing, and the
manager closes it. A Run that has open leases is running, whatever its status says: the status follows the
leases.
"""

from jobtree.api.kinds.lease import ClosureReason, Lease as WireLease
from jobtree.api.schema.quantities import parse_time
from jobtree.core.model.gpu_lease import GpuLease, RunKey, lease_from_object, lease_number
from jobtree.core.runs.rank_assignment import reassign_ranks, restore_ranks
from jobtree.core.runs.run_durations import RunHistory
from jobtree.core.runs.run_state import FINISHED, RunState
from jobtree.core.supply.fleet import Fleet
from jobtree.core.world.foreign_pods import ForeignPods
from jobtree.core.world.node_lifecycle import NodeLifecycle
from jobtree.core.world.run_indexes import RunIndexes


class LeaseIntake:
    def __init__(
        self,
        fleet: Fleet,
        indexes: RunIndexes,
        node_lifecycle: NodeLifecycle,
        foreign_pods: ForeignPods,
        run_history: RunHistory,
    ) -> None:
        self._fleet = fleet
        self._indexes = indexes
        self._node_lifecycle = node_lifecycle
        self._foreign_pods = foreign_pods
        self._run_history = run_history
        self.leases_without_run: dict[RunKey, dict[str, GpuLease]] = {}  # open leases by the key of the Run
        self.closed: set[str] = set()  # names of leases whose usage is added

    def put(self, lease_object: WireLease) -> None:
        """Loads a lease, open or closed."""
        lease, open_leases = lease_from_object(lease_object), self._indexes.open_leases
        self._foreign_pods.register_run(lease.uid, lease.run_key[0])
        status = lease_object.status
        if status.end is not None:
            self._add_closed(lease, parse_time(status.end), status.closure_reason)
        elif lease.name not in open_leases.posted and lease.name not in self.closed:
            self.add_open(lease)
        run = open_leases.run_of(lease)
        if run is not None:
            run.raise_leases_opened(lease_number(lease))
            self.mark_running(run)

    def add_open(self, lease: GpuLease) -> None:
        run = self._indexes.open_leases.run_of(lease)
        if run is None:
            self.leases_without_run.setdefault(lease.run_key, {})[lease.name] = lease
        else:
            self._indexes.open_leases.open(lease)
            self.mark_running(run)

    def load_open_leases(self, run: RunState) -> None:
        """Opens the leases of a new Run that were read before it."""
        self._foreign_pods.register_run(run.uid, run.key[0])
        leases = self.leases_without_run.get(run.key, {})
        for lease in [lease for lease in leases.values() if lease.uid == run.uid]:
            del leases[lease.name]
            self._indexes.open_leases.open(lease)
        if not leases:
            self.leases_without_run.pop(run.key, None)
        self.mark_running(run)

    def _add_closed(self, lease: GpuLease, end: int, reason: ClosureReason | None) -> None:
        if lease.name in self.closed:
            return
        self.closed.add(lease.name)
        self._run_history.close(lease, end, reason)
        leases = self.leases_without_run.get(lease.run_key, {})
        if leases.pop(lease.name, None) is not None and not leases:
            del self.leases_without_run[lease.run_key]
        open_leases = self._indexes.open_leases
        if lease.name in open_leases.posted:
            open_leases.close(lease.name, end)
        else:
            open_leases.add_closed_usage(lease, end)

    def mark_running(self, run: RunState) -> None:
        """Marks a Run with open leases as running, whatever its status says."""
        if not run.leases or run.phase in FINISHED:
            return
        run.raise_leases_opened(max(map(lease_number, run.leases.values())))
        if run.phase != "Running":
            self._resume(run)
        self._indexes.open_leases.repost(list(run.leases))
        restore_ranks(run)
        reassign_ranks(run)
        self._node_lifecycle.recheck_if_on_failed_node(run)
        run_queue = self._indexes.run_queue
        run_queue.update_growth(run)
        run_queue.schedule_recall(run)
        run_queue.update(run)

    def _resume(self, run: RunState) -> None:
        pod_size = run.pod_size
        if not pod_size and run.shape:
            pod_size = run.shape.pod_size(self._fleet.flavor(run.shape.flavor).biggest_node)
        run.resume(pod_size)
        self._indexes.timers.schedule_run(run)
