"""``kubectl runs pods``: the pods of a Run."""

import click

from jobtree.cli.shell.options import CommandOptions, verb
from jobtree.cli.source.name_completion import run_names

EXAMPLES = """
kubectl runs pods train
kubectl runs pods train -o name | xargs kubectl describe
"""


@verb("pods", examples=EXAMPLES)
@click.argument("run", metavar="RUN", shell_complete=run_names)
def command(settings: CommandOptions, run: str) -> None:
    """List the pods of a Run: rank, group, attempt, phase, node. Only on a live cluster."""
    from jobtree.cli.shell.object_output import print_objects
    from jobtree.cli.tasks.live_pods import print_pods, run_pods

    found = run_pods(settings, run)
    if settings.human:
        print_pods(settings, found)
    else:
        print_objects(settings, found.pods)
