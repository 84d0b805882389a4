"""``kubectl runs heal``: put nodes back into service."""

import click

from jobtree.cli.shell.options import CommandOptions, verb
from jobtree.cli.source.name_completion import node_names

EXAMPLES = """
kubectl runs --state cluster.yaml heal gpu-a-01
"""


@verb("heal", examples=EXAMPLES)
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True, shell_complete=node_names)
def command(settings: CommandOptions, nodes: tuple[str, ...]) -> None:
    """Put nodes back into service, and show what follows. Only in a simulation."""
    from jobtree.cli.tasks.node_changes import change_nodes
    from jobtree.simulation.cluster.simulated_cluster import SimulatedCluster

    change_nodes(settings, nodes, SimulatedCluster.heal, "in service")
