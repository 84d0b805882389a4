"""``kubectl runs shrink``: change the width that a Run wants."""

import click

from jobtree.cli.shell.options import CommandOptions, verb
from jobtree.cli.source.name_completion import run_names
from jobtree.cli.tasks.width_change import by_or_to

EXAMPLES = """
kubectl runs --state cluster.yaml shrink train --by 32
kubectl runs --state cluster.yaml shrink train --to 96
"""


@verb("shrink", examples=EXAMPLES)
@click.argument("run", metavar="RUN", shell_complete=run_names)
@by_or_to
def command(settings: CommandOptions, run: str, by: int | None, width: int | None) -> None:
    """Make a malleable Run narrower: whole groups where it is grouped, else its highest ranks."""
    from jobtree.cli.tasks.width_change import resize

    resize(settings, run, -1, by, width)
