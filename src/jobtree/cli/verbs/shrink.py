"""``kubectl runs shrink``: change the desired width of a Run."""

import click

from jobtree.cli.shell.options import CommandOptions, verb, width_options
from jobtree.cli.source.name_completion import run_names

EXAMPLES = """
kubectl runs --state cluster.yaml shrink train --by 32
kubectl runs --state cluster.yaml shrink train --to 96
"""


@verb("shrink", examples=EXAMPLES)
@click.argument("run", metavar="RUN", shell_complete=run_names)
@width_options
def command(settings: CommandOptions, run: str, by: int | None, width: int | None) -> None:
    """Shrink a malleable Run: by whole groups if it has groups, else from its highest ranks."""
    from jobtree.cli.tasks.width_change import resize

    resize(settings, run, -1, by, width)
