"""``kubectl runs events``: what happened to a Run."""

import click

from jobtree.cli.shell.options import CommandOptions, verb
from jobtree.cli.source.name_completion import run_names

EXAMPLES = """
kubectl runs --state cluster.yaml events train
kubectl runs events rai-sys/train
"""


@verb("events", examples=EXAMPLES)
@click.argument("run", shell_complete=run_names)
def command(settings: CommandOptions, run: str) -> None:
    """List what happened to a Run, in order: promises, starts, changes of width and payers, stops, its end.

    It is read from the leases and Reservations, so it goes back as far as these do, and covers deleted Runs.
    Kubernetes keeps Events for an hour. Of a job tree, what happened to its stages is listed.
    """
    from jobtree.cli.source.session import choose, read_cluster
    from jobtree.cli.views.event_lines import event_lines, event_object
    from jobtree.cli.views.runs.past_events import past_events, runs_with_a_past

    cluster = read_cluster(settings)
    key = choose(run, runs_with_a_past(cluster), settings)
    events = past_events(cluster, key)
    if settings.human:
        for line in event_lines(events):
            click.echo(line)
    else:
        from jobtree.cli.shell.object_output import print_objects

        print_objects(settings, [event_object(number, event) for number, event in enumerate(events)])
