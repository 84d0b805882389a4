"""Trees, gangs, quotas and waiting, kept up to date when Runs are added, end and are removed."""

from jobtree.core.accounts.envelope_accounts import Account
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.runs.run_graph import RunGraph
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.pending_changes import PendingChanges
from jobtree.core.world.run_indexes import RunIndexes
from jobtree.core.world.upstream_runs import upstreams


class RunRelations:
    def __init__(self, run_graph: RunGraph, indexes: RunIndexes, changes: PendingChanges) -> None:
        self.run_graph = run_graph
        self._indexes = indexes
        self._changes = changes

    def update(self, run: RunState) -> None:
        """Finds the tree, gang and quotas of a new or edited Run, and of the Runs that depend on it."""
        graph = self.run_graph
        graph.add(run)
        for below in (run, *graph.descendants(run)):
            quotas = graph.update_gang_and_quotas(below)
            if quotas != below.quotas:
                self._repost_under_quotas(below, quotas)
            self._set_waiting_or_pending(below)
        for member in graph.members(run):
            self._set_waiting_or_pending(member)  # all members wait for the upstream Runs of each
        self.recheck_dependents(run.key)

    def recheck_dependents(self, key: RunKey) -> None:
        """Has the next plan check the Runs that wait for a Run which was added, ended or is gone."""
        for dependent in self.run_graph.affected_by(key):
            self._changes.runs_to_check.add(dependent.key)
            self._indexes.timers.schedule_run(dependent)

    def _repost_under_quotas(self, run: RunState, quotas: tuple[Account, ...]) -> None:
        """Charges the open and closed leases of a Run to these quotas."""
        open_leases = self._indexes.open_leases
        leases = list(run.leases.values())
        for lease in leases:
            open_leases.undo_open(lease.name)
        run.change_quotas(quotas)
        self._indexes.timers.schedule_quotas(quotas)
        for lease in leases:
            open_leases.open(lease)

    def _set_waiting_or_pending(self, run: RunState) -> None:
        """Updates whether a Run that has not been queued yet waits for other Runs (J1)."""
        if run.phase in ("Waiting", "Pending") and run.run_object.status.phase in (None, "Waiting"):
            run.set_waiting(waiting=any(True for _ in upstreams(self.run_graph, run)))
        if run.phase == "Waiting" or run.shape is None:
            self._changes.runs_to_check.add(run.key)
        self._indexes.requeue(run)
