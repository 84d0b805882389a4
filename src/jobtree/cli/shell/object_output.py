"""Prints API objects for scripts, with the fields of the API and no others."""

import json
from collections.abc import Sequence
from typing import Any

import click

from jobtree.api.documents.document_stream import dump_yaml
from jobtree.cli.shell.options import CommandOptions

ObjectBody = dict[str, Any]

# kubectl knows Leases of Jobtree as gpuleases, since coordination.k8s.io has Leases too.
SINGULARS = {"Lease": "gpulease"}


def print_objects(settings: CommandOptions, objects: Sequence[ObjectBody], *, many: bool = True) -> None:
    """Prints objects in the requested format; unless ``many``, a single object is printed without a List."""
    if settings.output == "name":
        for body in objects:
            click.echo(resource_name(body))
        return
    document: ObjectBody = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    if not many and len(objects) == 1:
        document = objects[0]
    if settings.output == "json":
        click.echo(json.dumps(document, indent=4, ensure_ascii=False))
    else:
        click.echo(dump_yaml([document]), nl=False)


def resource_name(body: ObjectBody) -> str:
    """Returns ``run.rq.davidlangworthy.io/train``, a form that kubectl accepts as an argument."""
    kind = str(body["kind"])
    group = str(body["apiVersion"]).rpartition("/")[0]
    singular = SINGULARS.get(kind, kind.lower())
    name = body.get("metadata", {}).get("name", "")
    return f"{singular}.{group}/{name}" if group else f"{singular}/{name}"


def api_status(message: str, causes: Sequence[ObjectBody]) -> ObjectBody:
    """Builds a Status object as the API server does: with causes a failure, else a success."""
    if not causes:
        return {"apiVersion": "v1", "kind": "Status", "status": "Success"}
    return {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "reason": "Invalid",
        "message": message,
        "details": {"causes": list(causes)},
    }
