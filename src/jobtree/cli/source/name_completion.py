"""Names for completion: from the state file, or asked of a live cluster, which must answer at once.

Whatever is wrong, completion stays silent.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from jobtree.api.documents.document_stream import read_documents
from jobtree.api.schema.problems import InputError
from jobtree.cli.shell.command_errors import CommandError
from jobtree.cli.shell.options import CommandOptions

LIMIT_SECONDS = 2.0


def run_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Runs by name; by namespace/name where a slash was typed or the name is taken twice."""
    return _namespaced(context, "Run", incomplete)


def reservation_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Reservations, in the same way."""
    return _namespaced(context, "Reservation", incomplete)


def _namespaced(context: click.Context, kind: str, incomplete: str) -> list[str]:
    settings = context.ensure_object(CommandOptions)
    found = [
        (str(metadata.get("namespace", "default")), str(metadata.get("name")))
        for metadata in _metadata(settings, kind, everywhere="/" in incomplete)
        if settings.namespace in (None, metadata.get("namespace", "default"))
    ]
    names = [name for _, name in found]
    spelled = [
        "/".join(key) if "/" in incomplete or names.count(key[1]) > 1 else key[1] for key in sorted(found)
    ]
    return [name for name in spelled if name.startswith(incomplete)]


def node_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    settings = context.ensure_object(CommandOptions)
    names = sorted(str(metadata.get("name")) for metadata in _metadata(settings, "Node"))
    return [name for name in names if name.startswith(incomplete)]


def _metadata(settings: CommandOptions, kind: str, *, everywhere: bool = False) -> Iterator[dict[str, Any]]:
    bodies = _asked(settings, kind, everywhere=everywhere) if settings.live else _bodies(settings)
    for body in bodies:
        metadata = body.get("metadata")
        if body.get("kind") == kind and isinstance(metadata, dict):
            yield metadata


def _bodies(settings: CommandOptions) -> list[dict[str, Any]]:
    try:
        path = settings.state_path
        return [document.body for document in read_documents(Path(path).read_bytes(), path)]
    except (OSError, InputError, CommandError):
        return []


def _asked(settings: CommandOptions, kind: str, *, everywhere: bool) -> list[dict[str, Any]]:
    """Those of the namespace that a name without one means, unless ``everywhere``."""
    from jobtree.kube.auth.cluster_access import find_access
    from jobtree.kube.http.api_errors import KubeError
    from jobtree.kube.http.api_requests import EVERYTHING, Selector
    from jobtree.kube.http.api_resources import NODES, RESERVATIONS, RUNS
    from jobtree.kube.http.blocking_client import Client
    from jobtree.kube.http.blocking_transport import PlainTransport

    resource = next(one for one in (RUNS, RESERVATIONS, NODES) if one.kind == kind)
    try:
        access = find_access(settings.context or "", settings.kubeconfig or "")
        here = EVERYTHING if everywhere else Selector(settings.namespace or access.namespace)
        with closing(PlainTransport(access, LIMIT_SECONDS)) as transport:
            return Client(transport).list(resource, here)
    except (KubeError, InputError):
        return []
