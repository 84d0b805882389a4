"""Settings of the process: flags, each with an environment variable of the same name (``JOBTREE_…``)."""

import os
import re
import socket
from collections.abc import Mapping, Sequence
from uuid import uuid4

import click
import msgspec

from jobtree.kube.http.transport import REQUEST_SECONDS
from jobtree.kube.installation import NAMESPACE
from jobtree.kube.watch.watch_protocol import SILENCE_SECONDS

MAX_PORT = 65535
NAME = re.compile(r"[A-Za-z0-9.:-]{1,253}")
VALID_SECONDS = 90 * 24 * 3600  # of a certificate of the webhook
LEAST_VALID_SECONDS = 10
SERVICE_ACCOUNT_NAMESPACE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


class ManagerSettings(msgspec.Struct, frozen=True):
    kubeconfig: str = ""  # empty: KUBECONFIG, ~/.kube/config, or the service account of this pod
    context: str = ""
    namespace: str = NAMESPACE  # of the policy, the lottery key and the election
    election: str = "jobtree-controller-manager"
    identity: str = ""
    health_address: str = "0.0.0.0:8081"
    webhook_address: str = ""
    webhook_names: str = ""
    webhook_validity_seconds: int = VALID_SECONDS
    archive: str = ""  # empty: no lease ever leaves the cluster
    archive_seconds: int = 60
    check_seconds: int = 30
    stop_after_writes: int = 0  # for the tests of crash safety: SIGKILL after so many writes
    request_seconds: float = REQUEST_SECONDS  # for those of faults: when an answer is not waited for any more
    silence_seconds: float = SILENCE_SECONDS  # and when a silent watch is given up


def own_namespace(path: str = SERVICE_ACCOUNT_NAMESPACE) -> str:
    """The namespace of the pod that this process runs in, if it runs in one."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            return file.read().strip()
    except OSError:
        return NAMESPACE


def own_identity() -> str:
    """A name that no other process has, not even a later one of the same pod."""
    return f"{socket.gethostname()}_{uuid4()}"


def check_address(_: click.Context, option: click.Parameter, text: str) -> str:
    """HOST:PORT, or nothing."""
    port = text.rpartition(":")[2]
    if text and (":" not in text or not port.isdecimal() or int(port) > MAX_PORT):
        raise click.BadParameter(f"{text!r} is no HOST:PORT, such as 0.0.0.0:9443", param=option)
    return text


def check_names(_: click.Context, option: click.Parameter, text: str) -> str:
    """Names or addresses, parted by commas."""
    for name in filter(None, (part.strip() for part in text.split(","))):
        if not NAME.fullmatch(name):
            raise click.BadParameter(f"{name!r} is neither a name nor an address", param=option)
    return text


@click.command(context_settings={"auto_envvar_prefix": "JOBTREE"})
@click.option(
    "--kubeconfig",
    default="",
    help="The kubeconfig to use; by default as kubectl finds it, or in a pod its service account.",
)
@click.option("--context", default="", help="The context of the kubeconfig.")
@click.option(
    "--namespace", default=own_namespace, help="Where the policy, the lottery key and the election are."
)
@click.option("--election", default="jobtree-controller-manager", help="The name of the election's Lease.")
@click.option("--identity", default=own_identity, help="Who this process is in the election.")
@click.option(
    "--health-address",
    default="0.0.0.0:8081",
    callback=check_address,
    help="Where /healthz, /readyz, /metrics and, with --archive, /archive/ are served; empty: nowhere.",
)
@click.option(
    "--webhook-address",
    default="",
    callback=check_address,
    help="Where the admission webhook is served, with TLS (0.0.0.0:9443); empty: nowhere.",
)
@click.option(
    "--webhook-names",
    default="",
    callback=check_names,
    help="Names or addresses, parted by commas, by which API servers reach the webhook beside its Service.",
)
@click.option(
    "--webhook-validity-seconds",
    default=VALID_SECONDS,
    type=click.IntRange(min=LEAST_VALID_SECONDS),
    show_default=True,
    help="How long a certificate of the webhook is valid; the next one takes its place in time.",
)
@click.option(
    "--archive",
    default="",
    help="The directory that closed leases older than leaseRetention move to; empty: they never leave.",
)
@click.option("--archive-seconds", default=60, help="How often, at most, old leases are looked for.")
@click.option("--check-seconds", default=30, help="How often, at most, all invariants are checked.")
@click.option("--stop-after-writes", default=0, hidden=True)
@click.option("--request-seconds", default=REQUEST_SECONDS, hidden=True)
@click.option("--silence-seconds", default=SILENCE_SECONDS, hidden=True)
def parse(**given: object) -> ManagerSettings:
    """Jobtree's controller manager."""
    return msgspec.convert(given, ManagerSettings)


def read_settings(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> ManagerSettings:
    """The settings; ends the process with a message where they are wrong."""
    if environment is not None:
        os.environ.update(environment)
    settings = parse.main(args=list(arguments), prog_name="jobtree.manager", standalone_mode=False)
    if not isinstance(settings, ManagerSettings):  # --help was asked for
        raise SystemExit(0)
    return settings
