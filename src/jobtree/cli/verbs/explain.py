"""``kubectl runs explain``: the history of a Run."""

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
@click.option(
    "--verify", is_flag=True, help="Recompute all its lotteries; the exit code is 1 if a proof is refused."
)
def command(settings: CommandOptions, run: str, *, verify: bool) -> int:
    """Show the history of a Run: its phase and why, what it held and when, and who paid.

    It includes its promise, the risks to it, and the lotteries it took part in: which Runs competed with how
    many tickets, which were drawn, what was given back.
    """
    from jobtree.cli.shell.command_errors import Exit
    from jobtree.cli.source.session import find_run, read_cluster
    from jobtree.cli.views.runs.run_history import RunHistoryView

    if verify:
        from jobtree.cli.tasks.record_checks import verify_run

        return verify_run(settings, run)
    cluster = read_cluster(settings)
    history = RunHistoryView(cluster, cluster.world.runs[find_run(cluster, run, settings)])
    if settings.human:
        for line in history.lines():
            click.echo(line, color=settings.color)
    else:
        from jobtree.cli.shell.object_output import print_objects

        print_objects(settings, history.objects())
    return Exit.OK
