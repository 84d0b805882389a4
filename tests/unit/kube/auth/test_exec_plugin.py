import base64
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from jobtree.api.schema.problems import InputError
from jobtree.api.schema.quantities import format_time
from jobtree.kube.auth.cluster_access import Access
from jobtree.kube.auth.exec_plugin import PLUGIN_SECONDS, run_plugin
from jobtree.kube.auth.kubeconfig import (
    ClusterEntry,
    ExecEntry,
    Extension,
    LocatedEntry,
    Target,
    UserEntry,
    Variable,
)
from tests.unit.kube.clocks import Clock

V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"
CREDENTIAL = {"apiVersion": V1, "kind": "ExecCredential", "status": {"token": "abc"}}


def target(directory: Path, **plugin: Any) -> Target:  # noqa: ANN401  fields of an ExecEntry
    fields = {"api_version": V1, "command": sys.executable, "interactive_mode": "Never"} | plugin
    cluster = ClusterEntry(
        server="https://west",
        certificate_authority="ca.crt",
        tls_server_name="kubernetes",
        extensions=(Extension("client.authentication.k8s.io/exec", {"audience": "x"}),),
    )
    user = UserEntry(exec_=ExecEntry(**fields))
    return Target(
        "west", "default", LocatedEntry(cluster, "c", directory), LocatedEntry(user, "kc, user me", directory)
    )


def printing(document: object) -> tuple[str, ...]:
    text = document if isinstance(document, str) else json.dumps(document)
    return ("-c", f"print({text!r})")


def run(target: Target) -> Any:  # noqa: ANN401  a Credential, or what a test makes of it
    entry = target.user.entry.exec_
    assert entry is not None
    return run_plugin(target, entry)


def refused(target: Target) -> str:
    with pytest.raises(InputError) as error:
        run(target)
    return str(error.value)


@pytest.mark.parametrize("version", [V1, V1BETA1])
def test_token_is_read_from_the_output(tmp_path: Path, version: str) -> None:
    answer = {**CREDENTIAL, "apiVersion": version}
    assert run(target(tmp_path, api_version=version, args=printing(answer))).token == "abc"  # noqa: S105


def test_certificate_and_its_expiry_are_read_from_the_output(tmp_path: Path) -> None:
    status = {
        "clientCertificateData": "CERT",
        "clientKeyData": "KEY",
        "expirationTimestamp": "2026-11-15T12:00:00Z",
    }
    credential = run(target(tmp_path, args=printing({**CREDENTIAL, "status": status})))
    assert (credential.certificate, credential.key) == ("CERT", "KEY")
    assert format_time(credential.ends_ms) == "2026-11-15T12:00:00Z"


ECHO_SCRIPT = """
import json, os, sys
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
stdin = sys.stdin.read()
token = json.dumps({"info": info, "flavor": os.environ["FLAVOR"], "stdin": stdin})
print(json.dumps({"apiVersion": info["apiVersion"], "kind": info["kind"], "status": {"token": token}}))
"""


def test_program_gets_the_cluster_and_variables_of_the_entry(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("PEM")
    plugin = {"args": ("-c", ECHO_SCRIPT), "env": (Variable("FLAVOR", "mint"),)}
    received = json.loads(run(target(tmp_path, **plugin)).token)
    assert (received["flavor"], received["stdin"]) == ("mint", "")
    assert received["info"] == {"apiVersion": V1, "kind": "ExecCredential", "spec": {"interactive": False}}
    received = json.loads(run(target(tmp_path, **plugin, provide_cluster_info=True)).token)
    assert received["info"]["spec"]["cluster"] == {
        "server": "https://west",
        "tls-server-name": "kubernetes",
        "certificate-authority-data": base64.b64encode(b"PEM").decode(),
        "config": {"audience": "x"},
    }


def test_relative_path_of_a_program_starts_at_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "login").write_text(f"#!/bin/sh\necho '{json.dumps(CREDENTIAL)}'\n")
    (tmp_path / "login").chmod(0o755)
    assert run(target(tmp_path, command="./login")).token == "abc"  # noqa: S105


@pytest.mark.parametrize(
    ("plugin", "expected"),
    [
        ({"command": "no-such-login", "install_hint": "apt install login"}, "was found\napt install login"),
        ({"args": ("-c", "exit(3)")}, "failed with exit code 3"),
        ({"args": printing("hello")}, "must be an ExecCredential in JSON"),
        ({"args": printing({**CREDENTIAL, "apiVersion": V1BETA1})}, f"must be an ExecCredential of {V1}"),
        ({"args": printing({**CREDENTIAL, "status": {}})}, "must hold a token or a client certificate"),
        ({"args": printing({**CREDENTIAL, "status": {"clientKeyData": "KEY"}})}, "must be set together"),
        ({"args": printing({**CREDENTIAL, "status": {"token": 31337}})}, "status.token: must be a string"),
        ({"args": printing({"kind": "x"})}, "status: is required"),
        ({"interactive_mode": None}, "exec.interactiveMode: is required"),
        ({"interactive_mode": "Always"}, "standard input is not a terminal"),
    ],
)
def test_failed_plugin_is_refused_with_the_reason(
    tmp_path: Path, plugin: dict[str, Any], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "stdin").open("w+") as no_terminal:
        monkeypatch.setattr(sys, "stdin", no_terminal)
        message = refused(target(tmp_path, **plugin))
    assert message.startswith("kc, user me")
    assert expected in message
    assert "31337" not in message


def test_interactive_mode_is_optional_in_v1beta1(tmp_path: Path) -> None:
    answer = printing({**CREDENTIAL, "apiVersion": V1BETA1})
    assert run(target(tmp_path, api_version=V1BETA1, interactive_mode=None, args=answer)).token == "abc"  # noqa: S105


COUNT_SCRIPT = """
import json, pathlib, sys
calls = pathlib.Path(sys.argv[1])
calls.write_text(calls.read_text() + "x" if calls.exists() else "x")
status = {"token": calls.read_text(), "expirationTimestamp": sys.argv[2]}
version = "client.authentication.k8s.io/v1"
print(json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status}))
"""


def test_program_runs_again_when_its_credentials_expire(tmp_path: Path) -> None:
    clock = Clock()
    ends = format_time(int(time.time() + 3600) * 1000)
    plain = target(tmp_path, args=("-c", COUNT_SCRIPT, str(tmp_path / "calls"), ends))
    access = Access(
        plain._replace(cluster=LocatedEntry(ClusterEntry(server="http://west"), "c", tmp_path)), clock
    )
    first = access.credentials()
    assert access.credentials() is first
    clock.pass_by(3600)
    assert access.current() is None
    second = access.credentials()
    assert (first.headers, second.headers) == (
        (("Authorization", "Bearer x"),),
        (("Authorization", "Bearer xx"),),
    )


def test_program_without_output_is_ended_after_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert PLUGIN_SECONDS == 60
    monkeypatch.setattr("jobtree.kube.auth.exec_plugin.PLUGIN_SECONDS", 0.1)
    assert "did not answer" in refused(target(tmp_path, args=("-c", "import time; time.sleep(60)")))
