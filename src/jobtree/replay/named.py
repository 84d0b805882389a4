"""The schedulers by the names that people type."""

from collections.abc import Mapping
from types import MappingProxyType

from jobtree.replay.jobtree_policy import Jobtree
from jobtree.replay.policies.backfill import Conservative, Easy
from jobtree.replay.policies.quota import Quota, QuotaBySize
from jobtree.replay.policies.strict import Fifo, ShortestFirst
from jobtree.replay.simulation import Simulation

POLICIES: Mapping[str, type[Simulation]] = MappingProxyType(
    {
        "jobtree": Jobtree,
        "fifo": Fifo,
        "sjf": ShortestFirst,
        "easy": Easy,
        "conservative": Conservative,
        "quota": Quota,
        "quota-by-size": QuotaBySize,
    }
)
