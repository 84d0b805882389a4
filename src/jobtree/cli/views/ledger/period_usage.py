"""What every envelope paid for in a period, added up from the leases themselves, archived ones included."""

import csv
import sys
from typing import Any, NamedTuple

import click

from jobtree.api.schema.object_meta import API_VERSION, GROUP
from jobtree.api.schema.quantities import HOUR, MICRO, MILLI, format_micro, format_milli, format_time
from jobtree.cli.shell.object_output import print_objects
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.shell.table import Column, print_table
from jobtree.cli.source.archive_access import archived
from jobtree.cli.source.lease_entries import LeaseEntry, belongs_to, entries
from jobtree.cli.source.ledger_period import FOREVER, Period
from jobtree.cli.views.ledger.lease_rows import charge_of, decimal
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


class Paid(NamedTuple):
    """One envelope: charge and use by class, in thousandths of a GPU times milliseconds."""

    owner: str
    flavor: str
    charge: int
    price: int
    by_class: dict[str, int]


def print_period(
    settings: CommandOptions, cluster: Cluster, owner: str | None, period: Period, directory: str | None
) -> int:
    old, code = archived(settings, cluster, period, directory)
    wanted = entries(
        cluster, lambda lease: owner is None or belongs_to(lease.payer_owner, owner), period, old
    )
    paid = added_up(cluster, wanted, period)
    if settings.output == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(ROWS)
        writer.writerows(usage_row(key, one) for key, one in sorted(paid.items()))
    elif not settings.human:
        print_objects(settings, budgets_of(cluster, paid, period))
    elif paid:
        print_table(settings, COLUMNS, [line(key, one) for key, one in sorted(paid.items())])
    else:
        click.echo("nothing was paid for in that time")
    return code


def added_up(cluster: Cluster, found: list[LeaseEntry], period: Period) -> dict[EnvelopeKey, Paid]:
    paid: dict[EnvelopeKey, Paid] = {}
    for lease, end, _, _ in found:
        first, last = period.clip(lease.start, cluster.now if end is None else end)
        known = paid.get(lease.payer)
        if known is None:
            price = cluster.world.policy.price_milli(lease.flavor)
            known = Paid(lease.payer_owner, lease.flavor, 0, price, dict.fromkeys(CLASSES, 0))
        known.by_class[usage_class(lease)] += reported_amount(lease) * (last - first)
        paid[lease.payer] = known._replace(charge=known.charge + charge_of(lease) * (last - first))
    return paid


def usage_row(key: EnvelopeKey, paid: Paid) -> list[str]:
    return [
        *key,
        paid.owner,
        paid.flavor,
        format_micro(paid.charge),
        decimal(paid.charge, MILLI * HOUR),
        decimal(paid.charge * paid.price, MICRO * HOUR),
        *(decimal(paid.by_class[name], MILLI * HOUR) for name in CLASSES),
    ]


def line(key: EnvelopeKey, paid: Paid) -> list[str]:
    split = [f"{name} {format_gpu_hours(paid.by_class[name])}" for name in CLASSES if paid.by_class[name]]
    spent = format_gpu_hours(paid.charge * paid.price // MILLI)
    return ["/".join(key), paid.owner, paid.flavor, format_gpu_hours(paid.charge), spent, ", ".join(split)]


def format_gpu_hours(use: int) -> str:
    """GPU-hours to the thousandth, as a Budget's status has them."""
    return format_milli(use // HOUR)


def budgets_of(cluster: Cluster, paid: dict[EnvelopeKey, Paid], period: Period) -> list[dict[str, Any]]:
    """Budgets whose status tells of the period alone; annotations say which one."""
    bounds = {"since": period.since, "until": period.until}
    said = {f"{GROUP}/{word}": format_time(at) for word, at in bounds.items() if abs(at) != FOREVER}
    found: dict[str, dict[str, Any]] = {}
    for (budget, envelope), one in sorted(paid.items()):
        known = cluster.world.budgets.budgets.get(budget)
        owner = known.spec.owner if known is not None else one.owner
        body = found.setdefault(
            budget,
            {
                "apiVersion": API_VERSION,
                "kind": "Budget",
                "metadata": {"name": budget, "annotations": said},
                "spec": {"owner": owner},
                "status": {"envelopes": []},
            },
        )
        body["status"]["envelopes"].append(
            {
                "name": envelope,
                "usedGPUHours": format_gpu_hours(one.charge),
                "usedCredits": format_gpu_hours(one.charge * one.price // MILLI),
                "gpuHoursByClass": {name: format_gpu_hours(one.by_class[name]) for name in CLASSES},
            }
        )
    return list(found.values())
