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
from jobtree.core.runs.rank_assignment import reseat
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.upstream_runs import upstreams

if TYPE_CHECKING:
    from jobtree.core.world.world import World


class Roster:
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
            state = self._welcome(key, run)
        else:
            self._amend(state, run)
        if state.cancelled:
            world.attention.add(key)
        world.alarms.watch_run(state)
        world.line.place(state)
        return state

    def _welcome(self, key: RunKey, run: Run) -> RunState:
        world = self._world
        world.strangers.know_run(run.metadata.uid, run.metadata.namespace)
        state = world.runs[key] = RunState(run, world.now)
        state.spent = world.holdings.take_spent(state.uid)
        carried_usage.take_in_run(world.ledger, state)
        self._join_tree(state)
        world.intake.take_orphans(state)
        world.intake.adopt(state)
        if state.cpu_only and state.phase == "Running":
            reseat(state)
        return state

    def _amend(self, state: RunState, run: Run) -> None:
        world = self._world
        if state.run.spec != run.spec:
            world.edited.add(state.key)
            world.gain_everywhere()  # if it runs it may end sooner now
            world.promised.forget_needs(state)
            world.kin.detach(state)
        state.amend(run)
        self._join_tree(state)
        world.holdings.repost(list(state.leases))
        world.line.note_wishes(state)

    def drop(self, key: RunKey) -> None:
        """The Run's object is gone; leases it still has are closed by the next plan."""
        world = self._world
        state = world.runs.get(key)
        if state is None:
            return
        for child in world.kin.children(state):
            self.drop(child.key)
        if state.leases or state.promise is not None:
            state.cancelled = True
            world.attention.add(key)
            world.line.place(state)
            return
        world.line.leave(state)
        self.notify(key)
        world.kin.forget(state)
        del world.runs[key]
        world.experience.leave(key)
        world.alarms.watch_run(state)
        successor = self._successors.pop(key, None)
        if successor is not None:
            self.put(successor)

    def notify(self, key: RunKey) -> None:
        """A Run came, ended or went: those that wait for it or sum it up look again."""
        for other in self._world.kin.touched_by(key):
            self._world.attention.add(other.key)
            self._world.alarms.watch_run(other)

    def _join_tree(self, state: RunState) -> None:
        """Find the Run's place among others; trees, gangs and quotas change with what arrives."""
        kin = self._world.kin
        kin.add(state)
        for one in (state, *kin.below(state)):
            quotas = kin.join(one)
            if quotas != one.quotas:
                self._move_quotas(one, quotas)
            self._wait_or_queue(one)
        for member in kin.members(state):
            self._wait_or_queue(member)  # what one of a gang waits for, all wait for
        self.notify(state.key)

    def _move_quotas(self, state: RunState, quotas: tuple[Account, ...]) -> None:
        """All that the Run holds and has used counts against these quotas from now on."""
        holdings = self._world.holdings
        leases = list(state.leases.values())
        for lease in leases:
            holdings.unopen(lease.name)
        for account in state.quotas:
            account.settled -= state.spent
        state.quotas = quotas
        for account in quotas:
            account.settled += state.spent
        self._world.alarms.watch_quotas(quotas)
        for lease in leases:
            holdings.open(lease)

    def _wait_or_queue(self, state: RunState) -> None:
        """Whether a Run that has not begun waits for others first (J1)."""
        world = self._world
        if state.phase in ("Waiting", "Pending") and state.run.status.phase in (None, "Waiting"):
            state.phase = "Waiting" if any(True for _ in upstreams(world, state)) else "Pending"
        if state.phase == "Waiting" or state.shape is None:
            world.attention.add(state.key)
        world.alarms.watch_run(state)
        world.line.place(state)
