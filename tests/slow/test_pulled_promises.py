"""What is promised an earlier start costs no other promise its payers (R5, R14), on crowded traces."""

from unittest.mock import patch

import pytest

from benchmarks.crowds import small
from benchmarks.kept_promises import replayed
from jobtree.core import RunKey, World
from jobtree.core.operations.promise_changes import broken_reason, payers_can_pay
from jobtree.core.operations.trial import Trial
from jobtree.core.planning import planning_pass
from jobtree.core.planning.pull_forward import pull_promises_forward


def kept_as_paid(world: World) -> set[RunKey]:
    """Returns the Runs whose promise can be kept, each payer with its share."""
    return {
        run.key
        for run in world.runs.values()
        if run.promise is not None
        and run.promise.at is not None
        and broken_reason(world, run) is None
        and payers_can_pay(world, run, run.promise)
    }


@pytest.mark.parametrize(
    "number", [9, 10]
)  # traces on which a check of one promise at a time finds too little
def test_no_promise_loses_a_payer_to_one_that_moves_earlier(number: int) -> None:
    pulls = 0

    def pull_checked(trial: Trial) -> None:
        nonlocal pulls
        if trial.world.sweep_due:
            before, checkpoint = kept_as_paid(trial.world), trial.checkpoint()
            pull_promises_forward(trial)
            assert before <= kept_as_paid(trial.world)
            pulls += trial.checkpoint() > checkpoint

    with patch.object(planning_pass, "pull_promises_forward", pull_checked):
        replayed(small(number).setup(restart_cost=0), "jobtree")
    assert pulls
