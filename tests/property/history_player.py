"""Plays a random history on a checked cluster, step by step."""

from collections.abc import Callable, Sequence

from jobtree.api.kinds.policy import Policy
from jobtree.core.runs.run_state import RunState
from tests.property.checked_cluster import PRICED, Check, CheckedCluster, no_check
from tests.property.random_histories import (
    OWNERS,
    WAITS,
    FleetNode,
    RandomHistory,
    Step,
    random_budget,
    random_job_tree,
    random_run,
)


class HistoryPlayer(CheckedCluster):
    """The cluster of a random history. Each kind of step has a method, ``_submit`` to ``_cordon``."""

    def __init__(
        self,
        history: RandomHistory,
        *,
        fleet: Sequence[FleetNode] | None = None,
        before_plan: Check = no_check,
        after_plan: Check = no_check,
        policy: Policy = PRICED,
    ) -> None:
        super().__init__(
            fleet or history.fleet,
            history.budgets,
            before_plan=before_plan,
            after_plan=after_plan,
            policy=policy,
        )
        self.history = history

    def play(self) -> None:
        """Takes all steps; each is planned and checked."""
        self.plan()
        for step in self.history.steps:
            self.take(step)
        self.plan()

    def take(self, step: Step) -> None:
        method: Callable[[Step], None] = getattr(self, f"_{step.kind}")
        method(step)

    def _submit(self, step: Step) -> None:
        self.submit(random_run(step.dice, f"r{len(self.runs)}"))

    def _tree(self, step: Step) -> None:
        self.submit(random_job_tree(step.dice, f"t{len(self.runs)}"))

    def _advance(self, step: Step) -> None:
        self.advance(step.dice.choice(WAITS))

    def _wait(self, step: Step) -> None:
        self.advance_unplanned(step.dice.choice(WAITS))

    def _finish(self, step: Step) -> None:
        state = self._pick(step, running=True)
        if state:
            self.finish(state.key[1], succeeded=step.seed % 2 == 0)

    def _cancel(self, step: Step) -> None:
        state = self._pick(step, running=False)
        if state:
            self.cancel(state.key[1])

    def _pick(self, step: Step, *, running: bool) -> RunState | None:
        """Chooses a submitted Run, or a running one."""
        states = [self.lab.world.runs[key] for key in sorted(self.submitted)]
        choices = [state for state in states if not running or state.phase == "Running"]
        return step.dice.choice(choices) if choices else None

    def _edit(self, step: Step) -> None:
        self.put_budget(random_budget(step.dice, step.dice.choice(OWNERS)))

    def _drop(self, step: Step) -> None:
        names = sorted(self.lab.world.budgets.budgets)
        if names:
            self.drop_budget(step.dice.choice(names))

    def _fail(self, step: Step) -> None:
        self.fail_nodes(step.dice.choice(self.fleet).name)

    def _heal(self, step: Step) -> None:
        self.heal_node(step.dice.choice(self.fleet).name)

    def _blackout(self, step: Step) -> None:
        """All nodes of a domain fail at once."""
        domain = step.dice.choice(self.fleet).domain
        self.fail_nodes(*(fleet_node.name for fleet_node in self.fleet if fleet_node.domain == domain))

    def _cordon(self, step: Step) -> None:
        self.cordon_node(step.dice.choice(self.fleet).name)

    def _resize(self, step: Step) -> None:
        """A user edits the desired width of a running Run, if one is malleable."""
        state = self._pick(step, running=True)
        shape = state.shape if state is not None else None
        if state is not None and shape is not None and shape.malleable:
            steps = step.dice.randint(0, (shape.max - shape.min) // shape.step)
            self.resize(state.key[1], shape.min + shape.step * steps)

    def _crash(self, step: Step) -> None:
        self._lose_rank(step, failed=True)

    def _evict(self, step: Step) -> None:
        self._lose_rank(step, failed=False)

    def _lose_rank(self, step: Step, *, failed: bool) -> None:
        state = self._pick(step, running=True)
        if state is not None and state.rank_slots:
            self.lose_rank(state.key[1], step.dice.choice(list(state.rank_slots)), failed=failed)
