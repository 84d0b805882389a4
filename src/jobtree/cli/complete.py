"""``kubectl runs complete``: the work of a Run is done."""

import click

from jobtree.cli.errors import CommandError, Exit
from jobtree.cli.names import run_names
from jobtree.cli.settings import Settings, verb

EXAMPLES = """
kubectl runs --state cluster.yaml complete train
"""


@verb("complete", examples=EXAMPLES)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=run_names)
def command(settings: Settings, runs: tuple[str, ...]) -> None:
    """Let all ranks of Runs succeed now, and show what follows. Only in a simulation."""
    from jobtree.cli.eventlines import event_lines
    from jobtree.cli.output import print_objects
    from jobtree.cli.session import edit, find_run

    with edit(settings) as cluster:
        keys = list(dict.fromkeys(find_run(cluster, run, settings) for run in runs))
        for key in keys:
            phase = cluster.world.runs[key].phase
            if phase != "Running":
                name = "/".join(key)
                hint = (
                    f"'kubectl runs plan {name}' says why"
                    if cluster.world.runs[key].waiting
                    else "it is finished"
                )
                raise CommandError(Exit.CONFLICT, f"{name} is {phase}, not Running: {hint}")
            cluster.complete(key)
        cluster.documents()
        bodies = [body for key in keys if (body := cluster.objects.get(("Run", *key)))]
    if not settings.human:
        print_objects(settings, bodies, many=len(bodies) > 1)
        return
    for line in event_lines(cluster.events):
        click.echo(line)
