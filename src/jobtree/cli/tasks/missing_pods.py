"""Finds ranks of running Runs that have no pod, and spares without their standby pods.

A Run that started or changed within the last minute is left out: its pods may still be on their way. So are
ranks on a node where pods are stopping, because theirs are created when these are gone.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from jobtree.api.schema.quantities import format_slots
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.source.session import live_cluster
from jobtree.client.source.server_refusals import translated_errors
from jobtree.core import RunState, pods_of
from jobtree.kube.http.api_requests import Selector
from jobtree.kube.http.api_resources import PODS
from jobtree.kube.installation import ATTEMPT_LABEL, RANK_LABEL, UID_LABEL
from jobtree.snapshot.cluster import Cluster

STARTING_MS = 60_000
SUCCEEDED = Selector(labels=UID_LABEL, fields="status.phase=Succeeded")
MOST_NAMED = 8  # ranks in one message


def succeeded_pods(settings: CommandOptions) -> list[dict[str, Any]]:
    """Returns the pods of Runs that have succeeded, which a cluster as read does not have."""
    with translated_errors():
        return live_cluster(settings).client.list(PODS, SUCCEEDED)


class PresentPods(NamedTuple):
    """The pods of one Run that are not stopping: ranks of each attempt, and standby pods by node."""

    ranks: set[tuple[str, str]]  # attempt and rank, as their labels say
    standbys: dict[str, int]


def missing_pods(cluster: Cluster, succeeded: Iterable[dict[str, Any]] = ()) -> Iterator[tuple[str, str]]:
    """Reports ranks of running Runs that have no pod, and spare leases without their standby pods.

    ``succeeded`` are pods that have ended, which are not in the cluster as read.
    """
    stopping, pods = set(), dict[str, PresentPods]()
    for body in (*(body for _, body in cluster.objects.of("Pod")), *succeeded):
        metadata, node = body["metadata"], body["spec"].get("nodeName", "")
        if "deletionTimestamp" in metadata:
            stopping.add(node)
            continue
        owner = run_owner(body)
        if owner is not None:
            add_pod(pods.setdefault(owner, PresentPods(set(), {})), metadata.get("labels", {}), node)
    for run in sorted(cluster.world.runs.values(), key=lambda run: run.key):
        now = cluster.world.now
        if run.phase == "Running" and max(run.changed_at + STARTING_MS, run.resume_at) <= now:
            yield from missing_pods_of(run, pods.get(run.uid, PresentPods(set(), {})), stopping)


def add_pod(pods: PresentPods, labels: dict[str, str], node: str) -> None:
    if RANK_LABEL in labels:
        pods.ranks.add((labels.get(ATTEMPT_LABEL, ""), labels[RANK_LABEL]))
    else:
        pods.standbys[node] = pods.standbys.get(node, 0) + 1


def missing_pods_of(run: RunState, pods: PresentPods, stopping: set[str]) -> Iterator[tuple[str, str]]:
    name = "/".join(run.key)
    places = [
        f"{rank} ({', '.join(format_slots(node, mask)) or 'no GPUs'})"
        for rank, (node, mask) in enumerate(run.rank_slots.values())
        if (str(run.attempt), str(rank)) not in pods.ranks and node not in stopping
    ]
    if places:
        shown = ", ".join(places[:MOST_NAMED]) + (", …" if len(places) > MOST_NAMED else "")
        yield "Pods", f"ranks of {name} have no pod: {shown}"
    wanted: dict[str, int] = {}
    for lease in run.leases.values():
        for node, _ in pods_of(lease.slots, run.pod_size) if lease.role == "Spare" else ():
            wanted[node] = wanted.get(node, 0) + 1
    for node, number in sorted(wanted.items()):
        missing = number - pods.standbys.get(node, 0)
        if missing > 0 and node not in stopping:
            yield "Pods", f"{name} lacks {missing} of its standby pods on {node}"


def run_owner(pod: dict[str, Any]) -> str | None:
    """Returns the UID of the Run that owns a pod."""
    owners = pod["metadata"].get("ownerReferences", ())
    return next((reference["uid"] for reference in owners if reference["kind"] == "Run"), None)
