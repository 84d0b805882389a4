"""``kubectl runs topology``: show domains, their nodes and GPUs, and missing labels."""

import click

from jobtree.cli.shell.command_errors import Exit
from jobtree.cli.shell.options import CommandOptions, verb

EXAMPLES = """
kubectl runs topology
kubectl runs --state cluster.yaml topology -o wide
"""


@verb("topology", examples=EXAMPLES)
def command(settings: CommandOptions) -> int:
    """Show the fleet by domain: nodes, GPUs, free GPUs; and commands that fix missing labels.

    The exit code is 1 if labels of a node with GPUs are missing or look wrong, or if a node that is labelled
    with a flavor reports no GPUs.
    """
    from jobtree.api.kubernetes.node import read_node
    from jobtree.cli.shell.object_output import print_objects
    from jobtree.cli.source.session import read_cluster
    from jobtree.cli.views.fleet.domain_table import print_topology
    from jobtree.cli.views.fleet.label_repairs import label_repairs, nodes_without_gpus

    cluster = read_cluster(settings, pods=True)
    nodes = [read_node(body, key[2]) for key, body in cluster.objects.of("Node")]
    repairs, empty = list(label_repairs(nodes)), nodes_without_gpus(nodes)
    if not settings.human:
        print_objects(settings, [body for _, body in cluster.objects.of("Node")])
        return Exit.NO if repairs or empty else Exit.OK
    print_topology(settings, cluster)
    if repairs:
        click.echo("labels to fix:")
    for repair in repairs:
        click.echo(f"  {repair.command}  # {repair.why}")
    if empty:
        click.echo("nodes with a flavor that report no GPUs: is their device plugin running?")
    for name in empty:
        click.echo(f"  kubectl describe node {name}")
    return Exit.NO if repairs or empty else Exit.OK
