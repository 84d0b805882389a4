"""``kubectl runs fail``: take nodes out of service."""

import click

from jobtree.cli.shell.options import CommandOptions, verb
from jobtree.cli.source.name_completion import node_names

EXAMPLES = """
kubectl runs --state cluster.yaml fail gpu-a-01
kubectl runs --state cluster.yaml fail gpu-a-01 gpu-a-02    # at the same instant
"""


@verb("fail", examples=EXAMPLES)
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True, shell_complete=node_names)
def command(settings: CommandOptions, nodes: tuple[str, ...]) -> None:
    """Take nodes out of service at the same instant, and show what follows. Only in a simulation."""
    from jobtree.cli.tasks.node_changes import change_nodes
    from jobtree.simulation.cluster.simulated_cluster import SimulatedCluster

    change_nodes(settings, nodes, SimulatedCluster.fail, "out of service")
