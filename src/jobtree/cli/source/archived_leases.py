"""Reads the archived leases that a verb needs, and warns of those that cannot be read."""

import click

from jobtree.archive.day_file import ObjectBody
from jobtree.cli.shell.command_errors import Exit
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.source.session import live_cluster
from jobtree.client.source.archive_access import (
    NOTHING_ARCHIVED,
    ArchivedLeases,
    ManagerArchive,
    archived_since,
    carries_anything,
    open_directory,
)
from jobtree.client.source.ledger_period import Period
from jobtree.snapshot.cluster import Cluster


def archived(
    settings: CommandOptions, cluster: Cluster, period: Period, directory: str | None
) -> tuple[list[ObjectBody], int]:
    """Returns archived leases that may overlap the period, and an exit code; warns of unreadable files."""
    leases = _read(settings, cluster, period, directory)
    for warning in leases.warnings:
        click.echo(f"warning: {warning}", err=True)
    return leases.bodies, Exit.NO if leases.problems else Exit.OK


def _read(
    settings: CommandOptions, cluster: Cluster, period: Period, directory: str | None
) -> ArchivedLeases:
    if directory is not None:
        return archived_since(open_directory(directory), period.since)
    if not settings.live or not carries_anything(cluster):
        return NOTHING_ARCHIVED  # no lease was archived yet, so the user needs no right to read the archive
    return archived_since(ManagerArchive(live_cluster(settings).client), period.since)
