"""Gangs per second, from the first submit to the last pod bound, with all submitted at once.

A pod of Jobtree's is bound when it is made: it names its node. They are counted as they come; to whom the
writes belong is looked at afterwards.
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


class Seen(msgspec.Struct, frozen=True):
    gangs: int
    pods: int
    seconds: float
    writes: dict[str, int]  # until all pods were there and everything was told
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
        """Of all that works for it, without who submits and the nodes."""
        return 1000 * (self.decider_cpu_seconds + self.server_cpu_seconds) / self.gangs

    @property
    def writes_per_gang(self) -> float:
        return sum(self.writes.values()) / self.gangs


def joined(rounds: Sequence[Seen]) -> Seen:
    """All rounds as one."""
    return Seen(
        sum(one.gangs for one in rounds),
        sum(one.pods for one in rounds),
        sum(one.seconds for one in rounds),
        dict(sum((Counter(one.writes) for one in rounds), Counter())),
        sum(one.decider_cpu_seconds for one in rounds),
        sum(one.server_cpu_seconds for one in rounds),
    )


async def measure_gangs(cluster: Cluster, owner: str, gpus: int, gangs: int) -> Seen:
    """So many gangs of so many GPUs by Jobtree. No manager leads before or after."""
    async with cluster.managed() as manager:
        for number in (1, gangs):  # the first opens connections, and everything has been used once
            namespace = await cluster.add_namespace()
            await cluster.rest()
            used, served = usage_of(manager.process.pid), cluster.server_usage()
            seconds, writes = await bind_gangs(cluster, namespace, owner, gpus, number)
            manager_cpu = usage_of(manager.process.pid).since(used)
            server_cpu = cluster.server_usage().since(served)
            await cluster.clean(namespace)
    await cluster.forget_leases()
    return Seen(gangs, gangs * gpus // GPUS, seconds, writes, manager_cpu, server_cpu)


async def bind_gangs(
    cluster: Cluster, namespace: str, owner: str, gpus: int, gangs: int
) -> tuple[float, dict[str, int]]:
    """Seconds until all pods were bound, and the writes that this took."""
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
