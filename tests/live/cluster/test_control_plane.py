"""The control plane of the tests: RBAC, admission, service accounts, and how its servers start and end."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.cluster import control_plane as control_plane_module
from tests.live.cluster.control_plane import ControlPlane
from tests.live.cluster.free_ports import free_port
from tests.live.cluster.server_process import Server, ServerExitedError, wait_until
from tests.shown import REPOSITORY


def test_rbac_allows_a_role_and_nothing_else(control_plane: ControlPlane) -> None:
    control_plane.kubectl("create", "clusterrole", "read", "--verb=get,list", "--resource=configmaps")
    control_plane.kubectl("create", "clusterrolebinding", "read", "--clusterrole=read", "--group=readers")
    reader = control_plane.kubeconfig("alice", "readers")

    def can_list() -> bool:  # the authorizer reads a new binding a moment later
        return control_plane.kubectl("get", "configmaps", kubeconfig=reader, check=False).returncode == 0

    wait_until(can_list, "readers may list configmaps")
    refusal = control_plane.kubectl("create", "configmap", "x", kubeconfig=reader, check=False)
    assert 'User "alice" cannot create resource "configmaps"' in refusal.stderr


def test_user_without_a_role_is_refused(control_plane: ControlPlane) -> None:
    answer = control_plane.rest_as("stranger").get("/api/v1/namespaces")
    assert answer.status == 403
    assert 'User "stranger" cannot list resource "namespaces"' in answer.message


def test_service_account_token_is_accepted(control_plane: ControlPlane) -> None:
    control_plane.kubectl("create", "serviceaccount", "robot")
    token = control_plane.kubectl("create", "token", "robot").stdout.strip()
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    answer = control_plane.rest.post("/apis/authentication.k8s.io/v1/tokenreviews", review)
    assert answer.body["status"]["user"]["username"] == "system:serviceaccount:default:robot"


POLICY = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-forbidden-configmaps}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  validations: [{expression: "object.metadata.name != 'forbidden'", message: this name is forbidden}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-forbidden-configmaps}
spec: {policyName: no-forbidden-configmaps, validationActions: [Deny]}
"""


def test_admission_policy_is_enforced(control_plane: ControlPlane) -> None:
    control_plane.kubectl("apply", "-f", "-", stdin=POLICY)

    def refused() -> bool:  # a policy takes effect a moment after it is created
        create = ("create", "configmap", "forbidden", "--dry-run=server")
        return "this name is forbidden" in control_plane.kubectl(*create, check=False).stderr

    wait_until(refused, "the policy refuses a configmap")


def test_failed_kubectl_raises_with_its_output(control_plane: ControlPlane) -> None:
    with pytest.raises(AssertionError, match="the server doesn't have a resource type"):
        control_plane.kubectl("get", "unicorns")


def test_api_server_takes_another_port_when_one_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = iter([taken.getsockname()[1], free_port()])
        monkeypatch.setattr(control_plane_module, "free_port", lambda: next(ports))
        with ControlPlane() as plane:
            assert plane.kubectl("get", "--raw", "/readyz").stdout == "ok"
            directory = plane.directory
    assert not directory.exists()


def test_control_plane_that_cannot_start_raises_and_leaves_nothing() -> None:
    plane = ControlPlane({"no-such-flag": "1"})
    with pytest.raises(ServerExitedError, match=r"(?s)kube-apiserver ended.*unknown flag: --no-such-flag"):
        plane.__enter__()
    assert not plane.directory.exists()
    assert all(server.has_ended for server in plane.servers)


def test_ended_server_raises_with_its_log(tmp_path: Path) -> None:
    server = Server([sys.executable, "-c", "print('no such flag'); exit(3)"], tmp_path / "server.log")

    def ended() -> bool:
        server.check()
        return False

    with pytest.raises(ServerExitedError, match=r"(?s)ended with 3\..*no such flag"):
        wait_until(ended, "the server ends")
    server.stop()


def test_wait_until_raises_with_the_description() -> None:
    with pytest.raises(TimeoutError, match="still not: a condition that never holds"):
        wait_until(lambda: False, "a condition that never holds", within_seconds=0.1)


START_A_SERVER = """
import sys
from pathlib import Path
from tests.live.cluster.free_ports import free_port
from tests.live.cluster.server_process import Server
server = Server([sys.executable, "-c", "import time; time.sleep(600)"], Path(sys.argv[1]))
print(server._process.pid, flush=True)
sys.stdin.read()
"""


def test_server_ends_when_the_tests_are_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", START_A_SERVER, tmp_path / "server.log"],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as tests:
        assert tests.stdout is not None
        server = int(tests.stdout.readline())
        os.kill(server, 0)
        tests.kill()
    wait_until(lambda: not _is_running(server), "the server ends")


def _is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
