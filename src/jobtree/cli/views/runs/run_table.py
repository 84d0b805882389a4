"""Formats the table of Runs."""

from collections.abc import Sequence

import click

from jobtree.api.schema.quantities import format_time
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.shell.table import WIDE_ONLY, Column, print_table
from jobtree.cli.views.place_names import Places
from jobtree.cli.views.runs.promise_view import eta
from jobtree.cli.views.runs.run_summary import class_split, payers, reason, run_title, since, width_text
from jobtree.core import RunState, World, phase_of

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
