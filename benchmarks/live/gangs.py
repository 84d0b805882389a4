"""Measures gangs per second, from the first submit to the last bound pod, with all gangs submitted at once.

A pod of Jobtree is bound when it is created, because it names its node. Pods are counted by a watch; the
writes of each client are counted afterwards.
"""

import time
from collections import Counter
from collections.abc import Sequence

import msgspec

from benchmarks.live.arrivals import BOUND, arrivals
from benchmarks.live.cluster import GPUS, Cluster, run_manifest
from benchmarks.live.usage import of_jobtree, usage_of, writes_by_kind
from jobtree.kube.http import api_requests
from jobtree.kube.http.api_resources import PODS, RUNS

BOUND_SECONDS = 600.0
LOOK_SECONDS = 0.01


class GangFigures(msgspec.Struct, frozen=True):
    """The measurements of some gangs."""

    gangs: int
    pods: int
    seconds: float
    writes: dict[str, int]  # until all pods were bound
    decider_cpu_seconds: float = 0.0  # of the manager, or of kube-scheduler
    server_cpu_seconds: float = 0.0

    @property
    def gangs_per_second(self) -> float:
        return self.gangs / self.seconds

    @property
    def pods_per_second(self) -> float:
        return self.pods / self.seconds

    @property
    def cpu_ms_per_gang(self) -> float:
        """The CPU time of the manager and the server, without the client and the nodes."""
        return 1000 * (self.decider_cpu_seconds + self.server_cpu_seconds) / self.gangs

    @property
    def writes_per_gang(self) -> float:
        return sum(self.writes.values()) / self.gangs


def joined(rounds: Sequence[GangFigures]) -> GangFigures:
    """Returns the sum of all rounds."""
    return GangFigures(
        sum(figures.gangs for figures in rounds),
        sum(figures.pods for figures in rounds),
        sum(figures.seconds for figures in rounds),
        dict(sum((Counter(figures.writes) for figures in rounds), Counter())),
        sum(figures.decider_cpu_seconds for figures in rounds),
        sum(figures.server_cpu_seconds for figures in rounds),
    )


async def measure_gangs(cluster: Cluster, owner: str, gpus: int, gangs: int) -> GangFigures:
    """Measures ``gangs`` gangs under Jobtree. No manager leads before or after."""
    async with cluster.managed() as manager:
        for number in (1, gangs):  # the first round opens connections and fills caches
            namespace = await cluster.add_namespace()
            await cluster.rest()
            used, served = usage_of(manager.process.pid), cluster.server_usage()
            seconds, writes = await bind_gangs(cluster, namespace, owner, gpus, number)
            manager_cpu = usage_of(manager.process.pid).since(used)
            server_cpu = cluster.server_usage().since(served)
            await cluster.clean(namespace)
    await cluster.forget_leases()
    return GangFigures(gangs, gangs * gpus // GPUS, seconds, writes, manager_cpu, server_cpu)


async def bind_gangs(
    cluster: Cluster, namespace: str, owner: str, gpus: int, gangs: int
) -> tuple[float, dict[str, int]]:
    """Submits the gangs; returns the seconds until all pods were bound, and the writes."""
    client, pods = cluster.client, gangs * gpus // GPUS
    submits = [
        api_requests.create(RUNS, run_manifest(f"gang-{number}", namespace, owner, gpus))
        for number in range(gangs)
    ]
    before = await writes_by_kind(client)
    async with arrivals(client, PODS, namespace, BOUND) as made:

        async def bound() -> bool:
            return len(made) >= pods

        begun = time.perf_counter()
        await client.write_all(submits)
        await cluster.until(bound, f"{pods} pods are bound", BOUND_SECONDS, LOOK_SECONDS)
        seconds = time.perf_counter() - begun
    writes = of_jobtree(await writes_by_kind(client) - before)
    return seconds, dict(writes)
