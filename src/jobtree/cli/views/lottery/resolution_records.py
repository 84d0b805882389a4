"""Records of resolutions, found in the documents of a cluster, with the names of all who took part."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from jobtree.core import Record, is_hex

ObjectBody = dict[str, Any]


class Resolution:
    """A Reservation that came due: what was promised, and the record of what was decided."""

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
        """All Runs that it touched: the one that starts, those with tickets, those that were cut."""
        case = self.record.case
        return {self.record.run, *(one.run for one in case.tickets), *(one.run for one in case.takings)}

    @property
    def tellable(self) -> bool:
        """Whether the decision speaks of what is in the case; in a forged record it may not."""
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
        """The Run of that UID; of one that is gone, the UID."""
        return self._names.get(uid, uid)


def resolutions(bodies: Iterable[ObjectBody]) -> list[Resolution]:
    """All that can be read, in the order in which they came due."""
    bodies = list(bodies)
    names = dict(names_by_uid(bodies))
    found = []
    for body in (part for one in bodies for part in record_by_record(one)):
        if has_record(body):
            try:
                record = msgspec.convert(body["status"]["lottery"], Record)
            except msgspec.ValidationError:
                continue  # verify says what is wrong with it
            found.append(Resolution(body, record, names))
    return sorted(found, key=lambda one: (one.due, one.title))


def record_by_record(body: ObjectBody) -> Iterator[ObjectBody]:
    """The Reservation with its record; one that started several stages, once for the record of each."""
    yield body
    status: ObjectBody = body["status"] if has_record(body) else {}
    for other in status.get("lotteries", ()):
        yield {**body, "status": {**status, "lottery": other, "lotteries": []}}


def has_record(body: ObjectBody) -> bool:
    status = body.get("status")
    return body.get("kind") == "Reservation" and isinstance(status, dict) and bool(status.get("lottery"))


def names_by_uid(bodies: Iterable[ObjectBody]) -> Iterator[tuple[str, str]]:
    """Runs say their own UID; leases and Reservations remember Runs that are gone."""
    for body in bodies:
        if body.get("kind") == "Run":
            metadata = body.get("metadata") or {}
            yield str(metadata.get("uid")), spelled(metadata)
        elif body.get("kind") in ("Lease", "Reservation"):
            reference = (body.get("spec") or {}).get("runRef") or {}
            yield str(reference.get("uid")), spelled(reference)


def spelled(names: ObjectBody) -> str:
    return f"{names.get('namespace', 'default')}/{names.get('name')}"
