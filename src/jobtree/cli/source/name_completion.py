"""Lists names for completion, from the state file or from a live cluster with a short timeout.

Errors are ignored: completion then offers no names.
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
    """Returns Runs by name; by namespace/name if a slash was typed or several namespaces have the name."""
    return _namespaced(context, "Run", incomplete)


def reservation_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Returns Reservations in the same form."""
    return _namespaced(context, "Reservation", incomplete)


def _namespaced(context: click.Context, kind: str, incomplete: str) -> list[str]:
    settings = context.ensure_object(CommandOptions)
    keys = [
        (str(metadata.get("namespace", "default")), str(metadata.get("name")))
        for metadata in _metadata(settings, kind, everywhere="/" in incomplete)
        if settings.namespace in (None, metadata.get("namespace", "default"))
    ]
    names = [name for _, name in keys]
    candidates = [
        "/".join(key) if "/" in incomplete or names.count(key[1]) > 1 else key[1] for key in sorted(keys)
    ]
    return [name for name in candidates if name.startswith(incomplete)]


def node_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    settings = context.ensure_object(CommandOptions)
    names = sorted(str(metadata.get("name")) for metadata in _metadata(settings, "Node"))
    return [name for name in names if name.startswith(incomplete)]


def _metadata(settings: CommandOptions, kind: str, *, everywhere: bool = False) -> Iterator[dict[str, Any]]:
    bodies = _live_bodies(settings, kind, everywhere=everywhere) if settings.live else _file_bodies(settings)
    for body in bodies:
        metadata = body.get("metadata")
        if body.get("kind") == kind and isinstance(metadata, dict):
            yield metadata


def _file_bodies(settings: CommandOptions) -> list[dict[str, Any]]:
    try:
        path = settings.state_path
        return [document.body for document in read_documents(Path(path).read_bytes(), path)]
    except (OSError, InputError, CommandError):
        return []


def _live_bodies(settings: CommandOptions, kind: str, *, everywhere: bool) -> list[dict[str, Any]]:
    """Lists objects of the default namespace, or with ``everywhere`` of all namespaces."""
    from jobtree.kube.auth.cluster_access import find_access
    from jobtree.kube.http.api_errors import KubeError
    from jobtree.kube.http.api_requests import EVERYTHING, Selector
    from jobtree.kube.http.api_resources import NODES, RESERVATIONS, RUNS
    from jobtree.kube.http.blocking_client import Client
    from jobtree.kube.http.blocking_transport import PlainTransport

    resource = next(resource for resource in (RUNS, RESERVATIONS, NODES) if resource.kind == kind)
    try:
        access = find_access(settings.context or "", settings.kubeconfig or "")
        selector = EVERYTHING if everywhere else Selector(settings.namespace or access.namespace)
        with closing(PlainTransport(access, LIMIT_SECONDS)) as transport:
            return Client(transport).list(resource, selector)
    except (KubeError, InputError):
        return []
