"""Checks the proof of a lottery from its Reservation alone, without a cluster, a key or the network.

If this machine has a lottery key, its public half is compared with the key that signed the record; no key is
created for that.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from jobtree.client.errors import ArgumentError
from jobtree.client.lottery.resolution_records import ObjectBody, has_record, record_by_record
from jobtree.core import BeaconInput, Record, nonce_for, verify
from jobtree.messages.record_signature import public_key
from jobtree.snapshot.lottery_key_file import key_path, load_key

HEX = re.compile(r"[0-9a-f]*")
HEX_FIELDS = ("commitment", "nonce", "seed", "signature", "publicKey")
UNREADABLE = "the record cannot be read: {}"
ALTERED = "the record has fields or values that no record has"


class Proof(NamedTuple):
    """The result of a check: all that is wrong, and whether a key was compared."""

    reservation: str
    wrong: list[str]
    compared: bool
    beacon: str

    @property
    def accepted(self) -> bool:
        return not self.wrong


class Verification(NamedTuple):
    """The proofs of all records in a Reservation; a stage gang has one for each stage."""

    proofs: tuple[Proof, ...]

    @property
    def accepted(self) -> bool:
        return all(proof.accepted for proof in self.proofs)

    @property
    def problems(self) -> tuple[str, ...]:
        """All that is wrong."""
        return tuple(problem for proof in self.proofs for problem in proof.wrong)


def verify_record(body: ObjectBody) -> Verification:
    """Checks all records of a Reservation. Raises ArgumentError if it has none."""
    if not has_record(body):
        raise ArgumentError("the object is no Reservation with the record of a lottery in its status")
    return Verification(tuple(prove(part, local_key()) for part in record_by_record(body)))


def local_key() -> bytes | None:
    """Returns the lottery key of this machine, if there is one."""
    path = key_path()
    return load_key(path) if path.exists() else None


def prove(body: ObjectBody, key: bytes | None) -> Proof:
    """Recomputes the record of a Reservation."""
    metadata = body["metadata"]
    title = f"{metadata.get('namespace', 'default')}/{metadata['name']}"
    raw = body["status"]["lottery"]
    try:
        record = msgspec.convert(raw, Record)
        wrong = [*altered_fields(raw, record), *verify(record), *wrong_reservation(body, record)]
        beacon = beacon_note(record.beacon)
    except (msgspec.ValidationError, ValueError, IndexError, KeyError) as error:
        return Proof(title, [UNREADABLE.format(error)], compared=False, beacon="")
    if key is not None:
        wrong += wrong_key(record, key)
    return Proof(title, wrong, compared=key is not None, beacon=beacon)


def beacon_note(beacon: BeaconInput) -> str:
    """Returns a note on the beacon that the draw used, or that its value was not available."""
    if not beacon.name:
        return ""
    title = f"round {beacon.round} of beacon {beacon.name}"
    if not beacon.value:
        return f"; drawn without {title}, whose value was not available: compare with what was published"
    return f"; {title} was {beacon.value}"


def altered_fields(raw: Any, record: Record) -> Iterator[str]:  # noqa: ANN401  any document
    """Reports a record whose text differs from its canonical form."""
    if msgspec.json.decode(msgspec.json.encode(record)) != raw:
        yield ALTERED
    for field in HEX_FIELDS:
        if not HEX.fullmatch(str(raw[field])):
            yield f"{field} is not in lower-case hexadecimal digits"


def wrong_reservation(body: ObjectBody, record: Record) -> Iterator[str]:
    """Reports a record that does not belong to this Reservation and its commitment."""
    spec, name = body["spec"], body["metadata"]["name"]
    if record.commitment != spec.get("commitment"):
        yield "the commitment is not the one that the Reservation published"
    committed = ((body["status"].get("terms") or {}).get("beacon")) or {"name": "", "round": 0}
    if (record.beacon.name, record.beacon.round) != (committed["name"], committed["round"]):
        yield "the round of the beacon is not the one that was fixed with the promise"
    if record.run != spec["runRef"]["uid"]:
        yield "the record names another Run than the Reservation"
    if record.reservation != name or name.rpartition("-")[2] != str(record.number):
        yield "the record belongs to another Reservation"


def wrong_key(record: Record, key: bytes) -> Iterator[str]:
    """Reports a record that was not made with the key of this machine."""
    if record.public_key != public_key(key):
        yield f"it was signed with another key than {key_path()}"
    elif nonce_for(key, record.run, record.number).hex() != record.nonce:
        yield f"the nonce does not come from {key_path()}, the Run and the number of the Reservation"
