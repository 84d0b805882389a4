"""Objects as scripts read them: the API's own fields and nothing else."""

import json
from collections.abc import Sequence
from typing import Any

import click

from jobtree.api.documents.document_stream import dump_yaml
from jobtree.cli.shell.options import CommandOptions

ObjectBody = dict[str, Any]

# A Lease is a gpulease to kubectl, so that it is never taken for one of coordination.k8s.io.
SINGULARS = {"Lease": "gpulease"}


def print_objects(settings: CommandOptions, objects: Sequence[ObjectBody], *, many: bool = True) -> None:
    """In the format asked for. One object stands alone where ``many`` is false, else in a List."""
    if settings.output == "name":
        for body in objects:
            click.echo(resource_name(body))
        return
    whole: ObjectBody = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    if not many and len(objects) == 1:
        whole = objects[0]
    if settings.output == "json":
        click.echo(json.dumps(whole, indent=4, ensure_ascii=False))
    else:
        click.echo(dump_yaml([whole]), nl=False)


def resource_name(body: ObjectBody) -> str:
    """``run.rq.davidlangworthy.io/train``, as kubectl takes it back."""
    kind = str(body["kind"])
    group = str(body["apiVersion"]).rpartition("/")[0]
    singular = SINGULARS.get(kind, kind.lower())
    name = body.get("metadata", {}).get("name", "")
    return f"{singular}.{group}/{name}" if group else f"{singular}/{name}"


def api_status(message: str, causes: Sequence[ObjectBody]) -> ObjectBody:
    """A yes or no as the API server words its own: with causes it is a failure, and says so."""
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
