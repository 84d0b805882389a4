"""``kubectl runs grow``: change the desired width of a Run."""

import click

from jobtree.cli.shell.options import CommandOptions, verb, width_options
from jobtree.cli.source.name_completion import run_names

EXAMPLES = """
kubectl runs --state cluster.yaml grow train --by 32
kubectl runs --state cluster.yaml grow train --to 160
"""


@verb("grow", examples=EXAMPLES)
@click.argument("run", metavar="RUN", shell_complete=run_names)
@width_options
def command(settings: CommandOptions, run: str, by: int | None, width: int | None) -> None:
    """Grow a malleable Run step by step, as GPUs and budget allow."""
    from jobtree.cli.tasks.width_change import resize

    resize(settings, run, 1, by, width)
