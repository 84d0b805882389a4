"""Finds the records of resolutions among the objects of a cluster, with the names of all Runs in them."""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import msgspec

from jobtree.core import Record, is_hex

ObjectBody = dict[str, Any]


class Resolution:
    """A Reservation that came due, with the record of its resolution."""

    def __init__(self, body: ObjectBody, record: Record, names: dict[str, str]) -> None:
        self.body = body
        self.record = record
        self._names = names

    @property
    def title(self) -> str:
        metadata = self.body["metadata"]
        return f"{metadata.get('namespace', 'default')}/{metadata['name']}"

    @property
    def due(self) -> str:
        return str(self.body["spec"].get("earliestStart", "?"))

    @property
    def uids(self) -> set[str]:
        """The Run that starts, all Runs with tickets, and all Runs that gave up GPUs."""
        case = self.record.case
        taken_from = {taking.run for taking in case.takings}
        return {self.record.run, *taken_from, *(ticket.run for ticket in case.tickets)}

    @property
    def is_consistent(self) -> bool:
        """Whether the decision refers only to entries of the case; in a forged record it may not."""
        case, decision = self.record.case, self.record.decision
        holders = {ticket.run for ticket in case.tickets}
        return (
            case.pod_size > 0
            and is_hex(self.record.nonce)
            and all(0 <= index < len(case.takings) for index in decision.takings)
            and len(set(decision.draws)) == len(decision.draws)
            and holders.issuperset(decision.draws)
            and set(decision.draws).issuperset(decision.losers)
        )

    def name(self, uid: str) -> str:
        """Returns the Run with that UID, or the UID if the Run is unknown."""
        return self._names.get(uid, uid)


def resolutions(bodies: Iterable[ObjectBody]) -> list[Resolution]:
    """Returns all readable resolutions, in the order in which they came due."""
    bodies = list(bodies)
    names = dict(names_by_uid(bodies))
    readable = []
    for body in chain.from_iterable(map(record_by_record, bodies)):
        if has_record(body):
            try:
                record = msgspec.convert(body["status"]["lottery"], Record)
            except msgspec.ValidationError:
                continue  # the verb verify reports what is wrong with it
            readable.append(Resolution(body, record, names))
    return sorted(readable, key=lambda resolution: (resolution.due, resolution.title))


def record_by_record(body: ObjectBody) -> Iterator[ObjectBody]:
    """Yields the Reservation once for each of its records; a stage gang has one record for each stage."""
    yield body
    status: ObjectBody = body["status"] if has_record(body) else {}
    for other in status.get("lotteries", ()):
        yield {**body, "status": {**status, "lottery": other, "lotteries": []}}


def has_record(body: ObjectBody) -> bool:
    status = body.get("status")
    return body.get("kind") == "Reservation" and isinstance(status, dict) and bool(status.get("lottery"))


def names_by_uid(bodies: Iterable[ObjectBody]) -> Iterator[tuple[str, str]]:
    """Yields UIDs and names: of Runs, and of deleted Runs from leases and Reservations."""
    for body in bodies:
        if body.get("kind") == "Run":
            metadata = body.get("metadata") or {}
            yield str(metadata.get("uid")), full_name(metadata)
        elif body.get("kind") in ("Lease", "Reservation"):
            reference = (body.get("spec") or {}).get("runRef") or {}
            yield str(reference.get("uid")), full_name(reference)


def full_name(names: ObjectBody) -> str:
    return f"{names.get('namespace', 'default')}/{names.get('name')}"
