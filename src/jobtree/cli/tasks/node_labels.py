"""Implements ``topology label``: sets labels of many nodes."""

from collections.abc import Sequence
from copy import deepcopy

import click

from jobtree.api.documents.document_stream import Document
from jobtree.cli.shell.command_errors import Exit
from jobtree.cli.shell.object_output import print_objects
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.source.session import edit, find_nodes, read_cluster
from jobtree.cli.views.event_lines import event_lines
from jobtree.messages.wording import ranges


def label_nodes(settings: CommandOptions, words: Sequence[str]) -> int:
    nodes = [word for word in words if "=" not in word]
    labels = dict(word.split("=", 1) for word in words if "=" in word)
    if not nodes or not labels:
        raise click.UsageError("label needs nodes and labels: label 'gpu-a-[01-16]' fabric.domain=nv-a")
    names = label_live(settings, nodes, labels) if settings.live else label_file(settings, nodes, labels)
    if settings.human:
        text = " ".join(f"{key}={value}" for key, value in labels.items())
        click.echo(f"{ranges(names)}: {text}")
    return Exit.OK


def label_file(settings: CommandOptions, nodes: Sequence[str], labels: dict[str, str]) -> list[str]:
    with edit(settings) as cluster:
        names = find_nodes(cluster, nodes)
        for name in names:
            body = deepcopy(cluster.objects.get(("Node", "", name)) or {})
            body["metadata"].setdefault("labels", {}).update(labels)
            cluster.edit(("Node", "", name), Document("label", body))
        bodies = [cluster.objects.get(("Node", "", name)) or {} for name in names]
    if settings.human:
        for line in event_lines(cluster.events):
            click.echo(line)
    else:
        print_objects(settings, bodies, many=len(bodies) > 1)
    return names


def label_live(settings: CommandOptions, nodes: Sequence[str], labels: dict[str, str]) -> list[str]:
    from jobtree.cli.source.session import live_cluster
    from jobtree.kube.http import api_requests
    from jobtree.kube.http.api_requests import Preconditions
    from jobtree.kube.http.api_resources import NODES

    names, live = find_nodes(read_cluster(settings), nodes), live_cluster(settings)
    for name in names:
        body = live.ask(
            api_requests.merge_patch(NODES, Preconditions(name), {"metadata": {"labels": labels}})
        )
        if not settings.human:
            print_objects(settings, [{"apiVersion": "v1", "kind": "Node"} | body], many=False)
    return names
