"""Measures a day of a simulated cluster, on which Runs arrive evenly and the fleet fills up."""

from random import Random

import msgspec

from benchmarks.fixtures import EPOCH, budgets, nodes
from benchmarks.sampling import settle_memory, timed
from benchmarks.scale import Scale
from benchmarks.workload import Workload
from jobtree.api.documents.document_stream import Document
from jobtree.api.schema.quantities import HOUR
from jobtree.api.validation.object_parser import to_document
from jobtree.simulation.cluster.simulated_cluster import SimulatedCluster
from jobtree.simulation.cluster.simulated_work import DURATION

DAY = 24 * HOUR
MINUTES = (60, 120, 240, 480, 960, 1_800)  # of work; on average ten hours


class Day(msgspec.Struct, frozen=True):
    ns: int
    started: int
    waiting: int  # in the end


def measure_day(scale: Scale, arrivals: int) -> Day:
    cluster = SimulatedCluster(EPOCH, checked=False)
    cluster.load(Document("fleet", body) for body in (*nodes(scale), *budgets(scale)))
    workload, random = Workload(scale, "day"), Random(6)
    settle_memory()

    def pass_day() -> None:
        for number in range(arrivals):
            cluster.advance(EPOCH + number * DAY // arrivals)
            body = to_document(workload.draw(cluster.now))
            body["metadata"]["annotations"] = {DURATION: f"{random.choice(MINUTES)}m"}
            cluster.submit([Document("arrival", body)])
        cluster.advance(EPOCH + DAY)

    _, ns = timed(pass_day)
    runs = cluster.world.runs.values()
    return Day(ns, sum(state.attempt > 0 for state in runs), sum(state.waiting for state in runs))
