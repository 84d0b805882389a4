"""``kubectl runs heal``: put nodes back into service."""

import click

from jobtree.cli.names import node_names
from jobtree.cli.settings import Settings, verb

EXAMPLES = """
kubectl runs --state cluster.yaml heal gpu-a-01
"""


@verb("heal", examples=EXAMPLES)
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True, shell_complete=node_names)
def command(settings: Settings, nodes: tuple[str, ...]) -> None:
    """Put nodes back into service, and show what follows. Only in a simulation."""
    from jobtree.cli.nodework import change_nodes
    from jobtree.sim.cluster import Cluster

    change_nodes(settings, nodes, Cluster.heal, "in service")
