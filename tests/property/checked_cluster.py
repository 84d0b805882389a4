"""A small cluster that is planned after every change, with checks before and after the plans."""

from collections.abc import Callable, Sequence

import msgspec

from jobtree.api.kinds.budget import Budget
from jobtree.api.kinds.policy import Policy
from jobtree.api.kinds.run import Run
from jobtree.api.schema.quantities import format_time
from jobtree.core.model.gpu_lease import GroupRank, RunKey
from jobtree.core.runs.run_state import RankLoss
from tests.property.ledger_oracle import LedgerOracle
from tests.property.random_histories import A100, FleetNode
from tests.unit.core.build import NAMESPACE, foreign_pod
from tests.unit.core.lab import Lab, Record

Check = Callable[["CheckedCluster"], None]


def no_check(_cluster: "CheckedCluster") -> None:
    """Checks nothing."""


PRICED = Policy(prices_milli={A100: 2500})


class CheckedCluster:
    """A Lab with a fleet, Budgets and Runs. ``submitted`` are the Runs that must not get lost (I11)."""

    def __init__(
        self,
        fleet: Sequence[FleetNode],
        budgets: Sequence[Budget],
        *,
        before_plan: Check = no_check,
        after_plan: Check = no_check,
        policy: Policy = PRICED,
    ) -> None:
        self.before_plan, self.after_plan = before_plan, after_plan
        self.lab = Lab(policy=policy)
        self.oracle = LedgerOracle(self.lab)
        self.fleet: list[FleetNode] = []
        self.runs: dict[RunKey, Run] = {}  # all Runs that were ever submitted
        self.submitted: dict[RunKey, Run] = {}  # those that were not cancelled
        self.stages: dict[RunKey, Run] = {}  # all child Runs that trees ever had
        for fleet_node in fleet:
            self._put_node(fleet_node)
        self.lab.put(*budgets)

    @property
    def now(self) -> int:
        return self.lab.world.now

    def run_of(self, key: RunKey) -> Run:
        """Returns a Run that was submitted, or the child Run of a stage."""
        return self.runs[key] if key in self.runs else self.stages[key]

    def open_records(self) -> list[Record]:
        return [record for record in self.lab.records.values() if record.end is None]

    def labels(self, node: str) -> dict[str, str]:
        """Returns the labels of a node; they never change."""
        return self._fleet_node(node).node().labels

    def story(self) -> str:
        """Returns all actions so far, for the message of a failed assertion."""
        return "\n" + "\n".join(self.lab.story)

    def plan(self) -> None:
        """Plans and applies until nothing is left to do, with the checks before and after."""
        self.before_plan(self)
        self._record_stages()
        self.lab.settle()
        self._record_stages()
        self.after_plan(self)

    def _record_stages(self) -> None:
        self.stages |= {
            key: state.run_object for key, state in self.lab.world.runs.items() if state.parent is not None
        }

    # Changes: each is planned at once

    def submit(self, *runs: Run) -> None:
        """Submits Runs that are created now."""
        for run in runs:
            metadata = msgspec.structs.replace(run.metadata, creation_timestamp=format_time(self.now))
            created = msgspec.structs.replace(run, metadata=metadata)
            key = (NAMESPACE, run.metadata.name)
            self.runs[key] = self.submitted[key] = created
            self.lab.put(created)
        self.plan()

    def advance(self, duration: int) -> None:
        """Advances the clock in one jump: what was due on the way is planned late."""
        self.advance_unplanned(duration)
        self.plan()

    def advance_unplanned(self, duration: int) -> None:
        self.lab.world.advance_clock(self.now + duration)

    def live(self, duration: int) -> None:
        """Advances the clock and plans at every instant at which something is due."""
        world, until = self.lab.world, self.now + duration
        while (due := world.timers.next_instant()) is not None and due <= until:
            world.advance_clock(due)
            self.plan()
        world.advance_clock(until)
        self.plan()

    def finish(self, name: str, *, succeeded: bool = True) -> None:
        self.lab.world.finish((NAMESPACE, name), succeeded=succeeded, at=self.now)
        self.plan()

    def cancel(self, name: str) -> None:
        """Deletes the object of a Run."""
        run = self.lab[name].run_object
        del self.submitted[NAMESPACE, name]
        metadata = msgspec.structs.replace(run.metadata, deletion_timestamp=format_time(self.now))
        self.lab.put(msgspec.structs.replace(run, metadata=metadata))
        self.plan()

    def drop_waiting(self) -> None:
        """Drops every Run that waits or has a promise, so that nothing is reserved."""
        for key, state in list(self.lab.world.runs.items()):
            if state.waiting or state.promise is not None:
                del self.submitted[key]
                self.lab.world.drop_run(key)
        self.plan()

    def put_budget(self, budget: Budget) -> None:
        """Creates or edits a Budget, after a plan: what was due before goes by the Budget as it was."""
        self.plan()
        self.lab.put(budget)
        self.oracle.record_edit()
        self.plan()

    def drop_budget(self, name: str) -> None:
        self.plan()
        self.lab.world.drop_budget(name)
        self.oracle.record_edit()
        self.plan()

    def add_node(self, fleet_node: FleetNode) -> None:
        self._put_node(fleet_node)
        self.plan()

    def _put_node(self, fleet_node: FleetNode) -> None:
        self.fleet.append(fleet_node)
        self.lab.put(fleet_node.node())
        if fleet_node.foreign_gpus:
            self.lab.put(foreign_pod(fleet_node.name, fleet_node.foreign_gpus))

    def fail_nodes(self, *names: str) -> None:
        self.lab.put(*(self._fleet_node(name).node(failed=True) for name in names))
        self.plan()

    def heal_node(self, name: str) -> None:
        self.lab.put(self._fleet_node(name).node())
        self.plan()

    def cordon_node(self, name: str) -> None:
        self.lab.put(self._fleet_node(name)._replace(cordoned=True).node())
        self.plan()

    def resize(self, name: str, desired: int) -> None:
        """Edits the desired width of a malleable Run."""
        run = self.lab[name].run_object
        assert run.spec.malleable is not None
        malleable = msgspec.structs.replace(run.spec.malleable, desired_total_gpus=desired)
        spec = msgspec.structs.replace(run.spec, malleable=malleable)
        self.lab.put(msgspec.structs.replace(run, spec=spec))
        self.plan()

    def lose_rank(self, name: str, group_rank: GroupRank, *, failed: bool) -> None:
        """A pod of a Run fails, or is evicted."""
        state = self.lab[name]
        self.lab.world.lose_rank(state.key, RankLoss(self.now, group_rank, state.attempt, failed))
        self.plan()

    def _fleet_node(self, name: str) -> FleetNode:
        return next(fleet_node for fleet_node in self.fleet if fleet_node.name == name)
