"""The manager at full size: 100,000 GPUs and 20,000 pods. What it uses, how it starts, how it is replaced."""

import asyncio
import time
from itertools import count

import msgspec

from benchmarks.live.arrivals import arrivals
from benchmarks.live.cluster import GPUS, Cluster, run_manifest
from benchmarks.live.usage import usage_of
from jobtree.kube.http import api_requests
from jobtree.kube.http.api_resources import PODS, RUNS
from tests.live.manager.manager_process import Manager

GANG_PODS = 128
POD_GPUS = 4
FILL_SECONDS = 1_800.0
DECIDE_SECONDS = 300.0
LOOK_SECONDS = 3.0
LITTLE_CPU_SECONDS = 0.3


class Size(msgspec.Struct, frozen=True):
    pods: int
    fill_seconds: float
    fill_cpu_seconds: float
    rest_cpu_percent: float
    resident_mib: float
    peak_mib: float
    read_seconds: float  # from the start of a process to the world it plans on
    first_plan_seconds: float  # to the first pod that its first plan asks for
    start_peak_mib: float
    takeover_seconds: float  # from SIGKILL of the leader to a pod that the standby made


async def measure_size(cluster: Cluster, owner: str, pods: int, rest_seconds: float) -> Size:
    filled, cpu = 0.0, 0.0
    namespace, lone = await cluster.add_namespace(), _Lone(cluster, owner, await cluster.add_namespace())
    with cluster.start_manager() as manager:
        await cluster.leads(manager)
        used, begun = usage_of(manager.process.pid), time.perf_counter()
        await _fill(cluster, owner, namespace, pods)
        filled, cpu = time.perf_counter() - begun, usage_of(manager.process.pid).since(used)
        resting = usage_of(manager.process.pid)
        await asyncio.sleep(rest_seconds)
        rest = usage_of(manager.process.pid)
    percent = 100 * rest.since(resting) / rest_seconds
    read, first, started = await _start(cluster, lone)
    return Size(
        pods,
        filled,
        cpu,
        percent,
        rest.resident_mib,
        rest.peak_mib,
        read,
        first,
        usage_of(started.process.pid).peak_mib,
        await _take_over(cluster, lone, started),
    )


async def _fill(cluster: Cluster, owner: str, namespace: str, pods: int) -> None:
    """Gangs of 128 pods with 4 GPUs each, until there are so many pods."""
    sizes = [GANG_PODS] * (pods // GANG_PODS) + ([pods % GANG_PODS] if pods % GANG_PODS else [])
    submits = [
        api_requests.create(
            RUNS,
            run_manifest(
                f"gang-{number}", namespace, owner, size * POD_GPUS, resources={"gpusPerPod": POD_GPUS}
            ),
        )
        for number, size in enumerate(sizes)
    ]
    async with arrivals(cluster.client, PODS, namespace) as made:

        async def full() -> bool:
            return len(made) >= pods

        await cluster.client.write_all(submits)
        await cluster.client.until(full, f"{pods} pods are bound", FILL_SECONDS)


class _Lone:
    """Small gangs, one after another, each to see whether somebody decides."""

    def __init__(self, cluster: Cluster, owner: str, namespace: str) -> None:
        self._cluster = cluster
        self._owner = owner
        self._namespace = namespace
        self._numbers = count(1)

    async def submit(self) -> None:
        run = run_manifest(f"lone-{next(self._numbers)}", self._namespace, self._owner, GPUS)
        await self._cluster.client.write(api_requests.create(RUNS, run))

    async def bound(self, pods: int) -> None:
        async def there() -> bool:
            return await self._cluster.client.count(PODS, self._namespace) >= pods

        await self._cluster.client.until(there, "a lone gang is bound", DECIDE_SECONDS)


async def _start(cluster: Cluster, lone: _Lone) -> tuple[float, float, Manager]:
    """A Run waits while nobody leads: how long until a new process has read everything, and decides."""
    await lone.submit()
    begun = time.perf_counter()
    manager = cluster.start_manager()
    await cluster.leads(manager)
    read = time.perf_counter() - begun
    await lone.bound(1)
    return read, time.perf_counter() - begun, manager


async def _take_over(cluster: Cluster, lone: _Lone, leader: Manager) -> float:
    with cluster.start_manager() as standby:
        await cluster.client.until(lambda: _is_idle(standby), "the standby has read everything", FILL_SECONDS)
        begun = time.perf_counter()
        leader.kill()
        await lone.submit()
        await lone.bound(2)
        return time.perf_counter() - begun


async def _is_idle(manager: Manager) -> bool:
    """A standby says nothing: it has read the cluster when it has stopped working."""
    before = usage_of(manager.process.pid)
    await asyncio.sleep(LOOK_SECONDS)
    return usage_of(manager.process.pid).since(before) < LITTLE_CPU_SECONDS
