"""``kubectl runs explain``: the story of a Run."""

import click

from jobtree.cli.shell.options import CommandOptions, verb
from jobtree.cli.source.name_completion import run_names

EXAMPLES = """
kubectl runs --state cluster.yaml explain train
kubectl runs --state cluster.yaml explain train --verify
kubectl runs --state cluster.yaml explain train -o yaml    # the Run, its Reservations and all its leases
"""


@verb("explain", examples=EXAMPLES)
@click.argument("run", shell_complete=run_names)
@click.option("--verify", is_flag=True, help="Recompute every lottery it had a part in; 1 if one is refused.")
def command(settings: CommandOptions, run: str, *, verify: bool) -> int:
    """The story of a Run: where it stands and why, what it held and when, who paid.

    With what it is promised, what threatens it, and the lotteries that it had a part in: who competed with
    how many tickets, what was drawn, what was given back.
    """
    from jobtree.cli.shell.command_errors import Exit
    from jobtree.cli.source.session import find_run, read_cluster
    from jobtree.cli.views.runs.run_history import RunHistoryView

    if verify:
        from jobtree.cli.tasks.record_checks import verify_run

        return verify_run(settings, run)
    cluster = read_cluster(settings)
    told = RunHistoryView(cluster, cluster.world.runs[find_run(cluster, run, settings)])
    if settings.human:
        for line in told.lines():
            click.echo(line, color=settings.color)
    else:
        from jobtree.cli.shell.object_output import print_objects

        print_objects(settings, told.objects())
    return Exit.OK
