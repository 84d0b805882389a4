"""The test cluster is a real one: certificates, RBAC, admission policies and service accounts at work."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live import control_plane as control_plane_module
from tests.live.control_plane import ControlPlane
from tests.live.ports import free_port
from tests.live.process import Server, ServerExitedError, wait_until


def test_readers_may_read_and_no_more(control_plane: ControlPlane) -> None:
    control_plane.kubectl("create", "clusterrole", "read", "--verb=get,list", "--resource=configmaps")
    control_plane.kubectl("create", "clusterrolebinding", "read", "--clusterrole=read", "--group=readers")
    reader = control_plane.kubeconfig("alice", "readers")

    def may_list() -> bool:  # the authorizer learns of a binding a moment after it is made
        return control_plane.kubectl("get", "configmaps", kubeconfig=reader, check=False).returncode == 0

    wait_until(may_list, "readers may list configmaps")
    refused = control_plane.kubectl("create", "configmap", "x", kubeconfig=reader, check=False)
    assert 'User "alice" cannot create resource "configmaps"' in refused.stderr


def test_a_user_without_a_role_may_do_nothing(control_plane: ControlPlane) -> None:
    answer = control_plane.rest_as("mallory").get("/api/v1/namespaces")
    assert answer.status == 403
    assert 'User "mallory" cannot list resource "namespaces"' in answer.message


def test_a_service_account_gets_a_token_that_the_server_believes(control_plane: ControlPlane) -> None:
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


def test_admission_policies_are_enforced(control_plane: ControlPlane) -> None:
    control_plane.kubectl("apply", "-f", "-", stdin=POLICY)

    def refused() -> bool:  # a policy takes effect a moment after it is made
        create = ("create", "configmap", "forbidden", "--dry-run=server")
        return "this name is forbidden" in control_plane.kubectl(*create, check=False).stderr

    wait_until(refused, "the policy refuses a configmap")


def test_a_failed_kubectl_shows_what_it_said(control_plane: ControlPlane) -> None:
    with pytest.raises(AssertionError, match="the server doesn't have a resource type"):
        control_plane.kubectl("get", "unicorns")


def test_a_port_that_is_taken_is_not_insisted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = iter([taken.getsockname()[1], free_port()])
        monkeypatch.setattr(control_plane_module, "free_port", lambda: next(ports))
        with ControlPlane() as plane:
            assert plane.kubectl("get", "--raw", "/readyz").stdout == "ok"
            directory = plane.directory
    assert not directory.exists()


def test_a_control_plane_that_does_not_start_says_why_and_leaves_nothing() -> None:
    plane = ControlPlane({"no-such-flag": "1"})
    with pytest.raises(ServerExitedError, match=r"(?s)kube-apiserver ended.*unknown flag: --no-such-flag"):
        plane.__enter__()
    assert not plane.directory.exists()
    assert all(server.has_ended for server in plane.servers)


def test_a_server_that_ends_is_reported_with_its_log(tmp_path: Path) -> None:
    server = Server([sys.executable, "-c", "print('no such flag'); exit(3)"], tmp_path / "server.log")

    def ended() -> bool:
        server.check()
        return False

    with pytest.raises(ServerExitedError, match=r"(?s)ended with 3\..*no such flag"):
        wait_until(ended, "the server ends")
    server.stop()


def test_a_condition_that_never_holds_is_given_up_with_its_name() -> None:
    with pytest.raises(TimeoutError, match="still not: pigs fly"):
        wait_until(lambda: False, "pigs fly", within_seconds=0.1)


START_A_SERVER = """
import sys
from pathlib import Path
from tests.live.ports import free_port
from tests.live.process import Server
server = Server([sys.executable, "-c", "import time; time.sleep(600)"], Path(sys.argv[1]))
print(server._process.pid, flush=True)
sys.stdin.read()
"""


def test_servers_end_with_tests_that_were_killed(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", START_A_SERVER, tmp_path / "server.log"],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as tests:
        assert tests.stdout is not None
        server = int(tests.stdout.readline())
        os.kill(server, 0)
        tests.kill()
    wait_until(lambda: not _is_running(server), "the orphan ends")


def _is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
