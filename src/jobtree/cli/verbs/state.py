"""``kubectl runs state``: all Runs at a glance."""

import click

from jobtree.cli.shell.options import CommandOptions, verb

EXAMPLES = """
kubectl runs --state cluster.yaml state --all
kubectl runs --state cluster.yaml state --owner org:ai:rai:sys
kubectl runs --state cluster.yaml state -n rai-sys -o wide
"""


@verb("state", examples=EXAMPLES)
@click.option("--all", "everywhere", is_flag=True, help="Runs of all namespaces, whatever -n says.")
@click.option("--owner", metavar="OWNER", help="Only Runs of this team and of teams below it.")
def command(settings: CommandOptions, owner: str | None, *, everywhere: bool) -> None:
    """All Runs: phase, width, who pays, where they are, and why they wait.

    WIDTH is GPUs allocated of GPUs desired, PAID splits what they hold by class, SINCE is how long a Run has
    been in its phase, ETA is when a waiting Run is promised to start. On a live cluster these are the Runs of
    the context's namespace, unless --all, --owner or -n says otherwise.
    """
    from jobtree.cli.shell.object_output import print_objects
    from jobtree.cli.source.session import read_cluster
    from jobtree.cli.views.runs.run_table import print_runs, select_runs

    cluster = read_cluster(settings)
    namespace = None if everywhere else namespace_of(settings, owner)
    runs = select_runs(cluster, namespace, owner)
    if settings.human and not runs and namespace:
        click.echo(f"no Runs in namespace {namespace}: --all shows those of all namespaces")
    elif settings.human:
        print_runs(settings, cluster.world, runs)
    else:
        cluster.documents()
        found = (cluster.objects.get(("Run", *run.key)) for run in runs)
        print_objects(settings, [body for body in found if body])


def namespace_of(settings: CommandOptions, owner: str | None) -> str | None:
    """None: all of them. Teams have Runs in several, and a simulation is looked at as a whole."""
    if settings.namespace or owner or not settings.live:
        return settings.namespace
    from jobtree.cli.source.live_cluster import default_namespace

    return default_namespace(settings)
