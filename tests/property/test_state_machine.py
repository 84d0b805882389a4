"""A cluster as a state machine: all invariants hold after whatever users and nodes do next.

Hypothesis chooses each step knowing the earlier ones, and shortens a history that fails.
"""

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.property.examples import examples
from tests.property.history_player import HistoryPlayer
from tests.property.invariants import InvariantChecker
from tests.property.random_histories import SEEDS, RandomHistory, Step


class RandomCluster(RuleBasedStateMachine):
    """Each rule is a kind of step of a random history; its seed decides the details."""

    def __init__(self) -> None:
        super().__init__()
        self.player = HistoryPlayer(RandomHistory(0, []))
        self.checker = InvariantChecker()

    @initialize(seed=SEEDS)
    def create(self, seed: int) -> None:
        self.player = HistoryPlayer(RandomHistory(seed, []))
        self.player.plan()

    def take(self, kind: str, seed: int) -> None:
        self.player.take(Step(kind, seed))

    @rule(seed=SEEDS)
    def submit(self, seed: int) -> None:
        self.take("submit", seed)

    @rule(seed=SEEDS)
    def advance(self, seed: int) -> None:
        self.take("advance", seed)

    @rule(seed=SEEDS)
    def finish(self, seed: int) -> None:
        self.take("finish", seed)

    @rule(seed=SEEDS)
    def cancel(self, seed: int) -> None:
        self.take("cancel", seed)

    @rule(seed=SEEDS)
    def edit_budget(self, seed: int) -> None:
        self.take("edit", seed)

    @rule(seed=SEEDS)
    def fail_node(self, seed: int) -> None:
        self.take("fail", seed)

    @rule(seed=SEEDS)
    def heal_node(self, seed: int) -> None:
        self.take("heal", seed)

    @invariant()
    def all_invariants_hold(self) -> None:
        self.checker(self.player)


TestRandomCluster = RandomCluster.TestCase
TestRandomCluster.settings = settings(examples(100), stateful_step_count=25)
