"""The inputs of a replay: jobs, fleet, budgets, user behavior and outages."""

from collections.abc import Callable
from hashlib import sha256

import msgspec

from jobtree import __version__
from jobtree.api.kinds.budget import Budget, Envelope
from jobtree.api.kinds.policy import Policy
from jobtree.api.kubernetes.node import Node
from jobtree.api.schema.problems import InputError
from jobtree.api.schema.quantities import HOUR, MILLI, parse_time
from jobtree.simulation.inputs.job_trace import Trace
from jobtree.simulation.inputs.outages import Outage
from jobtree.simulation.inputs.user_behavior import UserBehavior


class ReplaySetup(msgspec.Struct, frozen=True, eq=False):
    trace: Trace
    nodes: tuple[Node, ...]  # of one flavor, by number
    budgets: tuple[Budget, ...]
    owners: tuple[str, ...]  # of the trace's teams
    epoch: int  # the instant of the trace's zero
    behavior: UserBehavior = UserBehavior()
    outages: tuple[Outage[int], ...] = ()
    policy: Policy = Policy()

    @property
    def gpus(self) -> int:
        return sum(node.gpus for node in self.nodes)

    @property
    def flavor(self) -> str:
        return self.nodes[0].flavor

    def granted(self) -> list[int]:
        """Returns the GPUs that the budgets of each team give it at once."""
        return self._by_team(lambda envelope: envelope.concurrency)

    def unusable(self, pod_gpus: int) -> list[int]:
        """GPUs of each team's own envelopes that no pod of that size can use: a pod has one payer."""
        return self._by_team(lambda envelope: envelope.concurrency % pod_gpus)

    def granted_gpu_time(self, begin: int, end: int) -> list[int]:
        """Returns the GPU-milliseconds that the budgets of each team give it between two instants."""
        return self._by_team(lambda envelope: self._gives(envelope, begin, end))

    def _by_team(self, gives: Callable[[Envelope], int]) -> list[int]:
        """Returns the sum over all envelopes of the budgets of each team."""
        by_owner: dict[str, int] = {}
        for budget in self.budgets:
            owner, envelopes = budget.spec.owner, budget.spec.envelopes
            given = sum(gives(envelope) for envelope in envelopes if envelope.flavor == self.flavor)
            by_owner[owner] = by_owner.get(owner, 0) + given
        return [by_owner.get(owner, 0) for owner in self.owners]

    def _gives(self, envelope: Envelope, begin: int, end: int) -> int:
        """Returns the GPU-milliseconds of an envelope in its window, limited by its hours and credits."""
        if envelope.start is not None:
            begin = max(begin, parse_time(envelope.start) - self.epoch)
        if envelope.end is not None:
            end = min(end, parse_time(envelope.end) - self.epoch)
        limits = [envelope.concurrency * max(0, end - begin)]
        if envelope.max_gpu_hours is not None:
            limits.append(envelope.max_gpu_hours * HOUR)
        if envelope.max_credits is not None and (price := self.policy.price_milli(envelope.flavor)):
            limits.append(envelope.max_credits * HOUR * MILLI // price)
        return min(limits)

    def node_size(self) -> int:
        """Returns the GPUs of each node, for schedulers that need equal nodes. Raises InputError."""
        sizes = sorted({node.gpus for node in self.nodes})
        if len(sizes) > 1:
            rule = (
                f"nodes have {' and '.join(map(str, sizes))} GPUs; only --policy jobtree takes a mixed fleet"
            )
            raise InputError("fleet", [rule])
        return sizes[0]

    def digest(self, policy: str) -> str:
        """Returns a digest of the setup and of Jobtree's version; a saved replay must have the same one."""
        where = (self.nodes, self.budgets, self.owners, self.epoch, self.outages, self.policy)
        parts = (__version__, policy, self.trace.digest, self.behavior, *where)
        return sha256(repr(parts).encode()).hexdigest()
