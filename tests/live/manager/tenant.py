"""A tenant of a cluster: what one test has to itself, so that tests can share the cluster."""

from typing import Any

from tests.live.cluster.control_plane import ControlPlane
from tests.live.cluster.server_process import WAIT_SECONDS, wait_until
from tests.live.crds.installed_crds import collection_path
from tests.live.crds.manifests import API_VERSION, Manifest
from tests.live.manager.installation import await_service_account
from tests.live.nodes.fake_fleet import FakeFleet


class Tenant:
    """A namespace, a flavor, nodes, owners and Budgets of its own. ``fleet`` is None where nodes are real."""

    def __init__(self, plane: ControlPlane, fleet: FakeFleet | None, name: str) -> None:
        self.plane = plane
        self._fleet = fleet
        self.name = name
        self.flavor = f"GPU-{name}"
        answer = plane.rest.post(
            "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        )
        assert answer.accepted, answer.message
        await_service_account(plane, name)

    @property
    def fleet(self) -> FakeFleet:
        assert self._fleet is not None, "the nodes of this tenant are real"
        return self._fleet

    # Actions of its users and administrators

    def add_nodes(self, domain: str, count: int) -> list[str]:
        """Adds fake nodes of the tenant's flavor in a domain of its own; returns their names."""
        prefix = f"{self.name}-{domain}"
        return self.fleet.add_nodes(f"r/c/{prefix}", count, flavor=self.flavor, prefix=prefix)

    def owner(self, team: str) -> str:
        return f"{self.name}:{team}"

    def create_budget(self, team: str, gpus: int, **fields: object) -> None:
        """Creates a Budget with one envelope, ``main``; ``fields`` are fields of the envelope."""
        envelopes = [{"name": "main", "flavor": self.flavor, "concurrency": gpus, **fields}]
        spec = {"owner": self.owner(team), "envelopes": envelopes}
        self.create("Budget", f"{self.name}-{team}", spec)

    def create_run(self, name: str, team: str, gpus: int, **fields: object) -> None:
        """Creates a Run of the tenant's flavor; ``fields`` are fields of its spec."""
        resources = {"gpuType": self.flavor, "totalGPUs": gpus}
        self.create("Run", name, {"owner": self.owner(team), "resources": resources, **fields})

    def create(self, kind: str, name: str, spec: Manifest) -> None:
        metadata = {"name": name} if kind == "Budget" else {"name": name, "namespace": self.name}
        manifest = {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
        answer = self.plane.rest.post(collection_path(manifest), manifest)
        assert answer.accepted, answer.message

    def cancel(self, run: str) -> None:
        answer = self.plane.rest.delete(self.run_path(run))
        assert answer.accepted, answer.message

    def finish(self, run: str) -> None:
        """Lets the running pods of a Run succeed."""
        for pod in self.running_pods(run):
            self.fleet.finish_pod(self.name, pod["metadata"]["name"])

    # The cluster as its users see it

    @property
    def runs_path(self) -> str:
        return f"/apis/{API_VERSION}/namespaces/{self.name}/runs"

    @property
    def pods_path(self) -> str:
        return f"/api/v1/namespaces/{self.name}/pods"

    def run_path(self, run: str) -> str:
        return f"{self.runs_path}/{run}"

    def status(self, run: str) -> dict[str, Any]:
        status: dict[str, Any] = self.plane.rest.get(self.run_path(run)).body.get("status", {})
        return status

    def phase(self, run: str) -> str:
        return str(self.status(run).get("phase", ""))

    def await_phase(self, phase: str, *runs: str, within: float = WAIT_SECONDS) -> None:
        description = f"{', '.join(runs)} {phase}"
        wait_until(lambda: all(self.phase(run) == phase for run in runs), description, within)

    def items(self, path: str) -> list[dict[str, Any]]:
        """The objects below a path of the API."""
        items: list[dict[str, Any]] = self.plane.rest.get(path).body["items"]
        return items

    def leases(self, run: str) -> list[dict[str, Any]]:
        leases = self.items(f"/apis/{API_VERSION}/gpuleases")
        own = [lease for lease in leases if lease["spec"]["runRef"]["namespace"] == self.name]
        return [lease for lease in own if lease["spec"]["runRef"]["name"] == run]

    def closure_reasons(self, run: str) -> list[str]:
        """Why each lease of a Run ended, or ``open``."""
        return [lease.get("status", {}).get("closureReason", "open") for lease in self.leases(run)]

    def reservations(self) -> list[dict[str, Any]]:
        return self.items(f"/apis/{API_VERSION}/namespaces/{self.name}/reservations")

    def event_reasons(self, run: str) -> list[str]:
        events = self.items(f"/api/v1/namespaces/{self.name}/events")
        return [event["reason"] for event in events if event["involvedObject"]["name"] == run]

    def pods(self, run: str) -> list[dict[str, Any]]:
        label = f"rq.davidlangworthy.io%2Frun%3D{run}"
        return self.items(f"{self.pods_path}?labelSelector={label}")

    def running_pods(self, run: str) -> list[dict[str, Any]]:
        return [pod for pod in self.pods(run) if pod.get("status", {}).get("phase") == "Running"]

    def await_running_pods(self, run: str, count: int, within: float = WAIT_SECONDS) -> None:
        wait_until(lambda: len(self.running_pods(run)) == count, f"{count} pods of {run} run", within)
