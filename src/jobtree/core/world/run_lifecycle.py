"""The roster: Runs come, change and go, whatever order objects arrive in.

A Run that comes finds what came before it: the leases that it holds, what closed ones used, its place in a
tree or a gang. With it trees, gangs and quotas change, and who waits for whom. A Run that is gone while it
holds leases or a promise stays until a plan has ended them; one that is made anew under its name comes then.
"""

from typing import TYPE_CHECKING

from jobtree.api.kinds.run import Run
from jobtree.core.accounts.envelope_accounts import Account
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.runs import carried_usage
from jobtree.core.runs.planning_inputs import is_planned_alike
from jobtree.core.runs.rank_assignment import reassign_ranks
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.upstream_runs import upstreams

if TYPE_CHECKING:
    from jobtree.core.world.world import World


class RunLifecycle:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._successors: dict[RunKey, Run] = {}  # made anew under a name whose leases are still open

    def put(self, run_object: Run) -> RunState:
        world = self._world
        key = (run_object.metadata.namespace, run_object.metadata.name)
        run = world.runs.get(key)
        if run is not None and run.uid != run_object.metadata.uid:
            self.drop(key)
            if key in world.runs:  # the next plan ends the one that is gone; then this one comes
                self._successors[key] = run_object
                return run
            run = None
        if run is None:
            run = self._add(key, run_object)
        else:
            self._apply_edit(run, run_object)
        if run.cancelled:
            world.runs_to_check.add(key)
        world.timers.schedule_run(run)
        world.run_queue.update(run)
        return run

    def _add(self, key: RunKey, run_object: Run) -> RunState:
        world = self._world
        world.foreign_pods.register_run(run_object.metadata.uid, run_object.metadata.namespace)
        run = world.runs[key] = RunState(run_object, world.now)
        run.usage.add_closed_charge(world.open_leases.pop_closed_charge(run.uid))
        carried_usage.load_run(world.budgets, run)
        self._update_relations(run)
        world.lease_intake.add_orphans(run)
        world.lease_intake.mark_running(run)
        if run.cpu_only and run.phase == "Running":
            reassign_ranks(run)
        return run

    def _apply_edit(self, run: RunState, run_object: Run) -> None:
        world = self._world
        if not is_planned_alike(run.run_object, run_object):
            world.edited_runs.add(run.key)
            world.reconsider_all()  # if it runs it may end sooner now
            world.promise_index.invalidate_feasibility(run)
            world.run_graph.remove_follower(run)
        run.apply_edit(run_object)
        self._update_relations(run)
        world.open_leases.repost(list(run.leases))
        world.run_queue.update_growth(run)

    def drop(self, key: RunKey) -> None:
        """The Run's object is gone; leases it still has are closed by the next plan."""
        world = self._world
        run = world.runs.get(key)
        if run is None:
            return
        for child in world.run_graph.children(run):
            self.drop(child.key)
        if run.leases or run.promise is not None:
            run.cancel()
            world.runs_to_check.add(key)
            world.run_queue.update(run)
            return
        world.run_queue.remove(run)
        self.recheck_dependents(key)
        world.run_graph.forget(run)
        del world.runs[key]
        world.start_calibration.drop_run(key)
        world.timers.schedule_run(run)
        successor = self._successors.pop(key, None)
        if successor is not None:
            self.put(successor)

    def recheck_dependents(self, key: RunKey) -> None:
        """A Run came, ended or went: those that wait for it or sum it up look again."""
        for other in self._world.run_graph.affected_by(key):
            self._world.runs_to_check.add(other.key)
            self._world.timers.schedule_run(other)

    def _update_relations(self, run: RunState) -> None:
        """Find the Run's place among others; trees, gangs and quotas change with what arrives."""
        kin = self._world.run_graph
        kin.add(run)
        for one in (run, *kin.descendants(run)):
            quotas = kin.update_gang_and_quotas(one)
            if quotas != one.quotas:
                self._repost_under_quotas(one, quotas)
            self._set_waiting_or_pending(one)
        for member in kin.members(run):
            self._set_waiting_or_pending(member)  # what one of a gang waits for, all wait for
        self.recheck_dependents(run.key)

    def _repost_under_quotas(self, run: RunState, quotas: tuple[Account, ...]) -> None:
        """All that the Run holds and has used counts against these quotas from now on."""
        holdings = self._world.open_leases
        leases = list(run.leases.values())
        for lease in leases:
            holdings.undo_open(lease.name)
        run.change_quotas(quotas)
        self._world.timers.schedule_quotas(quotas)
        for lease in leases:
            holdings.open(lease)

    def _set_waiting_or_pending(self, run: RunState) -> None:
        """Whether a Run that has not begun waits for others first (J1)."""
        world = self._world
        if run.phase in ("Waiting", "Pending") and run.run_object.status.phase in (None, "Waiting"):
            run.set_waiting(waiting=any(True for _ in upstreams(world, run)))
        if run.phase == "Waiting" or run.shape is None:
            world.runs_to_check.add(run.key)
        world.timers.schedule_run(run)
        world.run_queue.update(run)
