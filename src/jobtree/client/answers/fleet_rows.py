"""The rows of Budgets and Reservations."""

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from jobtree.api.kinds.reservation import Reservation

CLASSES = ("owned", "shared", "borrowed", "spare", "opportunistic")


class EnvelopeRow(msgspec.Struct, frozen=True):
    """The use of an envelope, or of an aggregate cap. What has no limit is None."""

    budget: str
    envelope: str
    owner: str
    flavor: str
    is_cap: bool
    used_gpus: Decimal
    free_gpus: Decimal | None
    used_gpu_hours: Decimal
    left_gpu_hours: Decimal | None
    left_credits: Decimal | None
    gpus_by_class: dict[str, Decimal]

    def row(self) -> dict[str, Any]:
        columns = msgspec.structs.asdict(self)
        by_class = columns.pop("gpus_by_class")
        return columns | {f"{name}_gpus": by_class.get(name, Decimal(0)) for name in CLASSES}


def envelope_rows(body: dict[str, Any]) -> Iterator[EnvelopeRow]:
    """Yields the envelopes of a Budget, then its caps; those without a status yet have used nothing."""
    spec, status = body["spec"], body.get("status") or {}
    for field, is_cap in (("envelopes", False), ("aggregateCaps", True)):
        used = {entry["name"]: entry for entry in status.get(field, ())}
        for declared in spec.get(field, ()):
            yield envelope_row(body, declared, used.get(declared["name"], {}), is_cap=is_cap)


def envelope_row(
    body: dict[str, Any], declared: dict[str, Any], used: dict[str, Any], *, is_cap: bool
) -> EnvelopeRow:
    return EnvelopeRow(
        budget=body["metadata"]["name"],
        envelope=declared["name"],
        owner=body["spec"]["owner"],
        flavor=declared.get("flavor", "*"),
        is_cap=is_cap,
        used_gpus=Decimal(used.get("usedGPUs", 0)),
        free_gpus=amount(used.get("freeGPUs")),
        used_gpu_hours=Decimal(used.get("usedGPUHours", 0)),
        left_gpu_hours=amount(used.get("leftGPUHours")),
        left_credits=amount(used.get("leftCredits")),
        gpus_by_class={name: Decimal(gpus) for name, gpus in used.get("gpusByClass", {}).items()},
    )


def amount(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)


class ReservationRow(msgspec.Struct, frozen=True):
    """A promised start. ``conflict_set`` names the Runs that may lose GPUs to it."""

    namespace: str
    name: str
    run: str
    state: str
    earliest_start: datetime | None
    expected_start: datetime | None
    domains: tuple[str, ...]
    gpus: int
    deficit_gpus: int
    conflict_set: tuple[str, ...]
    confidence: str
    slips: int

    def row(self) -> dict[str, Any]:
        return msgspec.structs.asdict(self)


def reservation_row(reservation: Reservation) -> ReservationRow:
    spec, status, metadata = reservation.spec, reservation.status, reservation.metadata
    forecast, terms = status.forecast, status.terms
    return ReservationRow(
        namespace=metadata.namespace,
        name=metadata.name,
        run=spec.run_ref.name,
        state=status.state or "Pending",
        earliest_start=instant(spec.earliest_start),
        expected_start=instant(forecast.expected_start.p50 if forecast and forecast.expected_start else None),
        domains=tuple(share.domain for share in spec.intended_slice.domains),
        gpus=terms.width if terms else sum(share.gpus for share in spec.intended_slice.domains),
        deficit_gpus=forecast.deficit_gpus if forecast else 0,
        conflict_set=forecast.conflict_set if forecast else (),
        confidence=(forecast.confidence or "") if forecast else "",
        slips=len(status.slips),
    )


def instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
