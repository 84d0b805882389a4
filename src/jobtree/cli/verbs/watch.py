"""``kubectl runs watch``: follow a Run."""

import click

from jobtree.cli.shell.options import CommandOptions, verb
from jobtree.cli.source.name_completion import run_names

EXAMPLES = """
kubectl runs --state cluster.yaml watch train
kubectl runs --state cluster.yaml watch train --once
"""


@verb("watch", examples=EXAMPLES)
@click.argument("run", shell_complete=run_names)
@click.option("--once", is_flag=True, help="Print one line and stop.")
def command(settings: CommandOptions, run: str, *, once: bool) -> int:
    """Follow a Run: print a line for every change.

    A line shows the Run's allocated and desired width, its Reservation, the time until it starts, and the
    risks to it.

    The command ends when the Run is finished. The exit code is 0 if it is Completed, 1 if it Failed or was
    cancelled.
    """
    from jobtree.cli.tasks.run_watch import follow

    return follow(settings, run, once=once)
