"""Adds, updates and removes Runs, in any order in which objects arrive.

A new Run gets what arrived before it: its open leases, the usage of its closed leases, its tree and its gang.
A Run that is deleted while it has leases or a promise stays until a plan has ended them; a new Run of the
same name is added after that.
"""

from jobtree.api.kinds.run import Run
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.runs.planning_inputs import is_planned_alike
from jobtree.core.runs.rank_assignment import reassign_ranks
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.lease_intake import LeaseIntake
from jobtree.core.world.pending_changes import PendingChanges
from jobtree.core.world.refused_runs import RefusedRuns
from jobtree.core.world.run_indexes import RunIndexes
from jobtree.core.world.run_relations import RunRelations


class RunLifecycle:
    def __init__(  # noqa: PLR0913, PLR0917  the parts that a Run enters and leaves
        self,
        runs: dict[RunKey, RunState],
        indexes: RunIndexes,
        relations: RunRelations,
        lease_intake: LeaseIntake,
        changes: PendingChanges,
        refused_runs: RefusedRuns,
    ) -> None:
        self._runs = runs
        self._indexes = indexes
        self._relations = relations
        self._lease_intake = lease_intake
        self._changes = changes
        self._refused_runs = refused_runs
        self._successors: dict[RunKey, Run] = {}  # new Runs under the name of one that has not ended yet

    def put(self, run_object: Run) -> RunState:
        """Adds or updates a Run, and returns it; a successor is added once its predecessor is removed."""
        key = (run_object.metadata.namespace, run_object.metadata.name)
        run = self._runs.get(key)
        if run is not None and run.uid != run_object.metadata.uid:
            self.drop(key)
            if key in self._runs:
                self._successors[key] = run_object
                return run
            run = None
        if run is None:
            run = self._add(key, run_object)
        else:
            self._apply_edit(run, run_object)
        if run.cancelled:
            self._changes.runs_to_check.add(key)
        self._indexes.requeue(run)
        return run

    def _add(self, key: RunKey, run_object: Run) -> RunState:
        run = self._runs[key] = RunState(run_object, self._indexes.timers.now)
        self._indexes.open_leases.load_closed_usage(run)
        self._relations.update(run)
        self._lease_intake.load_open_leases(run)
        if run.cpu_only and run.phase == "Running":
            reassign_ranks(run)
        self._refused_runs.schedule(run)
        return run

    def _apply_edit(self, run: RunState, run_object: Run) -> None:
        if not is_planned_alike(run.run_object, run_object):
            self._changes.edited_runs.add(run.key)
            self._changes.reconsider_all()  # a running Run may end sooner now
            self._indexes.promise_index.invalidate_feasibility(run)
            self._relations.run_graph.remove_follower(run)
        run.apply_edit(run_object)
        self._relations.update(run)
        self._indexes.edit(run)
        self._refused_runs.forget(run)

    def drop(self, key: RunKey) -> None:
        """Removes a deleted Run; one with leases or a promise is cancelled, and the next plan ends it."""
        run = self._runs.get(key)
        if run is None:
            return
        for child in self._relations.run_graph.children(run):
            self.drop(child.key)
        if run.leases or run.promise is not None:
            run.cancel()
            self._changes.runs_to_check.add(key)
            self._indexes.run_queue.update(run)
            return
        self._indexes.run_queue.remove(run)
        self._relations.recheck_dependents(key)
        self._relations.run_graph.forget(run)
        del self._runs[key]
        self._indexes.forget(run)
        successor = self._successors.pop(key, None)
        if successor is not None:
            self.put(successor)
