"""``kubectl runs leases``: who held which GPUs, and who paid."""

from typing import TYPE_CHECKING

import click

from jobtree.cli.shell.options import CommandOptions, period_options, verb
from jobtree.cli.source.name_completion import run_names

if TYPE_CHECKING:
    from jobtree.cli.source.lease_entries import LeaseEntry
    from jobtree.cli.source.ledger_period import Period
    from jobtree.snapshot.cluster import Cluster

EXAMPLES = """
kubectl runs --state cluster.yaml leases train
kubectl runs --state cluster.yaml leases --owner org:ai:rai:sys --open
kubectl runs --state cluster.yaml leases train -o json
kubectl runs leases --owner org:ai --since 2026-01-01 --until 2026-02-01 -o csv > january.csv
"""


@verb("leases", examples=EXAMPLES, csv=True)
@click.argument("run", required=False, shell_complete=run_names)
@click.option("--owner", metavar="OWNER", help="Leases of all Runs of this team and of teams below it.")
@click.option("--open", "only_open", is_flag=True, help="Only leases that are open now.")
@period_options
def command(  # noqa: PLR0913  one for each option
    settings: CommandOptions,
    *,
    run: str | None,
    owner: str | None,
    since: str | None,
    until: str | None,
    archive: str | None,
    only_open: bool,
) -> int:
    """Who held which GPUs: slots, role, payer, class, start and end, and why each opened and closed.

    Leases of a Run that was cancelled are still there. With --since or --until, all that reach into that
    time, archived ones too; csv has one row for each, with its GPU-hours in that time and what they cost.
    The exit code is 1 if a part of the archive could not be read: which one is told.
    """
    from jobtree.cli.source.archive_access import IN_ARCHIVE, archived, carries_anything
    from jobtree.cli.source.lease_entries import belongs_to, entries
    from jobtree.cli.source.ledger_period import parse_period
    from jobtree.cli.source.session import choose, read_cluster

    dated = since is not None or until is not None
    if (run is None) == (owner is None) and not (dated and run is None):
        raise click.UsageError(
            "leases needs the name of a Run, or --owner OWNER, and not both; or --since TIME for all"
        )
    period = parse_period(since, until)
    cluster = read_cluster(settings)
    asked = (dated or archive is not None) and not only_open
    old, code = archived(settings, cluster, period, archive) if asked else ([], 0)
    found = entries(cluster, lambda lease: owner is None or belongs_to(lease.owner, owner), period, old)
    if run is not None:
        known = {*cluster.world.runs, *(entry.lease.run_key for entry in found)}
        key = choose(run, sorted(known), settings)
        found = [entry for entry in found if entry.lease.run_key == key]
    if only_open:
        found = [entry for entry in found if entry.end is None]
    elif not asked and settings.human and carries_anything(cluster):
        click.echo(IN_ARCHIVE, err=True)
    _print(settings, cluster, found, period, with_runs=run is None)
    return code


def _print(
    settings: CommandOptions,
    cluster: "Cluster",
    found: "list[LeaseEntry]",
    period: "Period",
    *,
    with_runs: bool,
) -> None:
    from jobtree.cli.shell.object_output import print_objects
    from jobtree.cli.views.ledger.lease_rows import print_rows
    from jobtree.cli.views.ledger.lease_table import print_leases

    if settings.output == "csv":
        print_rows(cluster, found, period)
    elif settings.human:
        print_leases(settings, found, with_runs=with_runs)
    else:
        print_objects(settings, [entry.body for entry in found])
