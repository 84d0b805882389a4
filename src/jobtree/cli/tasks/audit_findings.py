"""Checks a cluster: broken invariants, and pods that request more GPUs than their Run's leases hold."""

from collections.abc import Iterator
from typing import Any

from jobtree.api.kubernetes.resource_quantities import whole
from jobtree.api.schema.gpu_resources import GPU_RESOURCES
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.source.session import read_cluster
from jobtree.snapshot.cluster import Cluster

GpusByNode = dict[tuple[str, str], int]  # GPUs by UID of the Run and node


def findings(settings: CommandOptions) -> list[tuple[str, str]]:
    """Returns the name and message of every problem."""
    cluster = read_cluster(settings, checked=False, pods=True)
    problems = [
        (violation.invariant, violation.message)
        for violation in cluster.violations(planned=not settings.live)
    ]
    return [*problems, *mismatches(cluster)] if settings.live else problems


def mismatches(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Reports Runs whose pods on a node request more GPUs there than the Run's leases hold."""
    leased: GpusByNode = {}
    for posted in cluster.world.posted_leases.values():
        for node, mask in posted.lease.slots:
            key = (posted.lease.uid, node)
            leased[key] = leased.get(key, 0) + mask.bit_count()
    requested: GpusByNode = {}
    for _, body in cluster.objects.of("Pod"):
        owners = body["metadata"].get("ownerReferences", ())
        owner = next((reference for reference in owners if reference["kind"] == "Run"), None)
        is_terminating = "deletionTimestamp" in body["metadata"]
        if owner is not None and not is_terminating:
            key = (owner["uid"], body["spec"].get("nodeName", ""))
            requested[key] = requested.get(key, 0) + pod_gpus(body)
    names = {run.uid: "/".join(run.key) for run in cluster.world.runs.values()}
    for (uid, node), gpus in sorted(requested.items()):
        held = leased.get((uid, node), 0)
        if gpus > held:
            yield (
                "Pods",
                f"pods of {names.get(uid, uid)} request {gpus} GPUs on {node}, where its leases hold {held}",
            )


def pod_gpus(pod: dict[str, Any]) -> int:
    containers = pod["spec"].get("containers", ())
    limits = [container.get("resources", {}).get("limits", {}) for container in containers]
    return sum(whole(limit[name]) for limit in limits for name in GPU_RESOURCES if name in limit)
