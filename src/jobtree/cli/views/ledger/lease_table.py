"""Formats the table of leases."""

from collections.abc import Sequence

import click

from jobtree.api.schema.quantities import format_time
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.shell.table import WIDE_ONLY, Column, print_table
from jobtree.cli.views.place_names import slots_of
from jobtree.client.source.lease_entries import LeaseEntry

COLUMNS = (
    Column("RUN"),
    Column("GROUP", rank=5, right=True),
    Column("ROLE"),
    Column("CLASS", rank=3),
    Column("GPUS", rank=4, right=True),
    Column("SLOTS", shrinks=True),
    Column("PAYER", shrinks=True),
    Column("START", rank=1, answer=True),
    Column("END", rank=1, answer=True),
    Column("REASON", rank=2),
    Column("CLOSURE", rank=1, answer=True),
    Column("LEASE", rank=WIDE_ONLY),
    Column("OWNER", rank=WIDE_ONLY),
    Column("RATE", rank=WIDE_ONLY, right=True),
)


def print_leases(settings: CommandOptions, leases: Sequence[LeaseEntry], *, with_runs: bool) -> None:
    """Prints leases, oldest first; the column RUN only ``with_runs``."""
    first = 0 if with_runs else 1
    if leases:
        print_table(settings, COLUMNS[first:], [_row(entry)[first:] for entry in leases])
    else:
        click.echo("no leases")


def _row(entry: LeaseEntry) -> list[str]:
    lease = entry.lease
    return [
        "/".join(lease.run_key),
        str(lease.group),
        lease.role,
        lease.class_,
        str(lease.gpus),
        slots_of([lease]),
        "/".join(lease.payer),
        format_time(lease.start),
        format_time(entry.end) if entry.end is not None else "",
        lease.reason,
        entry.closure,
        lease.name,
        lease.owner,
        entry.body["spec"]["rate"],
    ]
