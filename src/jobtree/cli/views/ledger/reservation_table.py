"""Selects Reservations and formats their table."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from jobtree.api.kinds.reservation import Reservation
from jobtree.api.schema.quantities import parse_time
from jobtree.api.validation.object_parser import parse_object
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.shell.table import WIDE_ONLY, Column, print_table
from jobtree.cli.views.place_names import Places
from jobtree.client.source.lease_entries import belongs_to
from jobtree.messages.wording import age
from jobtree.snapshot.cluster import Cluster

COLUMNS = (
    Column("RESERVATION"),
    Column("RUN"),
    Column("ETA"),
    Column("IN", rank=2, right=True),
    Column("EXPECTED", rank=3),
    Column("DOMAINS", rank=1, shrinks=True),
    Column("GPUS", right=True, answer=True),
    Column("DEFICIT", right=True, answer=True),
    Column("CONFLICTS", rank=1, right=True, answer=True),
    Column("STATE", answer=True),
    Column("TAKES", rank=WIDE_ONLY),
    Column("SLIPS", rank=WIDE_ONLY, right=True),
    Column("CONFIDENCE", rank=WIDE_ONLY),
)


class ReservationEntry(NamedTuple):
    reservation: Reservation
    body: dict[str, Any]


def select_reservations(
    cluster: Cluster, namespace: str | None, owner: str | None, *, ended: bool
) -> list[ReservationEntry]:
    """Returns the Reservations of a namespace and a team, where given; earliest start first."""
    cluster.documents()
    candidates = [
        reservation_entry(body, cluster.objects.where(key)) for key, body in cluster.objects.of("Reservation")
    ]
    return sorted(
        (
            entry
            for entry in candidates
            if namespace in (None, entry.reservation.metadata.namespace)
            and (ended or entry.reservation.status.state in (None, "Pending"))
            and (owner is None or belongs_to(reservation_owner(cluster, entry), owner))
        ),
        key=start_order,
    )


def reservation_entry(body: dict[str, Any], where: str) -> ReservationEntry:
    parsed = parse_object(body, where)
    assert isinstance(parsed, Reservation)
    return ReservationEntry(parsed, body)


def reservation_owner(cluster: Cluster, entry: ReservationEntry) -> str:
    """Returns the owner of the Run, or an empty string if the Run is gone."""
    run = cluster.world.runs.get((entry.reservation.metadata.namespace, entry.reservation.spec.run_ref.name))
    return run.owner if run else ""


def start_order(entry: ReservationEntry) -> tuple[bool, str, str, str]:
    metadata, start = entry.reservation.metadata, entry.reservation.spec.earliest_start
    return (start is None, start or "", metadata.namespace, metadata.name)


def print_backlog(
    settings: CommandOptions, cluster: Cluster, reservations: Sequence[ReservationEntry]
) -> None:
    places = Places(cluster.world)
    if reservations:
        print_table(settings, COLUMNS, [reservation_row(places, entry.reservation) for entry in reservations])
    else:
        click.echo("no Reservations")


def promised_gpus(reservation: Reservation) -> int:
    """Returns the promised width: of all stages, where several start together."""
    status = reservation.status
    if status.members:
        return sum(member.terms.width for member in status.members)
    if status.terms is not None:
        return status.terms.width
    return sum(share.gpus for share in reservation.spec.intended_slice.domains)


def reservation_row(places: Places, reservation: Reservation) -> list[str]:
    spec, status, metadata = reservation.spec, reservation.status, reservation.metadata
    forecast = status.forecast
    start, terms = spec.earliest_start, status.terms
    pending = status.state in (None, "Pending")
    return [
        f"{metadata.namespace}/{metadata.name}",
        spec.run_ref.name,
        start or "none",
        age(parse_time(start) - places.world.now) if start and pending else "",
        forecast.expected_start.p50 if forecast and forecast.expected_start else "",
        ", ".join(places.called(share.domain) for share in spec.intended_slice.domains),
        str(promised_gpus(reservation)),
        str(forecast.deficit_gpus) if forecast else "",
        str(len(forecast.conflict_set)) if forecast else "",
        status.state or "Pending",
        terms.takes if terms else "",
        str(len(status.slips)),
        (forecast.confidence or "") if forecast else "",
    ]
