"""Prints what the writing verbs did on a live cluster."""

from collections.abc import Sequence
from typing import Any

import click

from jobtree.api.documents.document_stream import Document
from jobtree.cli.shell.object_output import print_objects
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.source.session import live_cluster
from jobtree.client.source import live_runs
from jobtree.client.source.stage_rules import refuse_stage

NO_STATUS_YET = (
    "; the manager has not answered yet\n  'kubectl runs watch {name}' follows it. If nothing changes, an "
    "administrator can check 'kubectl -n jobtree-system get deploy,pods'"
)


def submit(settings: CommandOptions, documents: Sequence[Document], *, replace: bool) -> None:
    """Creates or replaces objects, and prints what the manager decided about each Run."""
    bodies = live_runs.create(live_cluster(settings), documents, replace=replace)
    if not settings.human:
        print_objects(settings, bodies, many=len(bodies) > 1)
        return
    for body in bodies:
        click.echo(status_line(body))


def status_line(body: dict[str, Any]) -> str:
    """``default/train is Running: Admitted: 8 GPUs, paid by west/h100``."""
    metadata, status = body["metadata"], body.get("status", {})
    name = "/".join(part for part in (metadata.get("namespace", ""), metadata["name"]) if part)
    if body["kind"] != "Run":
        return f"{body['kind']} {name} is in place"
    phase = status.get("phase")
    if not live_runs.has_word(body, metadata):
        return f"{name} is {'changed' if phase else 'created'}{NO_STATUS_YET.format(name=name)}"
    message = f": {status['message']}" if status.get("message") else ""
    start = f"; it starts at {status['earliestStart']} at the latest" if "earliestStart" in status else ""
    return f"{name} is {phase}{message}{start}"


def cancel(settings: CommandOptions, runs: Sequence[str]) -> None:
    live = live_cluster(settings)
    named = [live_runs.find(live, run) for run in runs]
    bodies = list({body["metadata"]["uid"]: body for body in named}.values())
    for body in bodies:
        metadata = body["metadata"]
        refuse_stage(f"{metadata['namespace']}/{metadata['name']}", live_runs.tree_of(body))
    live_runs.delete(live, bodies)
    if not settings.human:
        print_objects(settings, bodies, many=len(bodies) > 1)
        return
    for body in bodies:
        click.echo(
            f"{body['metadata']['namespace']}/{body['metadata']['name']} is being deleted: "
            "its leases close first"
        )


def resize_live(settings: CommandOptions, text: str, sign: int, by: int | None, width: int | None) -> None:
    """Sets the desired width of a Run."""
    changed = live_runs.resize(live_cluster(settings), text, sign, by, width)
    if not settings.human:
        print_objects(settings, [changed.body], many=False)
        return
    name, wanted, allocated = changed.name, changed.wanted, changed.allocated
    click.echo(f"{name} wants {wanted} GPUs and has {allocated}: 'kubectl runs watch {name}' follows it")
