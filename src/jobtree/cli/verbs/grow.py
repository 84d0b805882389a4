"""``kubectl runs grow``: change the width that a Run wants."""

import click

from jobtree.cli.shell.options import CommandOptions, verb
from jobtree.cli.source.name_completion import run_names
from jobtree.cli.tasks.width_change import by_or_to

EXAMPLES = """
kubectl runs --state cluster.yaml grow train --by 32
kubectl runs --state cluster.yaml grow train --to 160
"""


@verb("grow", examples=EXAMPLES)
@click.argument("run", metavar="RUN", shell_complete=run_names)
@by_or_to
def command(settings: CommandOptions, run: str, by: int | None, width: int | None) -> None:
    """Let a malleable Run grow, a step at a time, when there is room and money."""
    from jobtree.cli.tasks.width_change import resize

    resize(settings, run, 1, by, width)
