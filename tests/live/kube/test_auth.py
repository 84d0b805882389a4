"""The ways to authenticate to an API server."""

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
from tests.live.cluster.control_plane import ControlPlane

SELF_REVIEW = Request(
    "POST",
    "/apis/authentication.k8s.io/v1/selfsubjectreviews",
    b'{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}',
)


def user_info(access: Access) -> dict[str, Any]:
    """Returns the user as the server identifies it; both transports must give the same user."""
    transport = PlainTransport(access)
    try:
        info: dict[str, Any] = Client(transport).ask(SELF_REVIEW)["status"]["userInfo"]
    finally:
        transport.close()
    assert asyncio.run(_async_user_info(access))["username"] == info["username"]
    return info


async def _async_user_info(access: Access) -> dict[str, Any]:
    transport = PooledTransport(access)
    try:
        info: dict[str, Any] = json.loads(await transport.send(SELF_REVIEW))["status"]["userInfo"]
        return info
    finally:
        await transport.close()


def access_by_kubeconfig(plane: ControlPlane, path: Path, user: dict[str, Any], **cluster: Any) -> Access:  # noqa: ANN401  fields
    """Returns access by a kubeconfig with this user; ``cluster`` replaces fields of its cluster."""
    default_fields = {"server": plane.url, "certificate-authority-data": encoded(plane.authority.certificate)}
    other_fields = {key.replace("_", "-"): value for key, value in cluster.items()}
    fields = {key: value for key, value in {**default_fields, **other_fields}.items() if value is not None}
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


SERVICE_ACCOUNT_USER = "system:serviceaccount:default:kube-auth"


def test_client_certificate_is_accepted(control_plane: ControlPlane) -> None:
    access = find_access(environ={"KUBECONFIG": str(control_plane.kubeconfig("alice", "team-a"))})
    info = user_info(access)
    assert info["username"] == "alice"
    assert "team-a" in info["groups"]


def test_token_is_accepted_with_another_server_name(
    control_plane: ControlPlane, token: str, tmp_path: Path
) -> None:
    access = access_by_kubeconfig(
        control_plane, tmp_path / "kc", {"token": token}, tls_server_name="kubernetes.default.svc"
    )
    assert user_info(access)["username"] == SERVICE_ACCOUNT_USER
    wrong = access_by_kubeconfig(
        control_plane, tmp_path / "kc", {"token": token}, tls_server_name="other.example"
    )
    with pytest.raises(UnreachableError, match="certificate"):
        user_info(wrong)


PLUGIN = """
import json, os, sys
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
status = json.load(open(sys.argv[1]))
print(json.dumps({"apiVersion": info["apiVersion"], "kind": "ExecCredential", "status": status}))
"""


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_credential_plugin_gives_a_token_or_a_certificate(
    control_plane: ControlPlane, token: str, tmp_path: Path, version: str
) -> None:
    pair = control_plane.authority.client("bob")
    answers = {
        SERVICE_ACCOUNT_USER: {"token": token},
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
        assert (
            user_info(access_by_kubeconfig(control_plane, tmp_path / "kc", {"exec": plugin}))["username"]
            == name
        )


def test_credential_plugin_runs_again_when_its_token_is_refused(
    control_plane: ControlPlane, token: str, tmp_path: Path
) -> None:
    (tmp_path / "status").write_text(json.dumps({"token": "stale"}))
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": ["-c", PLUGIN, str(tmp_path / "status")],
        "interactiveMode": "Never",
    }
    access = access_by_kubeconfig(control_plane, tmp_path / "kc", {"exec": plugin})
    with pytest.raises(StatusError, match="Unauthorized"):
        user_info(access)
    (tmp_path / "status").write_text(json.dumps({"token": token}))
    assert user_info(access)["username"] == SERVICE_ACCOUNT_USER


def test_renewed_service_account_token_is_read_again(
    control_plane: ControlPlane, token: str, tmp_path: Path
) -> None:
    (tmp_path / "ca.crt").write_text(control_plane.authority.certificate)
    (tmp_path / "token").write_text("stale")
    host, _, port = control_plane.url.removeprefix("https://").partition(":")
    pod = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    access = in_cluster(pod, tmp_path)
    with pytest.raises(StatusError, match="Unauthorized"):
        user_info(access)
    (tmp_path / "token").write_text(token)
    assert user_info(access)["username"] == SERVICE_ACCOUNT_USER


def test_server_certificate_of_another_authority_is_not_trusted(
    control_plane: ControlPlane, token: str, tmp_path: Path
) -> None:
    other = control_plane.authority.__class__().certificate
    user = {"token": token}
    with pytest.raises(UnreachableError, match="certificate"):
        user_info(
            access_by_kubeconfig(
                control_plane, tmp_path / "kc", user, certificate_authority_data=encoded(other)
            )
        )
    insecure = access_by_kubeconfig(
        control_plane,
        tmp_path / "kc",
        user,
        certificate_authority_data=None,
        insecure_skip_tls_verify=True,
    )
    assert user_info(insecure)["username"] == SERVICE_ACCOUNT_USER


def test_impersonation_sends_user_and_groups(control_plane: ControlPlane, tmp_path: Path) -> None:
    pair = control_plane.authority.client("admin", ["system:masters"])
    user = {
        "client-certificate-data": encoded(pair.public),
        "client-key-data": encoded(pair.key),
        "as": "carol",
        "as-groups": ["one", "two"],
    }
    info = user_info(access_by_kubeconfig(control_plane, tmp_path / "kc", user))
    assert info["username"] == "carol"
    assert {"one", "two"} <= set(info["groups"])


def test_list_of_kubeconfigs_is_merged_like_kubectl_does(control_plane: ControlPlane, tmp_path: Path) -> None:
    first, second = control_plane.kubeconfig("dave"), control_plane.kubeconfig("erin")
    merged = f"{tmp_path / 'nowhere'}:{first}:{second}"
    shown = control_plane.kubectl("config", "view", "--minify", "-o", "json", kubeconfig=Path(merged))
    kubeconfig = find_kubeconfig({"KUBECONFIG": merged})
    assert kubeconfig is not None
    assert [user["name"] for user in json.loads(shown.stdout)["users"]] == ["dave"]
    assert user_info(find_access(environ={"KUBECONFIG": merged}))["username"] == "dave"
    assert sorted(kubeconfig.users) == ["dave", "erin"]
