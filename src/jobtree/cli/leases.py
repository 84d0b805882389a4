"""``kubectl runs leases``: who held which GPUs, and who paid."""

import click

from jobtree.cli.names import run_names
from jobtree.cli.settings import Settings, verb

EXAMPLES = """
kubectl runs --state cluster.yaml leases train
kubectl runs --state cluster.yaml leases --owner org:ai:rai:sys --open
kubectl runs --state cluster.yaml leases train -o json
"""


@verb("leases", examples=EXAMPLES)
@click.argument("run", required=False, shell_complete=run_names)
@click.option("--owner", metavar="OWNER", help="Leases of all Runs of this team and of teams below it.")
@click.option("--open", "only_open", is_flag=True, help="Only leases that are open now.")
def command(settings: Settings, run: str | None, owner: str | None, *, only_open: bool) -> None:
    """Who held which GPUs: slots, role, payer, class, start and end, and why each opened and closed.

    Leases of a Run that was cancelled are still there.
    """
    from jobtree.cli.leasetable import print_leases
    from jobtree.cli.ledgerview import belongs_to, entries
    from jobtree.cli.output import print_objects
    from jobtree.cli.session import choose, read

    if (run is None) == (owner is None):
        raise click.UsageError("leases needs the name of a Run, or --owner OWNER, and not both")
    cluster = read(settings)
    found = entries(cluster, lambda lease: owner is None or belongs_to(lease.owner, owner))
    if run is not None:
        known = {*cluster.world.runs, *(entry.lease.run for entry in found)}
        key = choose(run, sorted(known), settings)
        found = [entry for entry in found if entry.lease.run == key]
    if only_open:
        found = [entry for entry in found if entry.end is None]
    if settings.human:
        print_leases(settings, found, with_runs=run is None)
    else:
        print_objects(settings, [entry.body for entry in found])
