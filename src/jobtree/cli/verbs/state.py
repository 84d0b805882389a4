"""``kubectl runs state``: list Runs."""

import click

from jobtree.cli.shell.options import CommandOptions, verb

EXAMPLES = """
kubectl runs --state cluster.yaml state --all
kubectl runs --state cluster.yaml state --owner org:ai:rai:sys
kubectl runs --state cluster.yaml state -n rai-sys -o wide
"""


@verb("state", examples=EXAMPLES)
@click.option("--all", "everywhere", is_flag=True, help="List Runs of all namespaces; -n is ignored.")
@click.option("--owner", metavar="OWNER", help="Only Runs of this team and of teams below it.")
def command(settings: CommandOptions, owner: str | None, *, everywhere: bool) -> None:
    """List Runs: phase, width, who pays, where they run, and why they wait.

    WIDTH is allocated of desired GPUs, PAID the GPUs by class, SINCE the time in the present phase, ETA the
    promised start of a waiting Run. On a live cluster only the Runs of the context's namespace are listed,
    unless --all, --owner or -n is given.
    """
    from jobtree.cli.shell.object_output import print_objects
    from jobtree.cli.source.session import read_cluster
    from jobtree.cli.views.runs.run_table import print_runs, select_runs
    from jobtree.client.source.owner_names import refuse_unknown_owner

    cluster = read_cluster(settings)
    refuse_unknown_owner(cluster, owner)
    namespace = None if everywhere else namespace_of(settings, owner)
    runs = select_runs(cluster, namespace, owner)
    if settings.human and not runs and namespace:
        click.echo(f"no Runs in namespace {namespace}: --all lists the Runs of all namespaces")
    elif settings.human:
        print_runs(settings, cluster.world, runs)
    else:
        cluster.documents()
        bodies = (cluster.objects.get(("Run", *run.key)) for run in runs)
        print_objects(settings, [body for body in bodies if body])


def namespace_of(settings: CommandOptions, owner: str | None) -> str | None:
    """Returns the namespace to list; None: all, since teams use several and a simulation is shown whole."""
    if settings.namespace or owner or not settings.live:
        return settings.namespace
    from jobtree.cli.source.session import cluster_name

    return cluster_name(settings).default_namespace()
