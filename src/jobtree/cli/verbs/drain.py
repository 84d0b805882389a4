"""``kubectl runs drain``: cordon nodes and evict the pods on them."""

import click

from jobtree.cli.shell.options import CommandOptions, verb
from jobtree.cli.source.name_completion import node_names

EXAMPLES = """
kubectl runs --state cluster.yaml drain gpu-a-01    # as kubectl drain does on a live cluster
"""


@verb("drain", examples=EXAMPLES)
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True, shell_complete=node_names)
def command(settings: CommandOptions, nodes: tuple[str, ...]) -> None:
    """Cordon nodes and evict their pods at the same instant, and show what follows. Only in a simulation."""
    from jobtree.cli.tasks.node_changes import change_nodes
    from jobtree.simulation.cluster.simulated_cluster import SimulatedCluster

    change_nodes(settings, nodes, SimulatedCluster.drain, "drained")
