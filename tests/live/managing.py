"""The manager under test: a process of its own, with the service account that it is installed with.

It may do what ``deploy/kustomize/base`` lets it do, and nothing else.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

import yaml

from tests.live.control_plane import ControlPlane
from tests.live.definitions import apply_definitions, await_definitions, collection
from tests.live.fleet import Fleet
from tests.live.manifests import API_VERSION, Manifest
from tests.live.process import PATIENCE_SECONDS, wait_until

REPOSITORY = Path(__file__).parents[2]
BASE = REPOSITORY / "deploy" / "kustomize" / "base"
NAMESPACE = "jobtree-system"
ACCOUNT = "jobtree-controller-manager"


TEMPLATE = "defaultTemplate: {spec: {containers: [{name: main, image: train:1}]}}\n"


def install(plane: ControlPlane) -> Path:
    """The kinds, the service account and its rights; a kubeconfig for that account."""
    apply_definitions(plane)
    await_definitions(plane)
    apply_base(plane)
    set_policy(plane)
    return manager_kubeconfig(plane)


def apply_base(plane: ControlPlane) -> None:
    """The manifests without the webhook: nobody is asked.

    A Service of this cluster leads nowhere, since its nodes and their network are not real: see ``hooking``.
    """
    documents = [one for one in built(plane, BASE) if not is_webhook(one)]
    plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(documents))


def built(plane: ControlPlane, directory: Path) -> list[Manifest]:
    """What kustomize makes of a directory, without the Deployment: the manager is a process of the tests."""
    documents = yaml.safe_load_all(plane.kubectl("kustomize", str(directory)).stdout)
    return [one for one in documents if one["kind"] != "Deployment"]


def is_webhook(document: Manifest) -> bool:
    return str(document["kind"]).endswith("WebhookConfiguration")


def manager_kubeconfig(plane: ControlPlane) -> Path:
    answer = plane.rest.post(
        f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token",
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 36000},
        },
    )
    assert answer.accepted, answer.message
    config = yaml.safe_load(plane.admin_kubeconfig.read_text())
    config["users"][0]["user"] = {"token": answer.body["status"]["token"]}
    path = plane.directory / "manager.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))
    return path


def set_policy(plane: ControlPlane, text: str = "") -> None:
    """The administrator's policy, with a template for Runs that bring none."""
    policy = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "jobtree-policy", "namespace": NAMESPACE},
        "data": {"policy.yaml": text + TEMPLATE},
    }
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(policy))


def await_account(plane: ControlPlane, namespace: str = "default") -> None:
    """Pods can be made once the controllers have given the namespace its default account."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    wait_until(lambda: plane.rest.get(path).accepted, f"{namespace} has its default account")


class Manager:
    """A running manager. Ends with the test, if it has not ended before."""

    def __init__(
        self,
        plane: ControlPlane,
        kubeconfig: Path,
        *flags: str,
        name: str = "manager",
        module: str = "jobtree.manager",
    ) -> None:
        self.plane = plane
        self.log = plane.directory / f"{name}-{time.monotonic_ns()}.log"
        command = [
            sys.executable,
            "-m",
            module,
            f"--kubeconfig={kubeconfig}",
            f"--namespace={NAMESPACE}",
            "--health-address=",
            "--check-seconds=0",
            *flags,
        ]
        environment = {
            **os.environ,
            "PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}",
            "PYTHONFAULTHANDLER": "1",  # for abort
        }
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> int:
        """Ends it as Kubernetes would; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.process.returncode

    def abort(self) -> None:
        """Ends it with where it was, thread by thread, in its log."""
        self.process.send_signal(signal.SIGABRT)
        self.process.wait()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def lines(self) -> list[dict[str, Any]]:
        found = []
        for line in self.log.read_text(errors="replace").splitlines():
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                found.append({"message": line})
        return found

    def said(self, text: str) -> bool:
        return text in self.log.read_text(errors="replace")


