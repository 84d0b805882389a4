"""Fleets of fake nodes: thousands of them, played by kwok, on which pods run that are not there.

::

    with ControlPlane() as plane:
        fleet = plane.kwok()
        fleet.add_nodes("us-west/gpu-a/nv-a", 16)

The nodes carry the labels by which Jobtree knows a domain and a flavor. Unless asked for, they have no node
leases, which at this scale would be most of the traffic, and they never change by themselves: ``fail`` makes
one NotReady and cuts it off, as if its machine had lost power; ``mend`` brings it back. What a pod does is up
to the annotations of ``kwok_stages``; ``finish`` and ``crash`` end one that is running.
"""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tests.live.kwok_stages import FAILS_AFTER, RUNS_FOR, kwok_configuration
from tests.live.manifests import FLAVOR, Manifest

if TYPE_CHECKING:
    from tests.live.control_plane import ControlPlane

KWOK_LABEL = "kwok.x-k8s.io/node"
NODES = "/api/v1/nodes"


class Fleet:
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
        """Adds ``count`` nodes to ``region/cluster/fabric``, named PREFIX-01 and so on; returns the names.

        The prefix is the domain's last part unless given; further nodes with the same one are numbered on.
        """
        region, cluster, fabric = domain.split("/")
        prefix = prefix or fabric
        names = [f"{prefix}-{self._numbers[prefix] + i:02}" for i in range(1, count + 1)]
        self._numbers[prefix] += count
        known = {"region": region, "cluster": cluster, "fabric.domain": fabric, "gpu.flavor": flavor}
        nodes = [_node(name, known | dict(labels or {}), gpus) for name in names]
        for answer in self._rest.post_all(NODES, nodes):
            assert answer.accepted, answer.message
        return names

    def fail(self, node: str) -> None:
        """The node is NotReady and tainted from now on, and nothing happens to its pods any more."""
        taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
        self._become(node, {KWOK_LABEL: "down"}, [taint], _ready("False", "PowerLost"))

    def mend(self, node: str) -> None:
        """The node is as good as new."""
        self._become(node, {KWOK_LABEL: "fake"}, [], _ready("True", "KwokReady"))

    def remove(self, node: str) -> None:
        """The node leaves the cluster."""
        answer = self._rest.delete(f"{NODES}/{node}")
        assert answer.accepted, answer.message

    def finish(self, namespace: str, pod: str) -> None:
        """The pod succeeds now."""
        self._annotate(namespace, pod, {RUNS_FOR: "0s"})

    def crash(self, namespace: str, pod: str) -> None:
        """The pod fails now."""
        self._annotate(namespace, pod, {FAILS_AFTER: "0s"})

    def _become(self, node: str, labels: Manifest, taints: list[Manifest], condition: Manifest) -> None:
        for path, patch in (
            (f"{NODES}/{node}", {"metadata": {"labels": labels}, "spec": {"taints": taints}}),
            (f"{NODES}/{node}/status", {"status": {"conditions": [condition]}}),
        ):
            answer = self._rest.merge(path, patch)
            assert answer.accepted, answer.message

    def _annotate(self, namespace: str, pod: str, annotations: Manifest) -> None:
        where = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        answer = self._rest.merge(where, {"metadata": {"annotations": annotations}})
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
