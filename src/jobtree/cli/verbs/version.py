"""``kubectl runs version``: print the version."""

import click

from jobtree import __version__
from jobtree.cli.shell.options import CommandOptions, verb

EXAMPLES = """
kubectl runs version
"""


@verb("version", examples=EXAMPLES)
def command(settings: CommandOptions) -> None:
    """Print the version."""
    from jobtree.cli.shell.object_output import print_objects

    if settings.human or settings.output == "name":
        click.echo(f"jobtree {__version__}")
    else:
        print_objects(settings, [{"clientVersion": {"gitVersion": f"v{__version__}"}}], many=False)
