"""Thousands of fake nodes, with fake pods on them, that kwok simulates.

::

    with ControlPlane() as plane:
        fleet = plane.start_fake_fleet()
        fleet.add_nodes("us-west/gpu-a/nv-a", 16)

The nodes have the labels that Jobtree reads: domain and flavor. By default they have no node leases, which
would be most of the traffic at this scale. They never change by themselves: ``fail_node`` makes a node
NotReady and stops its pods from changing, as if its machine had lost power; ``restore_node`` ends that. The
annotations of ``kwok_stages`` say how a pod ends; ``finish_pod`` and ``crash_pod`` end one now.
"""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tests.live.crds.manifests import FLAVOR, Manifest
from tests.live.nodes.kwok_stages import FAILS_AFTER, RUNS_FOR, kwok_configuration

if TYPE_CHECKING:
    from tests.live.cluster.control_plane import ControlPlane

KWOK_LABEL = "kwok.x-k8s.io/node"
NODES = "/api/v1/nodes"


class FakeFleet:
    """The fake nodes of one control plane."""

    def __init__(self, plane: "ControlPlane", node_lease_seconds: int) -> None:
        self._rest = plane.rest
        self._numbers: Counter[str] = Counter()
        configuration = plane.directory / "kwok.yaml"
        configuration.write_text(kwok_configuration())
        plane.start(
            "kwok",
            f"--kubeconfig={plane.admin_kubeconfig}",
            f"--config={configuration}",
            f"--manage-nodes-with-label-selector={KWOK_LABEL}=fake",
            "--manage-all-nodes=false",
            f"--node-lease-duration-seconds={node_lease_seconds}",
            "--node-port=0",
            "--server-address=",
        )

    def add_nodes(
        self,
        domain: str,
        count: int,
        *,
        gpus: int = 8,
        flavor: str = FLAVOR,
        prefix: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Adds ``count`` nodes to the domain ``region/cluster/fabric``; returns their names, from PREFIX-01.

        The prefix is the last part of the domain by default. Numbers continue when a prefix is used again.
        """
        region, cluster, fabric = domain.split("/")
        prefix = prefix or fabric
        names = [f"{prefix}-{self._numbers[prefix] + i:02}" for i in range(1, count + 1)]
        self._numbers[prefix] += count
        default_labels = {"region": region, "cluster": cluster, "fabric.domain": fabric, "gpu.flavor": flavor}
        nodes = [_node(name, default_labels | dict(labels or {}), gpus) for name in names]
        for answer in self._rest.post_all(NODES, nodes):
            assert answer.accepted, answer.message
        return names

    def fail_node(self, node: str) -> None:
        """Makes a node NotReady and tainted; its pods do not change any more."""
        taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
        self._patch_node(node, {KWOK_LABEL: "down"}, [taint], _ready("False", "PowerLost"))

    def restore_node(self, node: str) -> None:
        """Makes a failed node ready again; its pods continue."""
        self._patch_node(node, {KWOK_LABEL: "fake"}, [], _ready("True", "KwokReady"))

    def remove_node(self, node: str) -> None:
        """Deletes a node."""
        answer = self._rest.delete(f"{NODES}/{node}")
        assert answer.accepted, answer.message

    def finish_pod(self, namespace: str, pod: str) -> None:
        """Lets a pod succeed now."""
        self._annotate(namespace, pod, {RUNS_FOR: "0s"})

    def crash_pod(self, namespace: str, pod: str) -> None:
        """Lets a pod fail now."""
        self._annotate(namespace, pod, {FAILS_AFTER: "0s"})

    def _patch_node(self, node: str, labels: Manifest, taints: list[Manifest], condition: Manifest) -> None:
        for path, patch in (
            (f"{NODES}/{node}", {"metadata": {"labels": labels}, "spec": {"taints": taints}}),
            (f"{NODES}/{node}/status", {"status": {"conditions": [condition]}}),
        ):
            answer = self._rest.merge(path, patch)
            assert answer.accepted, answer.message

    def _annotate(self, namespace: str, pod: str, annotations: Manifest) -> None:
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        answer = self._rest.merge(path, {"metadata": {"annotations": annotations}})
        assert answer.accepted, answer.message


def _node(name: str, labels: Mapping[str, str], gpus: int) -> Manifest:
    capacity = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, KWOK_LABEL: "fake", **labels},
        },
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [_ready("True", "KwokReady")],
        },
    }


def _ready(status: str, reason: str) -> Manifest:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "type": "Ready",
        "status": status,
        "reason": reason,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
