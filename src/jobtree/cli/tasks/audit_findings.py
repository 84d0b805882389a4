"""What an audit finds: broken invariants, and pods that hold other GPUs than their Run's leases."""

from collections.abc import Iterator
from typing import Any

from jobtree.api.kubernetes.resource_quantities import whole
from jobtree.api.schema.gpu_resources import GPU_RESOURCES
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.source.session import read_cluster
from jobtree.snapshot.cluster import Cluster

GpusByNode = dict[tuple[str, str], int]  # GPUs by UID of the Run and node


def findings(settings: CommandOptions) -> list[tuple[str, str]]:
    """Name and sentence of all that is wrong."""
    cluster = read_cluster(settings, checked=False, pods=True)
    broken = [(one.invariant, one.message) for one in cluster.violations(planned=not settings.live)]
    return [*broken, *mismatches(cluster)] if settings.live else broken


def mismatches(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Pods of a Run on a node ask for more GPUs there than its leases hold."""
    leased: GpusByNode = {}
    for held in cluster.world.posted_leases.values():
        for node, mask in held.lease.slots:
            key = (held.lease.uid, node)
            leased[key] = leased.get(key, 0) + mask.bit_count()
    used: GpusByNode = {}
    for _, body in cluster.objects.of("Pod"):
        owner = next(
            (one for one in body["metadata"].get("ownerReferences", ()) if one["kind"] == "Run"), None
        )
        leaving = "deletionTimestamp" in body["metadata"]
        if owner is not None and not leaving:
            key = (owner["uid"], body["spec"].get("nodeName", ""))
            used[key] = used.get(key, 0) + pod_gpus(body)
    names = {run.uid: "/".join(run.key) for run in cluster.world.runs.values()}
    for (uid, node), gpus in sorted(used.items()):
        have = leased.get((uid, node), 0)
        if gpus > have:
            yield (
                "Pods",
                f"pods of {names.get(uid, uid)} ask for {gpus} GPUs on {node}, where it has leases on {have}",
            )


def pod_gpus(pod: dict[str, Any]) -> int:
    containers = pod["spec"].get("containers", ())
    limits = [one.get("resources", {}).get("limits", {}) for one in containers]
    return sum(whole(limit[name]) for limit in limits for name in GPU_RESOURCES if name in limit)
