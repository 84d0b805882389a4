"""The schedulers by the names that people type."""

from jobtree.replay.policies.backfill import Conservative, Easy
from jobtree.replay.policies.quota import Quota, QuotaBySize
from jobtree.replay.policies.scheduler import Scheduler
from jobtree.replay.policies.strict import Fifo, ShortestFirst

SCHEDULERS: dict[str, type[Scheduler]] = {
    "fifo": Fifo,
    "sjf": ShortestFirst,
    "easy": Easy,
    "conservative": Conservative,
    "quota": Quota,
    "quota-by-size": QuotaBySize,
}
