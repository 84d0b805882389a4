"""Credentials from a program that the kubeconfig names, by client.authentication.k8s.io v1 and v1beta1.

The program is told what is wanted in the variable KUBERNETES_EXEC_INFO and answers on its standard output
with an ExecCredential: a token, a client certificate with its key, or both, and perhaps when they end. It
speaks to a person on standard error, and on standard input only if the entry allows that and there is a
terminal.
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
    convert_discreetly,
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


class _ExecAnswer(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    status: _ExecStatus


def run_plugin(target: Target, entry: ExecEntry) -> Credential:
    """What the program answers. Raises InputError, which says what to mend."""
    user = target.user
    interactive = _may_talk(user, entry)
    command = entry.command
    if os.sep in command:
        command = str(user.path(command))
    told = {"KUBERNETES_EXEC_INFO": json.dumps(_question(target, entry, interactive=interactive))}
    try:
        done = subprocess.run(  # noqa: S603  running the program that the user's own kubeconfig names is the purpose
            [command, *entry.args],
            env=os.environ | {one.name: one.value for one in entry.env} | told,
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=None if interactive else PLUGIN_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        hint = f"\n{entry.install_hint}" if entry.install_hint else ""
        raise user.refuse("exec.command", entry.command, f"no such program was found{hint}") from None
    except OSError as broken:
        raise user.refuse("exec.command", entry.command, f"cannot be run: {broken.strerror}") from None
    except subprocess.TimeoutExpired:
        rule = f"did not answer within {PLUGIN_SECONDS} s"
        raise user.refuse("exec.command", entry.command, rule) from None
    if done.returncode != 0:
        raise user.refuse("exec.command", entry.command, f"failed with exit code {done.returncode}")
    return _read(user, entry, done.stdout)


def _may_talk(user: LocatedEntry[UserEntry], entry: ExecEntry) -> bool:
    if entry.interactive_mode is None and not entry.api_version.endswith("beta1"):
        raise InputError(user.where, ["exec.interactiveMode: is required with " + entry.api_version])
    if entry.interactive_mode == "Never":
        return False
    terminal = sys.stdin is not None and sys.stdin.isatty()
    if entry.interactive_mode == "Always" and not terminal:
        rule = "the program must talk to a person, but standard input is not a terminal"
        raise user.refuse("exec.interactiveMode", "Always", rule)
    return terminal


def _question(target: Target, entry: ExecEntry, *, interactive: bool) -> dict[str, Any]:
    spec: dict[str, Any] = {"interactive": interactive}
    if entry.provide_cluster_info:
        spec["cluster"] = _cluster(target.cluster)
    return {"apiVersion": entry.api_version, "kind": "ExecCredential", "spec": spec}


def _cluster(found: LocatedEntry[ClusterEntry]) -> dict[str, Any]:
    entry = found.entry
    authority = entry.certificate_authority_data
    if not authority and entry.certificate_authority:
        authority = base64.b64encode(found.path(entry.certificate_authority).read_bytes()).decode()
    told = {
        "server": entry.server,
        "tls-server-name": entry.tls_server_name,
        "insecure-skip-tls-verify": entry.insecure_skip_tls_verify,
        "certificate-authority-data": authority,
        "proxy-url": entry.proxy_url,
        "config": next((one.extension for one in entry.extensions if one.name == EXEC_EXTENSION), None),
    }
    return {key: value for key, value in told.items() if value}


def _read(user: LocatedEntry[UserEntry], entry: ExecEntry, printed: bytes) -> Credential:
    where = f"{user.where}, what {entry.command} printed"
    try:
        document = json.loads(printed)
    except ValueError:
        raise InputError(where, ["must be an ExecCredential in JSON"]) from None
    answer = convert_discreetly(document, _ExecAnswer, where)
    if (answer.kind, answer.api_version) != ("ExecCredential", entry.api_version):
        given = f"{answer.kind} of {answer.api_version}"
        raise InputError(where, [f"must be an ExecCredential of {entry.api_version}, not a {given}"])
    status = answer.status
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise InputError(where, ["status: clientCertificateData and clientKeyData come together"])
    if not status.token and not status.client_key_data:
        raise InputError(where, ["status: must hold a token or a client certificate"])
    ends_ms = parse_time(status.expiration_timestamp) if status.expiration_timestamp else None
    return Credential(status.token, status.client_certificate_data, status.client_key_data, ends_ms)
