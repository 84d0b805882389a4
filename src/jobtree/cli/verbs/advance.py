"""``kubectl runs advance``: move the clock."""

import click

from jobtree.cli.shell.options import CommandOptions, verb

EXAMPLES = """
kubectl runs --state cluster.yaml advance 30m
kubectl runs --state cluster.yaml advance 1d12h
kubectl runs --state cluster.yaml advance --to 2026-01-06T00:00:00Z
kubectl runs --state cluster.yaml advance 30d --faults 7    # nodes fail and heal on the way
kubectl runs --state cluster.yaml advance 90d --archive archive/
"""


@verb("advance", examples=EXAMPLES)
@click.argument("duration", required=False)
@click.option("--to", "until", metavar="TIME", help="Move the clock to this time (RFC 3339).")
@click.option(
    "--faults",
    metavar="SEED|FILE",
    help="Let nodes fail and heal: drawn from this seed, or as listed in this CSV file of outages.",
)
@click.option(
    "--fault-rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="TIMES",
    help="Multiply the fault rate of real fleets by this factor. Requires --faults with a number.",
)
@click.option(
    "--archive",
    metavar="DIR",
    help="Move closed leases that are older than the policy's leaseRetention to this directory.",
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
    """Move the clock of a simulation, and print one line for each event on the way."""
    from jobtree.api.schema.quantities import format_time
    from jobtree.cli.shell.object_output import print_objects
    from jobtree.cli.source.session import edit_simulation
    from jobtree.cli.tasks.fault_injection import event_objects, simulate_faults
    from jobtree.cli.views.event_lines import event_lines
    from jobtree.client.source.clock_moves import instant_after

    if (duration is None) == (until is None):
        raise click.UsageError("give either a duration such as 30m or --to TIME")
    if fault_rate is not None and not (faults or "").isdecimal():
        raise click.UsageError("--fault-rate requires --faults with a number")
    with edit_simulation(settings, archive=archive) as cluster:
        at = instant_after(cluster.now, duration, until)
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
