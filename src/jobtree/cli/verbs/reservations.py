"""``kubectl runs reservations``: the backlog."""

import click

from jobtree.cli.shell.options import CommandOptions, verb

EXAMPLES = """
kubectl runs --state cluster.yaml reservations
kubectl runs --state cluster.yaml reservations --owner org:ai:rai:sys
kubectl runs --state cluster.yaml reservations --all -o json
"""


@verb("reservations", examples=EXAMPLES)
@click.option("--all", "ended", is_flag=True, help="Also those that were activated, superseded or cancelled.")
@click.option("--owner", metavar="OWNER", help="Only those of Runs of this team and of teams below it.")
def command(settings: CommandOptions, owner: str | None, *, ended: bool) -> None:
    """The backlog: which Runs are promised a start, when and where, and what has to give way for it.

    ETA is the promised start, DEFICIT what the slice lacks now, CONFLICTS how many Runs may have to give way.
    """
    from jobtree.cli.shell.object_output import print_objects
    from jobtree.cli.source.session import read_cluster
    from jobtree.cli.views.ledger.reservation_table import print_backlog, select_reservations

    cluster = read_cluster(settings)
    found = select_reservations(cluster, settings.namespace, owner, ended=ended)
    if settings.human:
        print_backlog(settings, cluster, found)
    else:
        print_objects(settings, [entry.body for entry in found])
