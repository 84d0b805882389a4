"""Selects Runs and formats their table."""

from collections.abc import Sequence

import click

from jobtree.api.schema.quantities import format_time
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.shell.table import WIDE_ONLY, Column, print_table
from jobtree.cli.views.place_names import Places
from jobtree.cli.views.runs.promise_view import eta
from jobtree.cli.views.runs.run_summary import class_split, payers, reason, run_title, since, width_text
from jobtree.client.source.lease_entries import belongs_to
from jobtree.core import RunState, World, phase_of
from jobtree.snapshot.cluster import Cluster

COLUMNS = (
    Column("RUN"),
    Column("OWNER", rank=4, shrinks=True),
    Column("PHASE"),
    Column("WIDTH", right=True),
    Column("PAID", rank=2, shrinks=True, answer=True),
    Column("DOMAINS", rank=3, shrinks=True),
    Column("SINCE", rank=3, right=True),
    Column("REASON", rank=1, answer=True),
    Column("ETA", rank=1, answer=True),
    Column("FLAVOR", rank=WIDE_ONLY),
    Column("PAYERS", rank=WIDE_ONLY),
    Column("CREATED", rank=WIDE_ONLY),
    Column("ATTEMPT", rank=WIDE_ONLY, right=True),
    Column("MESSAGE", rank=WIDE_ONLY),
)


def select_runs(cluster: Cluster, namespace: str | None, owner: str | None) -> list[RunState]:
    """Returns the Runs of a namespace and a team, where given, by name."""
    return [
        run
        for key, run in sorted(cluster.world.runs.items())
        if namespace in (None, key[0]) and (owner is None or belongs_to(run.owner, owner))
    ]


def print_runs(settings: CommandOptions, world: World, runs: Sequence[RunState]) -> None:
    places = Places(world)
    if runs:
        print_table(settings, COLUMNS, [_row(places, run) for run in runs])
    else:
        click.echo("no Runs")


def _row(places: Places, run: RunState) -> list[str]:
    return [
        run_title(run),
        run.owner,
        phase_of(places.world, run),
        width_text(run),
        class_split(run),
        places.domains(run.leases.values()),
        since(places, run),
        reason(run),
        eta(run),
        run.flavor,
        payers(run),
        format_time(run.created),
        str(run.attempt),
        run.verdict.message if run.verdict else "",
    ]
