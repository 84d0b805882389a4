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
from jobtree.core.runs.rank_assignment import reassign_ranks
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.upstream_runs import upstreams

if TYPE_CHECKING:
    from jobtree.core.world.world import World


class RunLifecycle:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._successors: dict[RunKey, Run] = {}  # made anew under a name whose leases are still open

    def put(self, run: Run) -> RunState:
        world = self._world
        key = (run.metadata.namespace, run.metadata.name)
        state = world.runs.get(key)
        if state is not None and state.uid != run.metadata.uid:
            self.drop(key)
            if key in world.runs:  # the next plan ends the one that is gone; then this one comes
                self._successors[key] = run
                return state
            state = None
        if state is None:
            state = self._add(key, run)
        else:
            self._apply_edit(state, run)
        if state.cancelled:
            world.runs_to_check.add(key)
        world.timers.schedule_run(state)
        world.run_queue.update(state)
        return state

    def _add(self, key: RunKey, run: Run) -> RunState:
        world = self._world
        world.foreign_pods.register_run(run.metadata.uid, run.metadata.namespace)
        state = world.runs[key] = RunState(run, world.now)
        state.closed_charge = world.open_leases.pop_closed_charge(state.uid)
        carried_usage.load_run(world.budgets, state)
        self._update_relations(state)
        world.lease_intake.add_orphans(state)
        world.lease_intake.mark_running(state)
        if state.cpu_only and state.phase == "Running":
            reassign_ranks(state)
        return state

    def _apply_edit(self, state: RunState, run: Run) -> None:
        world = self._world
        if state.run.spec != run.spec:
            world.edited_runs.add(state.key)
            world.reconsider_all()  # if it runs it may end sooner now
            world.promise_index.invalidate_feasibility(state)
            world.run_graph.remove_follower(state)
        state.apply_edit(run)
        self._update_relations(state)
        world.open_leases.repost(list(state.leases))
        world.run_queue.update_growth(state)

    def drop(self, key: RunKey) -> None:
        """The Run's object is gone; leases it still has are closed by the next plan."""
        world = self._world
        state = world.runs.get(key)
        if state is None:
            return
        for child in world.run_graph.children(state):
            self.drop(child.key)
        if state.leases or state.promise is not None:
            state.cancelled = True
            world.runs_to_check.add(key)
            world.run_queue.update(state)
            return
        world.run_queue.remove(state)
        self.recheck_dependents(key)
        world.run_graph.forget(state)
        del world.runs[key]
        world.start_calibration.drop_run(key)
        world.timers.schedule_run(state)
        successor = self._successors.pop(key, None)
        if successor is not None:
            self.put(successor)

    def recheck_dependents(self, key: RunKey) -> None:
        """A Run came, ended or went: those that wait for it or sum it up look again."""
        for other in self._world.run_graph.affected_by(key):
            self._world.runs_to_check.add(other.key)
            self._world.timers.schedule_run(other)

    def _update_relations(self, state: RunState) -> None:
        """Find the Run's place among others; trees, gangs and quotas change with what arrives."""
        kin = self._world.run_graph
        kin.add(state)
        for one in (state, *kin.descendants(state)):
            quotas = kin.update_gang_and_quotas(one)
            if quotas != one.quotas:
                self._repost_under_quotas(one, quotas)
            self._set_waiting_or_pending(one)
        for member in kin.members(state):
            self._set_waiting_or_pending(member)  # what one of a gang waits for, all wait for
        self.recheck_dependents(state.key)

    def _repost_under_quotas(self, state: RunState, quotas: tuple[Account, ...]) -> None:
        """All that the Run holds and has used counts against these quotas from now on."""
        holdings = self._world.open_leases
        leases = list(state.leases.values())
        for lease in leases:
            holdings.undo_open(lease.name)
        for account in state.quotas:
            account.closed_usage -= state.closed_charge
        state.quotas = quotas
        for account in quotas:
            account.closed_usage += state.closed_charge
        self._world.timers.schedule_quotas(quotas)
        for lease in leases:
            holdings.open(lease)

    def _set_waiting_or_pending(self, state: RunState) -> None:
        """Whether a Run that has not begun waits for others first (J1)."""
        world = self._world
        if state.phase in ("Waiting", "Pending") and state.run.status.phase in (None, "Waiting"):
            state.phase = "Waiting" if any(True for _ in upstreams(world, state)) else "Pending"
        if state.phase == "Waiting" or state.shape is None:
            world.runs_to_check.add(state.key)
        world.timers.schedule_run(state)
        world.run_queue.update(state)
