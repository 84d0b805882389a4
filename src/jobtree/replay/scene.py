"""All that a replay is given: the jobs, the fleet, the budgets, how jobs behave, which nodes fail when."""

from hashlib import sha256

import msgspec

from jobtree.api.budget import Budget
from jobtree.api.nodes import Node
from jobtree.api.policy import Policy
from jobtree.api.problems import InputError
from jobtree.replay.outages import Outage
from jobtree.replay.trace import Trace
from jobtree.replay.workload import Habits


class Scene(msgspec.Struct, frozen=True, eq=False):
    trace: Trace
    nodes: tuple[Node, ...]  # of one flavor, by number
    budgets: tuple[Budget, ...]
    owners: tuple[str, ...]  # of the trace's teams
    epoch: int  # the instant of the trace's zero
    habits: Habits = Habits()
    outages: tuple[Outage, ...] = ()
    policy: Policy = Policy()

    @property
    def gpus(self) -> int:
        return sum(node.gpus for node in self.nodes)

    @property
    def flavor(self) -> str:
        return self.nodes[0].flavor

    def granted(self) -> list[int]:
        """GPUs that each team's own budgets give it at once."""
        by_owner: dict[str, int] = {}
        for budget in self.budgets:
            for envelope in budget.spec.envelopes:
                if envelope.flavor == self.flavor:
                    owner = budget.spec.owner
                    by_owner[owner] = by_owner.get(owner, 0) + envelope.concurrency
        return [by_owner.get(owner, 0) for owner in self.owners]

    def node_size(self) -> int:
        """GPUs of a node, for schedulers that want all nodes alike. Raises InputError."""
        sizes = sorted({node.gpus for node in self.nodes})
        if len(sizes) > 1:
            rule = (
                f"nodes have {' and '.join(map(str, sizes))} GPUs; only --policy jobtree takes a mixed fleet"
            )
            raise InputError("fleet", [rule])
        return sizes[0]

    def digest(self, policy: str) -> str:
        """What a saved replay must agree with to be gone on with."""
        rest = (self.trace.digest, self.nodes, self.budgets, self.owners, self.epoch, self.habits)
        return sha256(repr((policy, *rest, self.outages, self.policy)).encode()).hexdigest()
