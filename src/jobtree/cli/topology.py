"""``kubectl runs topology``: domains, their nodes and GPUs, and labels that are missing."""

import click

from jobtree.cli.errors import Exit
from jobtree.cli.settings import Settings, verb

EXAMPLES = """
kubectl runs topology
kubectl runs --state cluster.yaml topology -o wide
"""


@verb("topology", examples=EXAMPLES)
def command(settings: Settings) -> int:
    """Show the fleet by domain: nodes, GPUs, what is free; and how to mend labels that are missing.

    The exit code is 1 if a node with GPUs cannot be used because of its labels, or looks misplaced.
    """
    from jobtree.api.nodes import read_node
    from jobtree.cli.labels import mends
    from jobtree.cli.output import print_objects
    from jobtree.cli.session import read
    from jobtree.cli.topologytable import print_topology

    cluster = read(settings, pods=True)
    wrong = list(mends(read_node(body, key[2]) for key, body in cluster.objects.of("Node")))
    if not settings.human:
        print_objects(settings, [body for _, body in cluster.objects.of("Node")])
        return Exit.NO if wrong else Exit.OK
    print_topology(settings, cluster)
    if wrong:
        click.echo("labels to mend:")
    for one in wrong:
        click.echo(f"  {one.command}  # {one.why}")
    return Exit.NO if wrong else Exit.OK
