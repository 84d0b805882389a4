"""``kubectl runs timeline``: the coming hours of the fleet."""

import click

from jobtree.cli.shell.command_errors import CommandError, Exit
from jobtree.cli.shell.options import CommandOptions, verb

EXAMPLES = """
kubectl runs --state cluster.yaml timeline
kubectl runs --state cluster.yaml timeline --next 24h
"""


@verb("timeline", examples=EXAMPLES)
@click.option("--next", "span", metavar="DURATION", default="8h", help="How far to look ahead. [default: 8h]")
def command(settings: CommandOptions, span: str) -> None:
    """Draw the coming hours of each domain: which Runs hold how many GPUs, and which GPUs are promised.

    A Run that a promised start may stop is drawn with ? from that instant on.
    """
    from jobtree.api.schema.quantities import parse_duration
    from jobtree.cli.shell.object_output import print_objects
    from jobtree.cli.source.session import read_cluster
    from jobtree.cli.views.fleet.time_chart import Chart
    from jobtree.client.answers.timeline import Timeline

    try:
        ahead = parse_duration(span)
    except ValueError as error:
        raise CommandError(Exit.USAGE, str(error)) from None
    if not ahead:
        raise CommandError(Exit.USAGE, "--next must be longer than 0")
    timeline = Timeline(read_cluster(settings, pods=True), ahead)
    if not settings.human:
        print_objects(settings, timeline.objects())
        return
    for line in Chart(timeline).lines():
        click.echo(line)
