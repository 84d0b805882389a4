"""Finds the API server and the credentials of the user, and renews the credentials when they expire.

``Access`` returns ``Credentials``: headers and, with TLS, an ssl context. It caches them while they are
valid. A token in a file (in a pod, that of the service account) is read again every minute, and a plugin runs
again when its credentials expire. After a 401 the caller calls ``renew``, which says whether another attempt
can help. Safe to use from several threads.
"""

import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from jobtree.api.schema.problems import InputError
from jobtree.kube.auth.exec_plugin import Credential, run_plugin
from jobtree.kube.auth.kubeconfig import ClusterEntry, LocatedEntry, Target, UserEntry, find_kubeconfig
from jobtree.kube.auth.tls_context import load_client_certificate, read_pem, tls_context

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_NAME = "token"  # noqa: S105  the name of a file
FILE_SECONDS = 60.0
EARLY_SECONDS = 10.0
FOREVER = float("inf")
NO_CLUSTER = (
    "there is no cluster to talk to: KUBECONFIG names no file that exists, there is no ~/.kube/config, "
    "and this is not a pod of a cluster"
)


class Endpoint(NamedTuple):
    """An API server. ``prefix`` comes before all paths; the certificate must be for ``server_name``."""

    scheme: str
    host: str
    port: int
    prefix: str
    server_name: str
    proxy: str

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.prefix}"


class Credentials(NamedTuple):
    """What proves the identity of the user. ``headers`` may contain a name several times, as for groups."""

    headers: tuple[tuple[str, str], ...]
    tls: ssl.SSLContext | None
    fresh_until: float


class Source(NamedTuple):
    """The origin of a credential, and for how long it is valid; None: as long as the credential says."""

    fetch: Callable[[], Credential]
    seconds: float | None


class Access:
    """Access to one API server as one user."""

    def __init__(self, target: Target, clock: Callable[[], float] = time.monotonic) -> None:
        self.context = target.context
        self.namespace = target.namespace
        self.endpoint = _endpoint(target.cluster)
        self._target = target
        self._clock = clock
        self._source = _source(target)
        self._lock = threading.Lock()
        self._credentials: Credentials | None = None
        self._loaded_pair = ("", "")  # certificate and key of the ssl context

    def current(self) -> Credentials | None:
        """Returns the cached credentials if they are valid. Never blocks."""
        credentials = self._credentials
        return credentials if credentials is not None and self._clock() < credentials.fresh_until else None

    def credentials(self) -> Credentials:
        """Returns valid credentials. May read files and run programs. Raises InputError."""
        with self._lock:
            return self.current() or self._fetch()

    def renew(self, refused: Credentials) -> bool:
        """Drops credentials that the server refused. Returns whether the next ones may differ."""
        with self._lock:
            if self._credentials is refused:
                self._credentials = refused._replace(fresh_until=-FOREVER)
        return self._source.seconds != FOREVER

    def _fetch(self) -> Credentials:
        credential = self._source.fetch()
        headers = list(_impersonation(self._target.user.entry))
        if credential.token:
            headers.append(("Authorization", f"Bearer {credential.token}"))
        self._credentials = Credentials(
            tuple(headers), self._tls(credential), self._clock() + self._valid_seconds(credential)
        )
        return self._credentials

    def _valid_seconds(self, credential: Credential) -> float:
        if self._source.seconds is not None:
            return self._source.seconds
        if credential.ends_ms is None:
            return FOREVER
        return credential.ends_ms / 1000 - time.time() - EARLY_SECONDS

    def _tls(self, credential: Credential) -> ssl.SSLContext | None:
        """Returns the ssl context, a new one only for a new certificate: connections are kept per context."""
        if self.endpoint.scheme != "https":
            return None
        pair = (credential.certificate, credential.key)
        if self._credentials is not None and pair == self._loaded_pair:
            return self._credentials.tls
        context = tls_context(self._target.cluster)
        if credential.certificate:
            try:
                load_client_certificate(context, *pair)
            except (ssl.SSLError, OSError) as error:
                where, why = self._target.user.where, getattr(error, "reason", None) or error
                raise InputError(where, [f"client certificate and key cannot be used: {why}"]) from None
        self._loaded_pair = pair
        return context


