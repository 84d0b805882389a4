"""``kubectl runs topology``: show domains, their nodes and GPUs, and missing labels."""

import click

from jobtree.cli.shell.command_errors import Exit
from jobtree.cli.shell.options import CommandOptions, verb
from jobtree.cli.source.name_completion import node_names

EXAMPLES = """
kubectl runs topology
kubectl runs --state cluster.yaml topology -o wide
kubectl runs topology label 'gpu-a-[01-16]' region=us-west cluster=gpu-a fabric.domain=nv-a
"""


@verb("topology", examples=EXAMPLES)
@click.argument("words", metavar="[label NODE... KEY=VALUE...]", nargs=-1, shell_complete=node_names)
def command(settings: CommandOptions, words: tuple[str, ...]) -> int:
    """Show the fleet by domain: nodes, GPUs, free GPUs; and commands that fix missing labels.

    'topology label' sets labels of nodes, which can be named as they are printed: 'gpu-a-[01-16]'.

    The exit code is 1 if labels of a node with GPUs are missing or look wrong, or if a node that is labelled
    with a flavor reports no GPUs.
    """
    from jobtree.api.kubernetes.node import read_node
    from jobtree.cli.shell.object_output import print_objects
    from jobtree.cli.source.session import read_cluster
    from jobtree.cli.views.fleet.domain_table import print_topology
    from jobtree.cli.views.fleet.label_repairs import label_repairs, nodes_without_gpus

    if words:
        from jobtree.cli.tasks.node_labels import label_nodes

        if words[0] != "label":
            raise click.UsageError(f"{words[0]} is unknown here: give nothing, or label NODE... KEY=VALUE...")
        return label_nodes(settings, words[1:])
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
