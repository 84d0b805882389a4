"""Reads kubeconfig files and looks up a context: its cluster, its user and its namespace.

``KUBECONFIG`` may list several files; without it ``~/.kube/config`` is read. As in kubectl, files that do not
exist are skipped, the first file to name a cluster, a user, a context or the current context wins, and paths
in a file are relative to that file. Errors name the file, the field, the value and the rule, but never the
value of a secret.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec

from jobtree.api.documents.document_stream import read_documents
from jobtree.api.documents.struct_decoder import decode_struct
from jobtree.api.schema.problems import ABSENT, InputError, Problem

SECRET_FIELDS = ("token", "client-key-data", "clientKeyData", "value")
DEFAULT_PATH = "~/.kube/config"
EXEC_EXTENSION = "client.authentication.k8s.io/exec"

ExecVersion = Literal["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"]
Interactive = Literal["Never", "IfAvailable", "Always"]
T = TypeVar("T")


class Extension(msgspec.Struct, frozen=True):
    name: str
    extension: Any = None


class ClusterEntry(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    extensions: tuple[Extension, ...] = ()


class Variable(msgspec.Struct, frozen=True):
    name: str
    value: str


class ExecEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A program that returns credentials. ``interactive_mode`` is optional in v1beta1 only."""

    api_version: ExecVersion
    command: str
    args: tuple[str, ...] = ()
    env: tuple[Variable, ...] = ()
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: Interactive | None = None


class UserEntry(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    as_: str = msgspec.field(default="", name="as")
    as_uid: str = ""
    as_groups: tuple[str, ...] = ()
    as_user_extra: dict[str, tuple[str, ...]] = {}
    username: str = ""
    exec_: ExecEntry | None = msgspec.field(default=None, name="exec")
    auth_provider: dict[str, Any] | None = None


class ContextEntry(msgspec.Struct, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: ClusterEntry = ClusterEntry()


class _NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: UserEntry = UserEntry()


class _NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: ContextEntry = ContextEntry()


class _File(msgspec.Struct, frozen=True, rename="kebab"):
    clusters: tuple[_NamedCluster, ...] = ()
    users: tuple[_NamedUser, ...] = ()
    contexts: tuple[_NamedContext, ...] = ()
    current_context: str = ""


class LocatedEntry(NamedTuple, Generic[T]):
    """An entry of a kubeconfig, its place for messages, and the directory to which its paths are relative."""

    entry: T
    where: str
    directory: Path

    def path(self, relative: str) -> Path:
        return self.directory / relative

    def refuse(self, field: str, value: object, rule: str) -> InputError:
        return InputError(self.where, [Problem(field, value, rule)])


class Target(NamedTuple):
    """One context: its cluster, its user and its default namespace."""

    context: str
    namespace: str
    cluster: LocatedEntry[ClusterEntry]
    user: LocatedEntry[UserEntry]


class Kubeconfig:
    """The merged kubeconfig files."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        self.clusters: dict[str, LocatedEntry[ClusterEntry]] = {}
        self.users: dict[str, LocatedEntry[UserEntry]] = {}
        self.contexts: dict[str, LocatedEntry[ContextEntry]] = {}
        self.current_context = ""
        for path in paths:
            self._merge(path)

    def _merge(self, path: Path) -> None:
        file, source, directory = _read(path), str(path), path.absolute().parent
        for cluster in file.clusters:
            where = f"{source}, cluster {cluster.name}"
            self.clusters.setdefault(cluster.name, LocatedEntry(cluster.cluster, where, directory))
        for user in file.users:
            where = f"{source}, user {user.name}"
            self.users.setdefault(user.name, LocatedEntry(user.user, where, directory))
        for context in file.contexts:
            where = f"{source}, context {context.name}"
            self.contexts.setdefault(context.name, LocatedEntry(context.context, where, directory))
        self.current_context = self.current_context or file.current_context

    def target(self, context: str = "") -> Target:
        """Looks up this context, or the current one. Raises InputError."""
        name = context or self.current_context
        located = self.contexts.get(name)
        if located is None:
            raise self._no_context(name, is_option=bool(context))
        entry = located.entry
        cluster = self.clusters.get(entry.cluster)
        user = self.users.get(entry.user)
        if cluster is None:
            raise located.refuse("cluster", entry.cluster, f"must be one of {_listed(self.clusters)}")
        if user is None and entry.user:
            raise located.refuse("user", entry.user, f"must be one of {_listed(self.users)}")
        anonymous = LocatedEntry(UserEntry(), located.where, located.directory)
        return Target(name, entry.namespace or "default", cluster, user or anonymous)

    def _no_context(self, name: str, *, is_option: bool) -> InputError:
        where = ", ".join(map(str, self.paths))
        field = "--context" if is_option else "current-context"
        rule = f"must be one of {_listed(self.contexts)}"
        if not name:
            rule = f"is not set; choose one with --context: {_listed(self.contexts)}"
        return InputError(where, [Problem(field, name or ABSENT, rule)])


def find_kubeconfig(environ: Mapping[str, str], explicit: str = "") -> Kubeconfig | None:
    """Reads and merges the kubeconfig files; None if there is none. A file named ``explicit`` must exist."""
    if explicit:
        return Kubeconfig([Path(explicit)])
    listed = environ.get("KUBECONFIG", "")
    names = [name for name in listed.split(os.pathsep) if name] if listed else [DEFAULT_PATH]
    paths = [path for path in dict.fromkeys(Path(name).expanduser() for name in names) if path.exists()]
    return Kubeconfig(paths) if paths else None


def _read(path: Path) -> _File:
    try:
        documents = read_documents(path.read_bytes(), str(path))
    except OSError as error:
        raise InputError(str(path), [f"cannot be read: {error.strerror}"]) from None
    if not documents:
        return _File()
    if len(documents) > 1:
        raise InputError(str(path), [f"a kubeconfig is one document, not {len(documents)}"])
    return decode_without_secrets(documents[0].body, _File, str(path))


def decode_without_secrets(document: object, kind: type[T], where: str) -> T:
    """Decodes like ``decode_struct``, with errors that do not contain the values of secrets."""
    try:
        return decode_struct(document, kind, where)
    except InputError as error:
        raise InputError(error.where, list(_without_secrets(error.problems))) from None


def _without_secrets(problems: tuple[Problem | str, ...]) -> Iterator[Problem | str]:
    for problem in problems:
        if isinstance(problem, Problem) and problem.field.rpartition(".")[2] in SECRET_FIELDS:
            yield problem._replace(value=ABSENT)
        else:
            yield problem


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(sorted(names)) or "(none is defined)"
