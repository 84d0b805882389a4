"""Every way to show a real API server who we are."""

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from jobtree.kube.auth.cluster_access import Access, find_access, in_cluster
from jobtree.kube.auth.kubeconfig import find_kubeconfig
from jobtree.kube.http.api_errors import StatusError, UnreachableError
from jobtree.kube.http.api_requests import Request
from jobtree.kube.http.async_transport import PooledTransport
from jobtree.kube.http.blocking_client import Client
from jobtree.kube.http.blocking_transport import PlainTransport
from tests.live.control_plane import ControlPlane

WHO = Request(
    "POST",
    "/apis/authentication.k8s.io/v1/selfsubjectreviews",
    b'{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}',
)


def who(access: Access) -> dict[str, Any]:
    """Who the server takes us for; both transports must agree."""
    transport = PlainTransport(access)
    try:
        said: dict[str, Any] = Client(transport).ask(WHO)["status"]["userInfo"]
    finally:
        transport.close()
    assert asyncio.run(_who(access))["username"] == said["username"]
    return said


async def _who(access: Access) -> dict[str, Any]:
    transport = PooledTransport(access)
    try:
        said: dict[str, Any] = json.loads(await transport.send(WHO))["status"]["userInfo"]
        return said
    finally:
        await transport.close()


def config(plane: ControlPlane, path: Path, user: dict[str, Any], **cluster: Any) -> Access:  # noqa: ANN401  fields
    """Access by a kubeconfig with this user, and a cluster that differs from the real one in these fields."""
    known = {"server": plane.url, "certificate-authority-data": encoded(plane.authority.certificate)}
    named = {key.replace("_", "-"): value for key, value in cluster.items()}
    fields = {key: value for key, value in {**known, **named}.items() if value is not None}
    document = {
        "clusters": [{"name": "c", "cluster": fields}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(document))
    return find_access(kubeconfig=str(path))


def encoded(pem: str) -> str:
    return base64.b64encode(pem.encode()).decode()


@pytest.fixture(name="token", scope="module")
def _token(control_plane: ControlPlane) -> str:
    control_plane.kubectl("create", "serviceaccount", "kube-auth")
    return control_plane.kubectl("create", "token", "kube-auth").stdout.strip()


ROBOT = "system:serviceaccount:default:kube-auth"


def test_a_client_certificate(control_plane: ControlPlane) -> None:
    access = find_access(environ={"KUBECONFIG": str(control_plane.kubeconfig("alice", "team-a"))})
    said = who(access)
    assert said["username"] == "alice"
    assert "team-a" in said["groups"]


def test_a_token_and_a_server_known_by_another_name(
    control_plane: ControlPlane, token: str, tmp_path: Path
) -> None:
    access = config(
        control_plane, tmp_path / "kc", {"token": token}, tls_server_name="kubernetes.default.svc"
    )
    assert who(access)["username"] == ROBOT
    wrong = config(control_plane, tmp_path / "kc", {"token": token}, tls_server_name="other.example")
    with pytest.raises(UnreachableError, match="certificate"):
        who(wrong)


PLUGIN = """
import json, os, sys
asked = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
status = json.load(open(sys.argv[1]))
print(json.dumps({"apiVersion": asked["apiVersion"], "kind": "ExecCredential", "status": status}))
"""


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_plugin_that_gives_a_token_or_a_certificate(
    control_plane: ControlPlane, token: str, tmp_path: Path, version: str
) -> None:
    pair = control_plane.authority.client("bob")
    answers = {
        ROBOT: {"token": token},
        "bob": {"clientCertificateData": pair.public, "clientKeyData": pair.key},
    }
    for name, status in answers.items():
        (tmp_path / "status").write_text(json.dumps(status))
        plugin = {
            "apiVersion": f"client.authentication.k8s.io/{version}",
            "command": sys.executable,
            "args": ["-c", PLUGIN, str(tmp_path / "status")],
            "interactiveMode": "Never",
        }
        assert who(config(control_plane, tmp_path / "kc", {"exec": plugin}))["username"] == name


def test_a_plugin_runs_again_when_the_server_stops_believing(
    control_plane: ControlPlane, token: str, tmp_path: Path
) -> None:
    (tmp_path / "status").write_text(json.dumps({"token": "stale"}))
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": ["-c", PLUGIN, str(tmp_path / "status")],
        "interactiveMode": "Never",
    }
    access = config(control_plane, tmp_path / "kc", {"exec": plugin})
    with pytest.raises(StatusError, match="Unauthorized"):
        who(access)
    (tmp_path / "status").write_text(json.dumps({"token": token}))
    assert who(access)["username"] == ROBOT


def test_a_service_account_whose_token_is_renewed(
    control_plane: ControlPlane, token: str, tmp_path: Path
) -> None:
    (tmp_path / "ca.crt").write_text(control_plane.authority.certificate)
    (tmp_path / "token").write_text("from another life")
    host, _, port = control_plane.url.removeprefix("https://").partition(":")
    pod = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    access = in_cluster(pod, tmp_path)
    with pytest.raises(StatusError, match="Unauthorized"):
        who(access)
    (tmp_path / "token").write_text(token)
    assert who(access)["username"] == ROBOT


def test_a_server_of_another_authority_is_not_believed(
    control_plane: ControlPlane, token: str, tmp_path: Path
) -> None:
    other = control_plane.authority.__class__().certificate
    user = {"token": token}
    with pytest.raises(UnreachableError, match="certificate"):
        who(config(control_plane, tmp_path / "kc", user, certificate_authority_data=encoded(other)))
    careless = config(
        control_plane,
        tmp_path / "kc",
        user,
        certificate_authority_data=None,
        insecure_skip_tls_verify=True,
    )
    assert who(careless)["username"] == ROBOT


def test_an_administrator_who_speaks_for_somebody_else(control_plane: ControlPlane, tmp_path: Path) -> None:
    pair = control_plane.authority.client("admin", ["system:masters"])
    user = {
        "client-certificate-data": encoded(pair.public),
        "client-key-data": encoded(pair.key),
        "as": "carol",
        "as-groups": ["one", "two"],
    }
    said = who(config(control_plane, tmp_path / "kc", user))
    assert said["username"] == "carol"
    assert {"one", "two"} <= set(said["groups"])


def test_a_list_of_kubeconfigs_means_to_us_what_it_means_to_kubectl(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    first, second = control_plane.kubeconfig("dave"), control_plane.kubeconfig("erin")
    merged = f"{tmp_path / 'nowhere'}:{first}:{second}"
    seen = control_plane.kubectl("config", "view", "--minify", "-o", "json", kubeconfig=Path(merged))
    found = find_kubeconfig({"KUBECONFIG": merged})
    assert found is not None
    assert [user["name"] for user in json.loads(seen.stdout)["users"]] == ["dave"]
    assert who(find_access(environ={"KUBECONFIG": merged}))["username"] == "dave"
    assert sorted(found.users) == ["dave", "erin"]
