"""``kubectl runs leases``: which Runs used which GPUs, and who paid."""

from typing import TYPE_CHECKING

import click

from jobtree.cli.shell.options import CommandOptions, period_options, verb
from jobtree.cli.source.name_completion import run_names

if TYPE_CHECKING:
    from jobtree.client.source.lease_entries import LeaseEntry
    from jobtree.client.source.ledger_period import Period
    from jobtree.snapshot.cluster import Cluster

EXAMPLES = """
kubectl runs --state cluster.yaml leases train
kubectl runs --state cluster.yaml leases --owner org:ai:rai:sys --open
kubectl runs --state cluster.yaml leases train -o json
kubectl runs leases --owner org:ai --since 2026-01-01 --until 2026-02-01 -o csv > january.csv
"""


@verb("leases", examples=EXAMPLES, outputs=("csv",))
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
    """List leases: slots, role, payer, class, start and end, and why each opened and closed.

    Of a job tree, the leases of its stages are listed. Leases of cancelled Runs are included. With --since or
    --until: all leases that overlap that period, archived ones too; csv has one row for each, with its
    GPU-hours in that period and their cost. The exit code is 1 if a part of the archive cannot be read; a
    warning names it.
    """
    from jobtree.cli.source.archived_leases import archived
    from jobtree.cli.source.session import choose, read_cluster
    from jobtree.client.source.archive_access import IN_ARCHIVE, carries_anything
    from jobtree.client.source.lease_entries import belongs_to, entries
    from jobtree.client.source.ledger_period import parse_period
    from jobtree.client.source.owner_names import refuse_unknown_owner

    dated = since is not None or until is not None
    if (run is None) == (owner is None) and not (dated and run is None):
        raise click.UsageError("give either a Run or --owner OWNER; with --since TIME, neither is needed")
    period = parse_period(since, until)
    cluster = read_cluster(settings)
    with_archive = (dated or archive is not None) and not only_open
    archived_leases, code = archived(settings, cluster, period, archive) if with_archive else ([], 0)
    leases = entries(
        cluster, lambda lease: owner is None or belongs_to(lease.owner, owner), period, archived_leases
    )
    several = True
    if not leases:
        refuse_unknown_owner(cluster, owner)
    if run is not None:
        keys = {*cluster.world.runs, *(entry.lease.run_key for entry in leases)}
        key = choose(run, sorted(keys), settings)
        tree = cluster.world.runs.get(key)
        of_tree = (
            {key, *(stage.key for stage in cluster.world.run_graph.descendants(tree))} if tree else {key}
        )
        leases = [entry for entry in leases if entry.lease.run_key in of_tree]
        several = len(of_tree) > 1
    if only_open:
        leases = [entry for entry in leases if entry.end is None]
    elif not with_archive and settings.human and carries_anything(cluster):
        click.echo(IN_ARCHIVE, err=True)
    _print(settings, cluster, leases, period, with_runs=several)
    return code


def _print(
    settings: CommandOptions,
    cluster: "Cluster",
    leases: "list[LeaseEntry]",
    period: "Period",
    *,
    with_runs: bool,
) -> None:
    from jobtree.cli.shell.object_output import print_objects
    from jobtree.cli.views.ledger.lease_rows import print_rows
    from jobtree.cli.views.ledger.lease_table import print_leases

    if settings.output == "csv":
        print_rows(cluster, leases, period)
    elif settings.human:
        print_leases(settings, leases, with_runs=with_runs)
    else:
        print_objects(settings, [entry.body for entry in leases])