def find_access(context: str = "", kubeconfig: str = "", environ: Mapping[str, str] | None = None) -> Access:
    """Returns access to the cluster of the kubeconfig, else, in a pod, of the pod. Raises InputError."""
    environ = os.environ if environ is None else environ
    config = find_kubeconfig(environ, kubeconfig)
    if config is not None:
        return Access(config.target(context))
    if "KUBERNETES_SERVICE_HOST" in environ and not context:
        return in_cluster(environ)
    raise InputError("kubeconfig", [NO_CLUSTER])


def in_cluster(environ: Mapping[str, str], directory: Path = SERVICE_ACCOUNT) -> Access:
    """Returns the access that a pod has by its service account."""
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    cluster = ClusterEntry(server=server, certificate_authority="ca.crt")
    where = f"service account in {directory}"
    try:
        namespace = (directory / "namespace").read_text().strip()
    except OSError:
        namespace = "default"
    user = UserEntry(token_file=TOKEN_NAME)
    return Access(
        Target(
            "in-cluster",
            namespace,
            LocatedEntry(cluster, where, directory),
            LocatedEntry(user, where, directory),
        )
    )


def _endpoint(cluster: LocatedEntry[ClusterEntry]) -> Endpoint:
    entry = cluster.entry
    try:
        url = urlsplit(entry.server)
        port = url.port or {"http": 80, "https": 443}[url.scheme]
        host = url.hostname
    except (KeyError, ValueError):
        host = None
    if not host:
        rule = "must be the address of an API server, such as https://10.0.0.1:6443"
        raise cluster.refuse("server", entry.server, rule)
    if entry.proxy_url and urlsplit(entry.proxy_url).scheme != "http":
        raise cluster.refuse("proxy-url", entry.proxy_url, "only http:// proxies are supported")
    prefix = url.path.rstrip("/")
    return Endpoint(url.scheme, host, port, prefix, entry.tls_server_name, entry.proxy_url)


def _source(target: Target) -> Source:
    """Returns the source of credentials, in kubectl's order: a plugin comes after tokens and certificates."""
    user, entry = target.user, target.user.entry
    certificate = read_pem(
        user, "client-certificate", entry.client_certificate, entry.client_certificate_data
    )
    key = read_pem(user, "client-key", entry.client_key, entry.client_key_data)
    if bool(certificate) != bool(key):
        raise InputError(user.where, ["client-certificate and client-key must be set together"])
    if entry.token_file:
        return Source(lambda: Credential(_token(user), certificate, key), FILE_SECONDS)
    if entry.token or certificate:
        static = Credential(entry.token, certificate, key)
        return Source(lambda: static, FOREVER)
    if entry.exec_ is not None:
        plugin = entry.exec_
        return Source(lambda: run_plugin(target, plugin), None)
    if entry.auth_provider is not None or entry.username:
        field = "auth-provider" if entry.auth_provider is not None else "username"
        raise InputError(
            user.where, [f"{field}: is not supported any more; use exec, a token or a certificate"]
        )
    return Source(Credential, FOREVER)


def _token(user: LocatedEntry[UserEntry]) -> str:
    path = user.path(user.entry.token_file)
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise user.refuse("tokenFile", str(path), f"cannot be read: {error.strerror}") from None
    if not token:
        raise user.refuse("tokenFile", str(path), "the file is empty")
    return token


def _impersonation(entry: UserEntry) -> Iterator[tuple[str, str]]:
    if entry.as_:
        yield "Impersonate-User", entry.as_
    if entry.as_uid:
        yield "Impersonate-Uid", entry.as_uid
    for group in entry.as_groups:
        yield "Impersonate-Group", group
    for key, values in entry.as_user_extra.items():
        for value in values:
            yield f"Impersonate-Extra-{quote(key, safe='')}", value
