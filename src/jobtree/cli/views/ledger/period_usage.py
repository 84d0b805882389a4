"""Adds up what each envelope paid for in a period, from the leases, including archived ones."""

import csv
import sys
from typing import Any, NamedTuple

import click

from jobtree.api.schema.object_meta import API_VERSION, GROUP
from jobtree.api.schema.quantities import HOUR, MICRO, MILLI, format_micro, format_milli, format_time
from jobtree.cli.shell.object_output import print_objects
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.shell.table import Column, print_table
from jobtree.cli.source.archived_leases import archived
from jobtree.client.answers.lease_rows import charge_of, decimal
from jobtree.client.source.lease_entries import LeaseEntry, belongs_to, entries
from jobtree.client.source.ledger_period import FOREVER, Period
from jobtree.client.source.owner_names import refuse_unknown_owner
from jobtree.core import CLASSES, EnvelopeKey, reported_amount, usage_class
from jobtree.snapshot.cluster import Cluster

COLUMNS = (
    Column("ENVELOPE"),
    Column("OWNER", rank=2, shrinks=True),
    Column("FLAVOR", rank=3),
    Column("HOURS", right=True),
    Column("CREDITS", rank=1, right=True),
    Column("HOURS BY CLASS", shrinks=True),
)
ROWS = ("budget", "envelope", "owner", "flavor", "gpu_seconds", "gpu_hours", "credits", *CLASSES)


class PeriodUsage(NamedTuple):
    """The usage of one envelope in a period, in thousandths of a GPU times milliseconds."""

    owner: str
    flavor: str
    charge: int
    price: int
    by_class: dict[str, int]


def print_period(
    settings: CommandOptions, cluster: Cluster, owner: str | None, period: Period, directory: str | None
) -> int:
    archived_leases, code = archived(settings, cluster, period, directory)
    wanted = entries(
        cluster, lambda lease: owner is None or belongs_to(lease.payer_owner, owner), period, archived_leases
    )
    if not wanted:
        refuse_unknown_owner(cluster, owner)
    usage = usage_by_envelope(cluster, wanted, period)
    if settings.output == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(ROWS)
        writer.writerows(csv_row(key, used) for key, used in sorted(usage.items()))
    elif not settings.human:
        print_objects(settings, budgets_of(cluster, usage, period))
    elif usage:
        print_table(settings, COLUMNS, [table_row(key, used) for key, used in sorted(usage.items())])
    else:
        click.echo("no charges in this period")
    return code


def usage_by_envelope(
    cluster: Cluster, leases: list[LeaseEntry], period: Period
) -> dict[EnvelopeKey, PeriodUsage]:
    usage: dict[EnvelopeKey, PeriodUsage] = {}
    for lease, end, _, _ in leases:
        first, last = period.clip(lease.start, cluster.now if end is None else end)
        used = usage.get(lease.payer)
        if used is None:
            price = cluster.world.policy.price_milli(lease.flavor)
            used = PeriodUsage(lease.payer_owner, lease.flavor, 0, price, dict.fromkeys(CLASSES, 0))
        used.by_class[usage_class(lease)] += reported_amount(lease) * (last - first)
        usage[lease.payer] = used._replace(charge=used.charge + charge_of(lease) * (last - first))
    return usage


def csv_row(key: EnvelopeKey, used: PeriodUsage) -> list[str]:
    return [
        *key,
        used.owner,
        used.flavor,
        format_micro(used.charge),
        decimal(used.charge, MILLI * HOUR),
        decimal(used.charge * used.price, MICRO * HOUR),
        *(decimal(used.by_class[name], MILLI * HOUR) for name in CLASSES),
    ]


def table_row(key: EnvelopeKey, used: PeriodUsage) -> list[str]:
    split = [f"{name} {format_gpu_hours(used.by_class[name])}" for name in CLASSES if used.by_class[name]]
    spent = format_gpu_hours(used.charge * used.price // MILLI)
    return ["/".join(key), used.owner, used.flavor, format_gpu_hours(used.charge), spent, ", ".join(split)]


def format_gpu_hours(use: int) -> str:
    """Returns GPU-hours to the thousandth, as in the status of a Budget."""
    return format_milli(use // HOUR)


def budgets_of(
    cluster: Cluster, usage: dict[EnvelopeKey, PeriodUsage], period: Period
) -> list[dict[str, Any]]:
    """Returns Budgets whose status covers only the period, which annotations name."""
    bounds = {"since": period.since, "until": period.until}
    annotations = {f"{GROUP}/{word}": format_time(at) for word, at in bounds.items() if abs(at) != FOREVER}
    bodies: dict[str, dict[str, Any]] = {}
    for (budget, envelope), used in sorted(usage.items()):
        existing = cluster.world.budgets.budgets.get(budget)
        owner = existing.spec.owner if existing is not None else used.owner
        body = bodies.setdefault(
            budget,
            {
                "apiVersion": API_VERSION,
                "kind": "Budget",
                "metadata": {"name": budget, "annotations": annotations},
                "spec": {"owner": owner},
                "status": {"envelopes": []},
            },
        )
        body["status"]["envelopes"].append(
            {
                "name": envelope,
                "usedGPUHours": format_gpu_hours(used.charge),
                "usedCredits": format_gpu_hours(used.charge * used.price // MILLI),
                "gpuHoursByClass": {name: format_gpu_hours(used.by_class[name]) for name in CLASSES},
            }
        )
    return list(bodies.values())
