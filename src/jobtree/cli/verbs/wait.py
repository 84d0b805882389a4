"""``kubectl runs wait``: wait for a Run."""

from typing import TYPE_CHECKING

import click

from jobtree.cli.shell.options import CommandOptions, verb
from jobtree.cli.source.name_completion import run_names

if TYPE_CHECKING:
    from jobtree.client.run import Until

EXAMPLES = """
kubectl runs wait train                                        # until it runs
kubectl runs wait train --for Completed --timeout 12h
kubectl runs --state cluster.yaml wait train --for Finished    # moves the clock of the simulation
"""


@verb("wait", examples=EXAMPLES)
@click.argument("run", shell_complete=run_names)
@click.option(
    "--for",
    "until",
    type=click.Choice(("Running", "Completed", "Finished")),
    default="Running",
    help="What to wait for; Finished is Completed or Failed. [default: Running]",
)
@click.option("--timeout", metavar="DURATION", help="Wait no longer than this. [default: no limit]")
def command(settings: CommandOptions, run: str, until: "Until", timeout: str | None) -> None:
    """Wait until a Run runs, is completed or is finished.

    The exit code is 0 then, and 1 if the time is over, the Run failed or it was deleted. A Run that has
    completed counts as one that ran. A server that does not answer is asked again. On a simulated cluster the
    clock moves meanwhile.
    """
    from jobtree.cli.shell.object_output import print_objects
    from jobtree.cli.source.session import library_run

    waited = library_run(settings, run).wait(until, timeout)
    if settings.human:
        click.echo(f"{waited.namespace}/{waited.name} is {waited.row()['phase']}")
    else:
        print_objects(settings, [waited.to_dict()], many=False)
