"""``kubectl runs state``: all Runs at a glance."""

import click

from jobtree.cli.settings import Settings, verb

EXAMPLES = """
kubectl runs --state cluster.yaml state --all
kubectl runs --state cluster.yaml state --owner org:ai:rai:sys
kubectl runs --state cluster.yaml state -n rai-sys -o wide
"""


@verb("state", examples=EXAMPLES)
@click.option("--all", "everywhere", is_flag=True, help="Runs of all namespaces, whatever -n says.")
@click.option("--owner", metavar="OWNER", help="Only Runs of this team and of teams below it.")
def command(settings: Settings, owner: str | None, *, everywhere: bool) -> None:
    """All Runs: phase, width, who pays, where they are, and why they wait.

    WIDTH is GPUs allocated of GPUs desired, PAID splits what they hold by class, SINCE is how long a Run has
    been in its phase, ETA is when a waiting Run is promised to start.
    """
    from jobtree.cli.output import print_objects
    from jobtree.cli.runtable import print_runs, select
    from jobtree.cli.session import read

    cluster = read(settings)
    states = select(cluster, None if everywhere else settings.namespace, owner)
    if settings.human:
        print_runs(settings, cluster.world, states)
        return
    cluster.documents()
    found = (cluster.objects.get(("Run", *state.key)) for state in states)
    print_objects(settings, [body for body in found if body])
