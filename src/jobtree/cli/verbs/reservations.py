"""``kubectl runs reservations``: list promised starts."""

import click

from jobtree.cli.shell.options import CommandOptions, verb

EXAMPLES = """
kubectl runs --state cluster.yaml reservations
kubectl runs --state cluster.yaml reservations --owner org:ai:rai:sys
kubectl runs --state cluster.yaml reservations --all -o json
"""


@verb("reservations", examples=EXAMPLES)
@click.option(
    "--all", "ended", is_flag=True, help="Include activated, superseded and cancelled Reservations."
)
@click.option("--owner", metavar="OWNER", help="Only Reservations of this team and of teams below it.")
def command(settings: CommandOptions, owner: str | None, *, ended: bool) -> None:
    """List promised starts: which Runs start when and where, and how many GPUs they lack now.

    ETA is the promised start, DEFICIT the GPUs that the slice lacks now, CONFLICTS the number of Runs that
    may lose GPUs to the start.
    """
    from jobtree.cli.shell.object_output import print_objects
    from jobtree.cli.source.session import read_cluster
    from jobtree.cli.views.ledger.reservation_table import print_backlog, select_reservations
    from jobtree.client.source.owner_names import refuse_unknown_owner

    cluster = read_cluster(settings)
    refuse_unknown_owner(cluster, owner)
    reservations = select_reservations(cluster, settings.namespace, owner, ended=ended)
    if settings.human:
        print_backlog(settings, cluster, reservations)
    else:
        print_objects(settings, [entry.body for entry in reservations])