class Scene:
    """A corner of the cluster that one test has to itself: a namespace, a flavor and teams of its own."""

    def __init__(self, plane: ControlPlane, fleet: Fleet | None, name: str) -> None:
        self.plane = plane
        self._fleet = fleet
        self.name = name
        self.flavor = f"GPU-{name}"
        answer = plane.rest.post(
            "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        )
        assert answer.accepted, answer.message
        await_account(plane, name)

    @property
    def fleet(self) -> Fleet:
        assert self._fleet is not None, "this scene has real nodes"
        return self._fleet

    # What people do

    def nodes(self, domain: str, count: int) -> list[str]:
        prefix = f"{self.name}-{domain}"
        return self.fleet.add_nodes(f"r/c/{prefix}", count, flavor=self.flavor, prefix=prefix)

    def owner(self, team: str) -> str:
        return f"{self.name}:{team}"

    def budget(self, team: str, gpus: int, **fields: object) -> None:
        envelopes = [{"name": "main", "flavor": self.flavor, "concurrency": gpus, **fields}]
        spec = {"owner": self.owner(team), "envelopes": envelopes}
        self.create("Budget", f"{self.name}-{team}", spec)

    def run(self, name: str, team: str, gpus: int, **fields: object) -> None:
        resources = {"gpuType": self.flavor, "totalGPUs": gpus}
        self.create("Run", name, {"owner": self.owner(team), "resources": resources, **fields})

    def create(self, kind: str, name: str, spec: Manifest) -> None:
        metadata = {"name": name} if kind == "Budget" else {"name": name, "namespace": self.name}
        manifest = {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
        answer = self.plane.rest.post(collection(manifest), manifest)
        assert answer.accepted, answer.message

    def cancel(self, run: str) -> None:
        answer = self.plane.rest.delete(self.path(run))
        assert answer.accepted, answer.message

    # What they see

    def path(self, run: str) -> str:
        return f"/apis/{API_VERSION}/namespaces/{self.name}/runs/{run}"

    def status(self, run: str) -> dict[str, Any]:
        status: dict[str, Any] = self.plane.rest.get(self.path(run)).body.get("status", {})
        return status

    def phase(self, run: str) -> str:
        return str(self.status(run).get("phase", ""))

    def await_phase(self, phase: str, *runs: str, within: float = PATIENCE_SECONDS) -> None:
        what = f"{', '.join(runs)} {phase}"
        wait_until(lambda: all(self.phase(run) == phase for run in runs), what, within)

    def items(self, path: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.plane.rest.get(path).body["items"]
        return items

    def leases(self, run: str) -> list[dict[str, Any]]:
        found = self.items(f"/apis/{API_VERSION}/gpuleases")
        mine = [lease for lease in found if lease["spec"]["runRef"]["namespace"] == self.name]
        return [lease for lease in mine if lease["spec"]["runRef"]["name"] == run]

    def endings(self, run: str) -> list[str]:
        return [lease.get("status", {}).get("closureReason", "open") for lease in self.leases(run)]

    def reservations(self) -> list[dict[str, Any]]:
        return self.items(f"/apis/{API_VERSION}/namespaces/{self.name}/reservations")

    def events(self, run: str) -> list[str]:
        events = self.items(f"/api/v1/namespaces/{self.name}/events")
        return [event["reason"] for event in events if event["involvedObject"]["name"] == run]

    def pods(self, run: str) -> list[dict[str, Any]]:
        label = f"rq.davidlangworthy.io%2Frun%3D{run}"
        return self.items(f"/api/v1/namespaces/{self.name}/pods?labelSelector={label}")

    def running(self, run: str) -> list[dict[str, Any]]:
        return [pod for pod in self.pods(run) if pod.get("status", {}).get("phase") == "Running"]

    def await_running(self, run: str, count: int, within: float = PATIENCE_SECONDS) -> None:
        wait_until(lambda: len(self.running(run)) == count, f"{count} pods of {run} run", within)

    def finish(self, run: str) -> None:
        for pod in self.running(run):
            self.fleet.finish(self.name, pod["metadata"]["name"])
