"""Checks a cluster: broken invariants, promises, and whether its pods match the leases of their Runs."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from jobtree.api.kinds.lease import Lease
from jobtree.api.kinds.reservation import Reservation
from jobtree.api.kubernetes.resource_quantities import whole
from jobtree.api.schema.gpu_resources import GPU_RESOURCES
from jobtree.api.schema.quantities import SECOND, parse_time
from jobtree.api.validation.object_parser import parse_object
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.source.session import read_cluster
from jobtree.cli.tasks.missing_pods import missing_pods, succeeded_pods
from jobtree.client.source.live_cluster import present
from jobtree.core import PastLease, check_lease_history, judge_promises, lease_from_object
from jobtree.snapshot.cluster import Cluster

NOTABLE_MS = 5 * SECOND
CLOCK = (
    "leases begin or end up to {seconds} s after the present time of this machine: its clock is slow, or "
    "that of a manager was ahead: then planning time runs at half speed until the clocks meet"
)
GpusByNode = dict[tuple[str, str], int]  # GPUs by UID of the Run and node


class Findings(NamedTuple):
    """The name and message of every problem, and how promises were kept."""

    problems: list[tuple[str, str]]
    kept: list[str]  # one sentence each for firm and conditional promises, if there were any


def audit(settings: CommandOptions) -> Findings:
    cluster = read_cluster(settings, checked=False, pods=True)
    leases = list(all_leases(cluster))
    judgement = judge_promises(cluster.world, all_reservations(cluster), leases)
    violations = [
        *cluster.violations(planned=not settings.live),
        *check_lease_history((past.lease, past.end) for past in leases),
        *judgement.violations,
    ]
    problems = [(violation.invariant, violation.message) for violation in violations]
    counts = (("firm", judgement.firm), ("conditional", judgement.conditional))
    kept = [
        f"{count.kept} of {count.kept + count.broken} {name} promises were kept"
        for name, count in counts
        if count.kept + count.broken
    ]
    if settings.live:
        problems += clock_findings(cluster.now - present())
        problems += [*mismatches(cluster), *missing_pods(cluster, succeeded_pods(settings))]
    return Findings(problems, kept)


def all_leases(cluster: Cluster) -> Iterator[PastLease]:
    for key, body in cluster.objects.of("Lease"):
        lease = parse_object(body, cluster.objects.where(key))
        assert isinstance(lease, Lease)
        end = parse_time(lease.status.end) if lease.status.end else None
        yield PastLease(lease_from_object(lease), end, lease.status.closure_reason)


def all_reservations(cluster: Cluster) -> Iterator[Reservation]:
    for key, body in cluster.objects.of("Reservation"):
        reservation = parse_object(body, cluster.objects.where(key))
        assert isinstance(reservation, Reservation)
        yield reservation


def clock_findings(ahead: int) -> Iterator[tuple[str, str]]:
    """Reports that leases lie in the future of the clock of this machine."""
    if ahead >= NOTABLE_MS:
        yield "Clock", CLOCK.format(seconds=ahead // SECOND)


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
