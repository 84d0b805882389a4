"""``kubectl runs cancel``: delete Runs."""

import click

from jobtree.cli.shell.options import CommandOptions, verb
from jobtree.cli.source.name_completion import run_names

EXAMPLES = """
kubectl runs --state cluster.yaml cancel train
kubectl runs --state cluster.yaml cancel rai-sys/train rai-sys/eval
kubectl runs --state cluster.yaml cancel --owner org:ai:rai:sys    # all its Runs that are not finished
"""


@verb("cancel", examples=EXAMPLES)
@click.argument("runs", metavar="[RUN...]", nargs=-1, shell_complete=run_names)
@click.option("--owner", metavar="OWNER", help="All unfinished Runs of this team and of teams below it.")
def command(settings: CommandOptions, runs: tuple[str, ...], owner: str | None) -> None:
    """Delete Runs, all of them or none. Their leases close as Cancelled and stay in the ledger."""
    from jobtree.cli.shell.object_output import print_objects
    from jobtree.cli.source.session import edit, find_run
    from jobtree.cli.views.event_lines import event_lines
    from jobtree.client.source.stage_rules import refuse_stage

    if bool(runs) == (owner is not None):
        raise click.UsageError("give either RUN... or --owner OWNER")
    if owner is not None:
        runs = unfinished_runs(settings, owner)
    if settings.live:
        from jobtree.cli.tasks import live_writes

        live_writes.cancel(settings, runs)
        return
    with edit(settings) as cluster:
        cluster.documents()
        keys = list(dict.fromkeys(find_run(cluster, run, settings) for run in runs))
        bodies = [body for key in keys if (body := cluster.objects.get(("Run", *key)))]
        for key in keys:
            run = cluster.world.runs[key]
            refuse_stage("/".join(key), "/".join(run.parent) if run.parent else "")
        for key in keys:
            if key in cluster.world.runs:  # not cancelled with its tree
                cluster.cancel(key)
    if not settings.human:
        print_objects(settings, bodies, many=len(bodies) > 1)
        return
    for key in keys:
        click.echo(f"{'/'.join(key)} is cancelled")
    for line in event_lines(event for event in cluster.events if event.run not in keys):
        click.echo(line)


def unfinished_runs(settings: CommandOptions, owner: str) -> tuple[str, ...]:
    """Returns the names of a team's Runs that are not finished; of a job tree, only the tree."""
    from jobtree.cli.source.session import read_cluster
    from jobtree.client.source.lease_entries import belongs_to
    from jobtree.client.source.owner_names import refuse_unknown_owner
    from jobtree.core import FINISHED, phase_of

    cluster = read_cluster(settings)
    refuse_unknown_owner(cluster, owner)
    return tuple(
        "/".join(key)
        for key, run in sorted(cluster.world.runs.items())
        if belongs_to(run.owner, owner)
        and run.parent is None
        and settings.namespace in (None, key[0])
        and phase_of(cluster.world, run) not in FINISHED
    )
