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
from tests.live.definitions import address, apply_definitions, await_definitions, collection
from tests.live.manifests import API_VERSION, Manifest
from tests.live.process import wait_until

REPOSITORY = Path(__file__).parents[2]
BASE = REPOSITORY / "deploy" / "kustomize" / "base"
NAMESPACE = "jobtree-system"
ACCOUNT = "jobtree-controller-manager"


def install(plane: ControlPlane) -> Path:
    """The kinds, the service account and its rights; a kubeconfig for that account."""
    apply_definitions(plane)
    await_definitions(plane)
    plane.kubectl("apply", "-k", str(BASE))
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


def await_account(plane: ControlPlane, namespace: str = "default") -> None:
    """Pods can be made once the controllers have given the namespace its default account."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    wait_until(lambda: plane.rest.get(path).accepted, f"{namespace} has its default account")


class Manager:
    """A running manager. Ends with the test, if it has not ended before."""

    def __init__(self, plane: ControlPlane, kubeconfig: Path, *flags: str, name: str = "manager") -> None:
        self.plane = plane
        self.log = plane.directory / f"{name}-{time.monotonic_ns()}.log"
        command = [
            sys.executable,
            "-m",
            "jobtree.manager",
            f"--kubeconfig={kubeconfig}",
            f"--namespace={NAMESPACE}",
            "--health-address=",
            "--check-seconds=0",
            *flags,
        ]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
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


class Desk:
    """What a user and an administrator do and see."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane

    def create(self, *manifests: Manifest) -> None:
        for manifest in manifests:
            answer = self.plane.rest.post(collection(manifest), manifest)
            assert answer.accepted, answer.message

    def delete(self, manifest: Manifest) -> None:
        answer = self.plane.rest.delete(address(manifest))
        assert answer.accepted, answer.message

    def run(self, name: str, namespace: str = "default") -> dict[str, Any]:
        body: dict[str, Any] = self.plane.rest.get(
            f"/apis/{API_VERSION}/namespaces/{namespace}/runs/{name}"
        ).body
        return body

    def phase(self, name: str, namespace: str = "default") -> str:
        return str(self.run(name, namespace).get("status", {}).get("phase", ""))

    def await_phase(self, phase: str, *names: str, namespace: str = "default", within: float = 30) -> None:
        wait_until(
            lambda: all(self.phase(name, namespace) == phase for name in names),
            f"{', '.join(names)} {phase}",
            within,
        )

    def items(self, path: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.plane.rest.get(path).body["items"]
        return items

    def leases(self, run: str) -> list[dict[str, Any]]:
        return [
            lease
            for lease in self.items(f"/apis/{API_VERSION}/gpuleases")
            if lease["spec"]["runRef"]["name"] == run
        ]

    def reservations(self, namespace: str = "default") -> list[dict[str, Any]]:
        return self.items(f"/apis/{API_VERSION}/namespaces/{namespace}/reservations")

    def pods(self, run: str, namespace: str = "default") -> list[dict[str, Any]]:
        label = f"rq.davidlangworthy.io%2Frun%3D{run}"
        return self.items(f"/api/v1/namespaces/{namespace}/pods?labelSelector={label}")

    def await_pods(self, run: str, count: int, phase: str = "Running", namespace: str = "default") -> None:
        def there() -> bool:
            pods = self.pods(run, namespace)
            return len(pods) == count and all(pod.get("status", {}).get("phase") == phase for pod in pods)

        wait_until(there, f"{count} pods of {run} {phase}")
