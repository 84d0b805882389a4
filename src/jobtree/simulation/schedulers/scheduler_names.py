"""The schedulers by the names that people type."""

from collections.abc import Mapping
from types import MappingProxyType

from jobtree.simulation.replay.engine import Simulation
from jobtree.simulation.schedulers.backfill import Conservative, Easy
from jobtree.simulation.schedulers.jobtree_scheduler import JobtreeScheduler
from jobtree.simulation.schedulers.quota import QuotaBySize, QuotaScheduler
from jobtree.simulation.schedulers.strict_order import Fifo, ShortestFirst

POLICIES: Mapping[str, type[Simulation]] = MappingProxyType(
    {
        "jobtree": JobtreeScheduler,
        "fifo": Fifo,
        "sjf": ShortestFirst,
        "easy": Easy,
        "conservative": Conservative,
        "quota": QuotaScheduler,
        "quota-by-size": QuotaBySize,
    }
)
