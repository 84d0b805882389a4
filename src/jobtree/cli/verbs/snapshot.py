"""``kubectl runs snapshot``: print a live cluster as a state file."""

import click

from jobtree.cli.shell.options import CommandOptions, verb

EXAMPLES = """
kubectl runs snapshot > cluster.yaml
kubectl runs plan -f run.yaml --state cluster.yaml    # the same answer as the cluster would give
"""


@verb("snapshot", examples=EXAMPLES)
def command(settings: CommandOptions) -> None:
    """Print a live cluster as a state file: nodes, pods, budgets, runs, reservations, leases, the policy.

    The clock of the file is the time of the snapshot; a simulation continues from there.
    """
    from time import time_ns

    from jobtree.api.documents.document_stream import dump_yaml
    from jobtree.api.kinds.policy import clock_document
    from jobtree.cli.shell.command_errors import CommandError, Exit
    from jobtree.cli.source.session import live_cluster

    if not settings.live:
        raise CommandError(
            Exit.USAGE, "a state file is a snapshot already: leave out --state and JOBTREE_STATE"
        )
    bodies = live_cluster(settings).bodies()
    for body in bodies:
        body.get("metadata", {}).pop("managedFields", None)
    click.echo(dump_yaml([clock_document(time_ns() // 1_000_000), *bodies]), nl=False)
