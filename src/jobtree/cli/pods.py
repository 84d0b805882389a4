"""``kubectl runs pods``: the pods of a Run."""

import click

from jobtree.cli.names import run_names
from jobtree.cli.settings import Settings, verb

EXAMPLES = """
kubectl runs pods train
kubectl runs pods train -o name | xargs kubectl describe
"""


@verb("pods", examples=EXAMPLES)
@click.argument("run", metavar="RUN", shell_complete=run_names)
def command(settings: Settings, run: str) -> None:
    """List the pods of a Run: rank, group, attempt, phase, node. Only on a live cluster."""
    from jobtree.cli.livepods import Crew, print_pods
    from jobtree.cli.output import print_objects

    crew = Crew(settings, run)
    if settings.human:
        print_pods(settings, crew)
    else:
        print_objects(settings, crew.pods)
