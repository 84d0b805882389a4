"""Checking the proof of a lottery, from its Reservation alone: no cluster, no key, no network.

Where the lottery key of this machine is at hand, its public half is compared with the one that signed; a
key is never made for that.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from jobtree.cli.shell.object_output import api_status
from jobtree.cli.views.lottery.resolution_records import ObjectBody
from jobtree.core import BeaconInput, Record, nonce_for, verify
from jobtree.messages.record_signature import public_key
from jobtree.snapshot.lottery_key_file import key_path, load_key

HEX = re.compile(r"[0-9a-f]*")
HEX_FIELDS = ("commitment", "nonce", "seed", "signature", "publicKey")
UNREADABLE = "the record is not one: {}"
ALTERED = "the record has fields or values that are none of a record's"


class Proof(NamedTuple):
    """The answer: what is wrong, which is nothing where it is accepted; and what it was compared with."""

    reservation: str
    wrong: list[str]
    compared: bool
    beacon: str

    @property
    def accepted(self) -> bool:
        return not self.wrong


def local_key() -> bytes | None:
    """The lottery key of this machine, where there is one."""
    path = key_path()
    return load_key(path) if path.exists() else None


def prove(body: ObjectBody, key: bytes | None) -> Proof:
    """Recompute all that the record of a Reservation says."""
    metadata = body["metadata"]
    title = f"{metadata.get('namespace', 'default')}/{metadata['name']}"
    raw = body["status"]["lottery"]
    try:
        record = msgspec.convert(raw, Record)
        wrong = [*misspelled(raw, record), *verify(record), *wrong_reservation(body, record)]
        beacon = said_of(record.beacon)
    except (msgspec.ValidationError, ValueError, IndexError, KeyError) as broken:
        return Proof(title, [UNREADABLE.format(broken)], compared=False, beacon="")
    if key is not None:
        wrong += foreign(record, key)
    return Proof(title, wrong, compared=key is not None, beacon=beacon)


def said_of(beacon: BeaconInput) -> str:
    """What was mixed in besides; that it was not at hand is for everybody to see."""
    if not beacon.name:
        return ""
    about = f"round {beacon.round} of beacon {beacon.name}"
    if not beacon.value:
        return f"; drawn without {about}, whose value was not at hand: compare it with what was published"
    return f"; {about} was {beacon.value}"


def misspelled(raw: Any, record: Record) -> Iterator[str]:  # noqa: ANN401  whatever stands in the document
    """Another spelling of the same values would be another record."""
    if msgspec.json.decode(msgspec.json.encode(record)) != raw:
        yield ALTERED
    for field in HEX_FIELDS:
        if not HEX.fullmatch(str(raw[field])):
            yield f"{field} is not in lower-case hexadecimal digits"


def wrong_reservation(body: ObjectBody, record: Record) -> Iterator[str]:
    """The record must be that of this Reservation, and of what it committed to."""
    spec, name = body["spec"], body["metadata"]["name"]
    if record.commitment != spec.get("commitment"):
        yield "the commitment is not the one that the Reservation published"
    committed = ((body["status"].get("terms") or {}).get("beacon")) or {"name": "", "round": 0}
    if (record.beacon.name, record.beacon.round) != (committed["name"], committed["round"]):
        yield "the round of the beacon is not the one that was fixed with the promise"
    if record.run != spec["runRef"]["uid"]:
        yield "the record is about another Run than the Reservation"
    if record.reservation != name or name.rpartition("-")[2] != str(record.number):
        yield "the record is that of another Reservation"


def foreign(record: Record, key: bytes) -> Iterator[str]:
    """The nonce and the signature must come from the key that is at hand."""
    if record.public_key != public_key(key):
        yield f"it was signed with another key than {key_path()}"
    elif nonce_for(key, record.run, record.number).hex() != record.nonce:
        yield f"the nonce does not come from {key_path()}, the Run and the number of the Reservation"


def proof_lines(proof: Proof) -> Iterator[str]:
    """``accepted: default/j4-1 …``, or ``refused`` and every reason."""
    if proof.accepted:
        key = "signed with the key of this machine" if proof.compared else "no key here to compare with"
        what = f"commitment, seed, draws, decision, signature ({key}){proof.beacon}"
        yield f"accepted: {proof.reservation}: {what}"
        return
    yield f"refused: {proof.reservation}"
    for reason in proof.wrong:
        yield f"  {reason}"


def status_of(proofs: list[Proof]) -> ObjectBody:
    """The answer as the API server words its own."""
    causes = [
        {"reason": "Refused", "field": proof.reservation, "message": reason}
        for proof in proofs
        for reason in proof.wrong
    ]
    return api_status("the proof is refused", causes)
