"""A cluster as a state machine: whatever people and nodes do next, all invariants hold after it.

Hypothesis chooses the next thing to happen knowing what has happened, and shortens a story that fails.
"""

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.property.drive import Drive
from tests.property.examples import examples
from tests.property.scenes import SEEDS, Scene, Step
from tests.property.test_invariants import Inspector


class SimulatedCluster(RuleBasedStateMachine):
    """Every rule is one happening of a scene; its seed says what exactly."""

    def __init__(self) -> None:
        super().__init__()
        self.drive = Drive(Scene(0, []))
        self.inspect = Inspector()

    @initialize(seed=SEEDS)
    def found(self, seed: int) -> None:
        self.drive = Drive(Scene(seed, []))
        self.drive.rest()

    def happen(self, what: str, seed: int) -> None:
        self.drive.happen(Step(what, seed))
        self.drive.rest()

    @rule(seed=SEEDS)
    def submit(self, seed: int) -> None:
        self.happen("submit", seed)

    @rule(seed=SEEDS)
    def advance(self, seed: int) -> None:
        self.happen("advance", seed)

    @rule(seed=SEEDS)
    def complete(self, seed: int) -> None:
        self.happen("finish", seed)

    @rule(seed=SEEDS)
    def cancel(self, seed: int) -> None:
        self.happen("cancel", seed)

    @rule(seed=SEEDS)
    def edit_budget(self, seed: int) -> None:
        self.happen("edit", seed)

    @rule(seed=SEEDS)
    def fail_node(self, seed: int) -> None:
        self.happen("fail", seed)

    @rule(seed=SEEDS)
    def heal_node(self, seed: int) -> None:
        self.happen("heal", seed)

    @invariant()
    def all_invariants_hold(self) -> None:
        self.inspect(self.drive)


TestSimulatedCluster = SimulatedCluster.TestCase
TestSimulatedCluster.settings = settings(examples(100), stateful_step_count=25)
