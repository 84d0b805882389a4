"""The shape of a published test of another scheduler: small gangs of many teams, each over in a moment.

15,000 gangs of two pods, of 30 teams, on 640 nodes in 10 racks; each ends 200 ms after it was admitted. There
the pods did not exist and their end was faked, so both are measured: with pods, which kwok ends 200 ms after
it has started them, and without. Without pods the manager is the same program with one part exchanged
(``podless``): where it would make a gang's pods, it says 200 ms later that they have succeeded. Decisions,
commits, leases, statuses and events are all written as ever.

The time is that from the first submit to the last admission. A gang has one lease: as many as came were
admitted.
"""

import time

import msgspec

from benchmarks.live.arrivals import arrivals
from benchmarks.live.client import LIST_SECONDS
from benchmarks.live.cluster import MANAGER, Cluster, run_manifest
from benchmarks.live.usage import usage_of
from jobtree.kube.http import api_requests
from jobtree.kube.http.api_resources import LEASES, RUNS
from tests.live.nodes.kwok_stages import RUNS_FOR

PODLESS = "benchmarks.live.podless"
TEAMS = 30
NODES = 640
RACK_NODES = 64
GANGS = 15_000
LASTS = "200ms"
DONE_SECONDS = 1_800.0


class Published(msgspec.Struct, frozen=True):
    gangs: int
    admitted_seconds: float
    completed_seconds: float
    manager_cpu_seconds: float
    server_cpu_seconds: float
    peak_mib: float


async def measure_published(cluster: Cluster, gangs: int, *, pods: bool) -> Published:
    owners = [await cluster.add_team(len(cluster.nodes) * 8 // TEAMS) for _ in range(TEAMS)]
    client, namespace = cluster.client, await cluster.add_namespace()
    template = {
        "metadata": {"annotations": {RUNS_FOR: LASTS}},
        "spec": {"containers": [{"name": "main", "image": "train:1"}]},
    }
    submits = [
        api_requests.create(
            RUNS,
            run_manifest(
                f"gang-{number}",
                namespace,
                owners[number % TEAMS],
                2,
                resources={"gpusPerPod": 1},
                template=template,
            ),
        )
        for number in range(gangs)
    ]

    async def completed() -> bool:
        runs = await client.items(RUNS, namespace)
        return all(run.get("status", {}).get("phase") == "Completed" for run in runs)

    async with (
        cluster.managed(MANAGER if pods else PODLESS) as manager,
        arrivals(client, LEASES) as leases,
    ):

        async def admitted() -> bool:
            return len(leases) >= gangs

        begun, served = time.perf_counter(), cluster.server_usage()
        await client.write_all(submits)
        await cluster.until(admitted, f"{gangs} gangs are admitted", DONE_SECONDS)
        seconds = time.perf_counter() - begun
        used, server = usage_of(manager.process.pid), cluster.server_usage().since(served)
        await cluster.until(completed, f"{gangs} gangs are complete", DONE_SECONDS, LIST_SECONDS)
        ended = time.perf_counter() - begun
    return Published(gangs, seconds, ended, used.cpu_seconds, server, used.peak_mib)
