"""Implements ``fail``, ``heal`` and ``drain``."""

from collections.abc import Callable, Iterable

import click

from jobtree.cli.shell.object_output import print_objects
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.source.session import edit_simulation, find_nodes
from jobtree.cli.views.event_lines import event_lines
from jobtree.messages.wording import ranges
from jobtree.simulation.cluster.simulated_cluster import SimulatedCluster


def change_nodes(
    settings: CommandOptions,
    nodes: Iterable[str],
    change: Callable[[SimulatedCluster, list[str]], None],
    state: str,
) -> None:
    """Changes nodes at one instant, if all of them exist, and prints the events that follow."""
    with edit_simulation(settings) as cluster:
        names = find_nodes(cluster, nodes)
        change(cluster, names)
        bodies = [body for name in names if (body := cluster.objects.get(("Node", "", name)))]
    if not settings.human:
        print_objects(settings, bodies, many=len(bodies) > 1)
        return
    click.echo(f"{ranges(names)}: {state}")
    for line in event_lines(cluster.events):
        click.echo(line)
