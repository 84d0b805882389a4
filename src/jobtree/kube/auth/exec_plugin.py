"""Gets credentials from the program in the kubeconfig, by client.authentication.k8s.io v1 and v1beta1.

The program receives its input in the variable KUBERNETES_EXEC_INFO and prints an ExecCredential: a token, a
client certificate with its key, or both, and optionally when they expire. Standard error goes to the user.
Standard input comes from the user only if the entry allows it and it is a terminal.
"""

import base64
import json
import os
import subprocess
import sys
from typing import Any, NamedTuple

import msgspec

from jobtree.api.schema.problems import InputError
from jobtree.api.schema.quantities import parse_time
from jobtree.api.schema.scalars import Time
from jobtree.kube.auth.kubeconfig import (
    EXEC_EXTENSION,
    ClusterEntry,
    ExecEntry,
    LocatedEntry,
    Target,
    UserEntry,
    decode_without_secrets,
)

PLUGIN_SECONDS = 60


class Credential(NamedTuple):
    """A bearer token, a certificate with its key (PEM), or nothing. ``ends_ms`` is wall-clock time."""

    token: str = ""
    certificate: str = ""
    key: str = ""
    ends_ms: int | None = None


class _ExecStatus(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: Time | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    status: _ExecStatus


def run_plugin(target: Target, entry: ExecEntry) -> Credential:
    """Runs the program and returns its credential. Raises InputError, which says what to change."""
    user = target.user
    interactive = _is_interactive(user, entry)
    command = entry.command
    if os.sep in command:
        command = str(user.path(command))
    exec_info = json.dumps(_exec_info(target, entry, interactive=interactive))
    variables = {variable.name: variable.value for variable in entry.env}
    try:
        process = subprocess.run(  # noqa: S603  running the program that the user's own kubeconfig names is the purpose
            [command, *entry.args],
            env=os.environ | variables | {"KUBERNETES_EXEC_INFO": exec_info},
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=None if interactive else PLUGIN_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        hint = f"\n{entry.install_hint}" if entry.install_hint else ""
        raise user.refuse("exec.command", entry.command, f"no such program was found{hint}") from None
    except OSError as error:
        raise user.refuse("exec.command", entry.command, f"cannot be run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        rule = f"did not answer within {PLUGIN_SECONDS} s"
        raise user.refuse("exec.command", entry.command, rule) from None
    if process.returncode != 0:
        raise user.refuse("exec.command", entry.command, f"failed with exit code {process.returncode}")
    return _read_credential(user, entry, process.stdout)


def _is_interactive(user: LocatedEntry[UserEntry], entry: ExecEntry) -> bool:
    if entry.interactive_mode is None and not entry.api_version.endswith("beta1"):
        raise InputError(user.where, ["exec.interactiveMode: is required with " + entry.api_version])
    if entry.interactive_mode == "Never":
        return False
    terminal = sys.stdin is not None and sys.stdin.isatty()
    if entry.interactive_mode == "Always" and not terminal:
        rule = "the program needs input from the user, but standard input is not a terminal"
        raise user.refuse("exec.interactiveMode", "Always", rule)
    return terminal


def _exec_info(target: Target, entry: ExecEntry, *, interactive: bool) -> dict[str, Any]:
    spec: dict[str, Any] = {"interactive": interactive}
    if entry.provide_cluster_info:
        spec["cluster"] = _cluster_info(target.cluster)
    return {"apiVersion": entry.api_version, "kind": "ExecCredential", "spec": spec}


def _cluster_info(cluster: LocatedEntry[ClusterEntry]) -> dict[str, Any]:
    entry = cluster.entry
    authority = entry.certificate_authority_data
    if not authority and entry.certificate_authority:
        authority = base64.b64encode(cluster.path(entry.certificate_authority).read_bytes()).decode()
    configs = [extension.extension for extension in entry.extensions if extension.name == EXEC_EXTENSION]
    info = {
        "server": entry.server,
        "tls-server-name": entry.tls_server_name,
        "insecure-skip-tls-verify": entry.insecure_skip_tls_verify,
        "certificate-authority-data": authority,
        "proxy-url": entry.proxy_url,
        "config": next(iter(configs), None),
    }
    return {key: value for key, value in info.items() if value}


def _read_credential(user: LocatedEntry[UserEntry], entry: ExecEntry, output: bytes) -> Credential:
    where = f"{user.where}, output of {entry.command}"
    try:
        document = json.loads(output)
    except ValueError:
        raise InputError(where, ["must be an ExecCredential in JSON"]) from None
    credential = decode_without_secrets(document, _ExecCredential, where)
    if (credential.kind, credential.api_version) != ("ExecCredential", entry.api_version):
        actual = f"{credential.kind} of {credential.api_version}"
        raise InputError(where, [f"must be an ExecCredential of {entry.api_version}, not a {actual}"])
    status = credential.status
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise InputError(where, ["status: clientCertificateData and clientKeyData must be set together"])
    if not status.token and not status.client_key_data:
        raise InputError(where, ["status: must hold a token or a client certificate"])
    ends_ms = parse_time(status.expiration_timestamp) if status.expiration_timestamp else None
    return Credential(status.token, status.client_certificate_data, status.client_key_data, ends_ms)
