"""``kubectl runs advance``: let time pass."""

import click

from jobtree.cli.shell.command_errors import CommandError, Exit
from jobtree.cli.shell.options import CommandOptions, verb

LATEST = "2999-12-31T00:00:00Z"

EXAMPLES = """
kubectl runs --state cluster.yaml advance 30m
kubectl runs --state cluster.yaml advance 1d12h
kubectl runs --state cluster.yaml advance --to 2026-01-06T00:00:00Z
kubectl runs --state cluster.yaml advance 30d --faults 7    # nodes fail and heal on the way
kubectl runs --state cluster.yaml advance 90d --archive archive/
"""


@verb("advance", examples=EXAMPLES)
@click.argument("duration", required=False)
@click.option("--to", "until", metavar="TIME", help="Up to this instant, in RFC 3339.")
@click.option(
    "--faults",
    metavar="SEED|FILE",
    help="Nodes fail and heal on the way: drawn from this number, or as in this CSV file of outages.",
)
@click.option(
    "--fault-rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="TIMES",
    help="So many times as many faults as real fleets have. Needs --faults with a number.",
)
@click.option(
    "--archive",
    metavar="DIR",
    help="Closed leases older than the policy's leaseRetention move from the file to this directory.",
)
def command(  # noqa: PLR0913  one for each option
    settings: CommandOptions,
    *,
    duration: str | None,
    until: str | None,
    faults: str | None,
    fault_rate: float | None,
    archive: str | None,
) -> None:
    """Move the clock of a simulation, and show what happened on the way: one event a line."""
    from jobtree.api.schema.quantities import format_time
    from jobtree.cli.shell.object_output import print_objects
    from jobtree.cli.source.session import edit_simulation
    from jobtree.cli.tasks.fault_injection import event_objects, simulate_faults
    from jobtree.cli.views.event_lines import event_lines

    if (duration is None) == (until is None):
        raise click.UsageError("advance needs a duration such as 30m, or --to TIME, and not both")
    if fault_rate is not None and not (faults or "").isdecimal():
        raise click.UsageError("--fault-rate needs --faults with a number to draw from")
    with edit_simulation(settings, archive=archive) as cluster:
        at = _instant(cluster.now, duration, until)
        if faults is None:
            cluster.advance(at)
            events = cluster.events
        else:
            events = simulate_faults(cluster, at, faults, fault_rate or 1.0)
    if not settings.human:
        print_objects(settings, list(event_objects(events)))
        return
    for line in event_lines(events):
        click.echo(line)
    click.echo(f"it is {format_time(cluster.now)}")


def _instant(now: int, duration: str | None, until: str | None) -> int:
    """When to stop. Raises CommandError for what is no time, in the past, or beyond all calendars."""
    from jobtree.api.schema.quantities import format_time, parse_duration, parse_time

    try:
        at = now + parse_duration(duration) if duration is not None else parse_time(until or "")
    except ValueError as broken:
        raise CommandError(Exit.USAGE, str(broken)) from None
    if at < now:
        raise CommandError(Exit.USAGE, f"it is {format_time(now)} already: time does not run backwards")
    if at > parse_time(LATEST):
        raise CommandError(Exit.USAGE, f"that is too far: the clock ends at {LATEST}")
    return at
