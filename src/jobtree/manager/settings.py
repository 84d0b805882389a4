"""The settings of the manager: flags, each with an environment variable ``JOBTREE_…`` of the same name."""

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


class ClientIdentity(msgspec.Struct, frozen=True):
    """The clients that the webhook answers: with a certificate of this authority and one of these names.

    ``authority`` is a file of certificates; empty: anybody. Without names, any certificate of it is accepted.
    """

    authority: str = ""
    names: tuple[str, ...] = ()


class ManagerSettings(msgspec.Struct, frozen=True):
    kubeconfig: str = ""  # empty: KUBECONFIG, ~/.kube/config, or the service account of this pod
    context: str = ""
    namespace: str = NAMESPACE  # that holds the policy, the lottery key and the election
    election: str = "jobtree-controller-manager"
    identity: str = ""
    health_address: str = "0.0.0.0:8081"
    webhook_address: str = ""
    webhook_names: str = ""
    webhook_validity_seconds: int = VALID_SECONDS
    webhook_client_ca: str = ""  # empty: anybody who reaches the webhook is answered
    webhook_client_names: str = ""
    archive: str = ""  # empty: closed leases stay in the cluster
    archive_seconds: int = 60
    check_seconds: int = 30
    stop_after_writes: int = 0  # for crash tests: SIGKILL after so many writes
    request_seconds: float = REQUEST_SECONDS  # for fault tests: the timeout of a request
    silence_seconds: float = SILENCE_SECONDS  # for fault tests: the timeout of a silent watch

    @property
    def webhook_clients(self) -> ClientIdentity:
        names = (name.strip() for name in self.webhook_client_names.split(","))
        return ClientIdentity(self.webhook_client_ca, tuple(filter(None, names)))


def own_namespace(path: str = SERVICE_ACCOUNT_NAMESPACE) -> str:
    """Returns the namespace of the pod that this process runs in, or the default outside a pod."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            return file.read().strip()
    except OSError:
        return NAMESPACE


def own_identity() -> str:
    """Returns a name that no other process has, not even a later one of the same pod."""
    return f"{socket.gethostname()}_{uuid4()}"


def check_address(_: click.Context, option: click.Parameter, text: str) -> str:
    """Accepts HOST:PORT or an empty text."""
    port = text.rpartition(":")[2]
    if text and (":" not in text or not port.isdecimal() or int(port) > MAX_PORT):
        raise click.BadParameter(f"{text!r} is not HOST:PORT: write it like 0.0.0.0:9443", param=option)
    return text


def check_names(_: click.Context, option: click.Parameter, text: str) -> str:
    """Accepts names or addresses, separated by commas."""
    for name in filter(None, (part.strip() for part in text.split(","))):
        if not NAME.fullmatch(name):
            raise click.BadParameter(f"{name!r} is neither a name nor an address", param=option)
    return text


def check_file(_: click.Context, option: click.Parameter, path: str) -> str:
    """Accepts the name of a file that can be read, or an empty text."""
    if path and not os.access(path, os.R_OK):
        raise click.BadParameter(f"{path!r} is no file that can be read", param=option)
    return path


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
@click.option("--identity", default=own_identity, help="The name of this process in the election.")
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
    help="Names or addresses of the webhook besides its Service, separated by commas.",
)
@click.option(
    "--webhook-validity-seconds",
    default=VALID_SECONDS,
    type=click.IntRange(min=LEAST_VALID_SECONDS),
    show_default=True,
    help="How long a certificate of the webhook is valid; it is replaced in time.",
)
@click.option(
    "--webhook-client-ca",
    default="",
    callback=check_file,
    help="A file with the authority of the API server's client certificate; empty: anybody is answered.",
)
@click.option(
    "--webhook-client-names",
    default="",
    help="Common names of that certificate, separated by commas; empty: any name of the authority.",
)
@click.option(
    "--archive",
    default="",
    help="The directory for closed leases older than leaseRetention; empty: they stay in the cluster.",
)
@click.option("--archive-seconds", default=60, help="The least time between two searches for old leases.")
@click.option("--check-seconds", default=30, help="The least time between two checks of all invariants.")
@click.option("--stop-after-writes", default=0, hidden=True)
@click.option("--request-seconds", default=REQUEST_SECONDS, hidden=True)
@click.option("--silence-seconds", default=SILENCE_SECONDS, hidden=True)
def parse(**given: object) -> ManagerSettings:
    """Jobtree's controller manager."""
    return msgspec.convert(given, ManagerSettings)


def read_settings(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> ManagerSettings:
    """Returns the settings. Raises click.ClickException if one is wrong."""
    if environment is not None:
        os.environ.update(environment)
    settings = parse.main(args=list(arguments), prog_name="jobtree.manager", standalone_mode=False)
    if not isinstance(settings, ManagerSettings):  # --help was asked for
        raise SystemExit(0)
    return settings
