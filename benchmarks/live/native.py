"""The same gangs by kube-scheduler's own gang scheduling: a PodGroup each, and pods that name it.

It is measured twice: as it comes, when it allows itself 50 requests a second, and with that limit lifted,
since ours has none. A gang is bound when every pod has its node, which for kube-scheduler is a write per pod
after its creation.
"""

import time
from collections.abc import Iterator

from benchmarks.live.arrivals import BOUND, arrivals
from benchmarks.live.client import Document
from benchmarks.live.cluster import GATES, GPUS, Cluster, document
from benchmarks.live.gangs import BOUND_SECONDS, LOOK_SECONDS, GangFigures
from benchmarks.live.raw import Sample, bare
from benchmarks.live.usage import usage_of
from jobtree.kube.http import api_requests
from jobtree.kube.http.api_requests import Request
from jobtree.kube.http.api_resources import PODS, Resource

POD_GROUPS = Resource("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup", namespaced=True)
UNLIMITED = "100000"


async def measure_native(
    cluster: Cluster, sample: Sample, gpus: int, gangs: int, *, limited: bool
) -> GangFigures:
    """Measures ``gangs`` gangs under kube-scheduler. Neither it nor a manager runs before or after."""
    lifted = {} if limited else {"kube_api_qps": UNLIMITED, "kube_api_burst": UNLIMITED}
    scheduler = cluster.plane.start_scheduler(feature_gates=GATES, **lifted)
    try:
        for number in (1, gangs):  # the first waits until it has read the cluster
            namespace = await cluster.add_namespace()
            await cluster.rest()
            used, served = usage_of(scheduler.pid), cluster.server_usage()
            seconds = await _bind(cluster, namespace, sample, gpus, number)
            scheduler_cpu = usage_of(scheduler.pid).since(used)
            server_cpu = cluster.server_usage().since(served)
            await cluster.sweep(namespace)
            await cluster.client.clear(POD_GROUPS, namespace)
    finally:
        scheduler.stop()
        cluster.plane.servers.remove(scheduler)
    return GangFigures(gangs, gangs * gpus // GPUS, seconds, {}, scheduler_cpu, server_cpu)


async def _bind(cluster: Cluster, namespace: str, sample: Sample, gpus: int, gangs: int) -> float:
    client, size = cluster.client, gpus // GPUS
    writes = [write for number in range(gangs) for write in _gang(sample, namespace, f"gang-{number}", size)]

    async with arrivals(client, PODS, namespace, BOUND) as made:

        async def bound() -> bool:
            return len(made) >= gangs * size

        begun = time.perf_counter()
        await client.write_all(writes)
        await client.until(
            bound, f"{gangs * size} pods are bound by kube-scheduler", BOUND_SECONDS, LOOK_SECONDS
        )
        return time.perf_counter() - begun


def _gang(sample: Sample, namespace: str, name: str, size: int) -> Iterator[Request]:
    policy = {"schedulingPolicy": {"gang": {"minCount": size}}}
    yield api_requests.create(POD_GROUPS, document(POD_GROUPS, name, namespace, spec=policy))
    for rank in range(size):
        yield api_requests.create(PODS, _pod(sample, namespace, name, rank))


def _pod(sample: Sample, namespace: str, gang: str, rank: int) -> Document:
    pod = bare(sample.pod)
    pod["metadata"] = {"name": f"{gang}-{rank}", "namespace": namespace}
    pod["spec"] |= {"schedulingGroup": {"podGroupName": gang}}
    del pod["spec"]["nodeName"]
    return pod
