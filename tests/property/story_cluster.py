"""A cluster for stories: explicit objects, and all properties checked around every plan."""

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec

from jobtree.api.kinds.budget import Budget
from tests.property.checked_cluster import PRICED, CheckedCluster
from tests.property.invariants import InvariantChecker, assert_no_promise_slips
from tests.property.purity import (
    NEW_NODE,
    assert_order_of_arrival_changes_nothing,
    assert_plan_changes_nothing,
    assert_world_follows_from_objects,
)
from tests.property.random_histories import FleetNode
from tests.unit.core.build import H100

SHUFFLES = 4


class StoryCluster(CheckedCluster):
    """Checks purity before and all invariants after each plan; ``calm``: also that no promise slips.

    Without ``peace`` lotteries may follow each other at once.
    """

    def __init__(
        self, fleet: Sequence[FleetNode], budgets: Sequence[Budget], *, calm: bool = False, peace: bool = True
    ) -> None:
        self._check_invariants = InvariantChecker()
        self._calm = calm
        super().__init__(
            fleet,
            budgets,
            before_plan=assert_plan_changes_nothing,
            after_plan=self._check_plan,
            policy=PRICED if peace else msgspec.structs.replace(PRICED, peace_ms=0),
        )

    def _check_plan(self, cluster: CheckedCluster) -> None:
        self._check_invariants(cluster)
        if self._calm:
            assert_no_promise_slips(cluster)

    def check_rebuilt_worlds(self, wait: int = 0) -> None:
        """Ends the story: worlds that read the objects, in any order, are like this one and plan like it.

        The clock advances by ``wait`` first, unplanned, so that the plans decide what is due by then.
        """
        assert_world_follows_from_objects(self)
        self.advance_unplanned(wait)
        assert_order_of_arrival_changes_nothing(self, *(Random(seed) for seed in range(SHUFFLES)))
        self.fleet.append(NEW_NODE)

    def actions(self, name: str) -> list[str]:
        """Returns the kinds of the actions of a Run so far, with their reasons: ``Start (Admitted)``."""
        lines = [line.partition(":")[0].split(" ", 3) for line in self.lab.story]
        return [f"{kind} {reason}" for _, kind, run, reason in lines if run == name]


def stage(name: str, gpus: int, **fields: Any) -> dict[str, Any]:  # noqa: ANN401  fields of a manifest
    """Returns a stage of a job tree, as a manifest has it."""
    return {"name": name, "resources": {"gpuType": H100, "totalGPUs": gpus}, **fields}
