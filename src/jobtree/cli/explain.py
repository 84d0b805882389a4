"""``kubectl runs explain``: the story of a Run."""

import click

from jobtree.cli.names import run_names
from jobtree.cli.settings import Settings, verb

EXAMPLES = """
kubectl runs --state cluster.yaml explain train
kubectl runs --state cluster.yaml explain train --verify
kubectl runs --state cluster.yaml explain train -o yaml    # the Run, its Reservations and all its leases
"""


@verb("explain", examples=EXAMPLES)
@click.argument("run", shell_complete=run_names)
@click.option("--verify", is_flag=True, help="Recompute every lottery it had a part in; 1 if one is refused.")
def command(settings: Settings, run: str, *, verify: bool) -> int:
    """The story of a Run: where it stands and why, what it held and when, who paid.

    With what it is promised, what threatens it, and the lotteries that it had a part in: who competed with
    how many tickets, what was drawn, what was given back.
    """
    from jobtree.cli.errors import Exit
    from jobtree.cli.session import find_run, read
    from jobtree.cli.story import Story

    if verify:
        from jobtree.cli.verified import verify_run

        return verify_run(settings, run)
    cluster = read(settings)
    told = Story(cluster, cluster.world.runs[find_run(cluster, run, settings)])
    if settings.human:
        for line in told.lines():
            click.echo(line, color=settings.color)
    else:
        from jobtree.cli.output import print_objects

        print_objects(settings, told.objects())
    return Exit.OK
