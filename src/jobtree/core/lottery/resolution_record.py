"""The record of a resolution: all that decides and what came out, so that anybody can check it (X8).

Canonical bytes are JSON with sorted keys and no spaces, integers and strings only, lower-case hex.
Whoever carries out the plan signs them. Verification needs nothing but the record.
"""

from typing import Any

import msgspec

from jobtree.core.lottery.draw import canonical_json, commitment_of, draw_order, run_lottery, seed_of
from jobtree.core.lottery.resolution import Case, CaseSolver, Decision

HEX = frozenset("0123456789abcdef")


class BeaconInput(msgspec.Struct, frozen=True):
    """The round of a beacon that was to be mixed in, and its value; empty where it was not at hand."""

    name: str = ""
    round: int = 0
    value: str = ""


NO_BEACON = BeaconInput()


class Record(msgspec.Struct, frozen=True, rename="camel"):
    """Field by field: what was promised before, what is revealed now, and what follows from both."""

    reservation: str
    run: str  # UID of the Run that starts
    number: int
    commitment: str
    nonce: str
    seed: str
    case: Case
    decision: Decision
    beacon: BeaconInput = NO_BEACON
    signature: str = ""
    public_key: str = ""


def make_record(  # noqa: PLR0913, PLR0917  all that decides
    reservation: str, run_uid: str, number: int, nonce: bytes, case: Case, beacon: BeaconInput = NO_BEACON
) -> Record:
    """Hold the lottery of a case and write down everything."""
    seed, decision = run_lottery(case, nonce, bytes.fromhex(beacon.value))
    return Record(
        reservation=reservation,
        run=run_uid,
        number=number,
        commitment=commitment_of(nonce),
        nonce=nonce.hex(),
        seed=seed.hex(),
        case=case,
        decision=decision,
        beacon=beacon,
    )


def make_refused_record(record: Record, commitment: str) -> Record:
    """The record of a draw that was not held: the nonce is not the one that was committed to."""
    return msgspec.structs.replace(record, commitment=commitment, decision=Decision(packs=0))


def signed_bytes(record: Record) -> bytes:
    """The bytes that are signed: the record without its signature and key."""
    body: dict[str, Any] = msgspec.to_builtins(record)
    return canonical_json(
        {key: value for key, value in body.items() if key not in ("signature", "publicKey")}
    )


def recompute(record: Record) -> Decision:
    """What follows from the record's own case and nonce."""
    seed = seed_of(bytes.fromhex(record.nonce), record.case, bytes.fromhex(record.beacon.value))
    return CaseSolver(record.case).decide(draw_order(seed, record.case.tickets))


def verify(record: Record) -> list[str]:
    """Everything that is wrong with a record; empty where it proves itself."""
    wrong = format_problems(record)
    if wrong:
        return wrong
    nonce = bytes.fromhex(record.nonce)
    if commitment_of(nonce) != record.commitment:
        wrong.append("the nonce is not the one that was committed to")
    if seed_of(nonce, record.case, bytes.fromhex(record.beacon.value)).hex() != record.seed:
        wrong.append("the seed does not follow from the nonce, the case and the beacon")
    if list(record.case.tickets) != sorted(record.case.tickets, key=lambda ticket: ticket.run):
        wrong.append("the tickets are not in the order of their Runs' UIDs")
    if recompute(record) != record.decision:
        wrong.append("the decision does not follow from the draws")
    if not has_valid_signature(record):
        wrong.append("the signature does not belong to these bytes and this key")
    return wrong


def format_problems(record: Record) -> list[str]:
    """What cannot be read at all, and so cannot be computed with."""
    written = {
        "nonce": record.nonce,
        "beacon.value": record.beacon.value,
        "signature": record.signature,
        "publicKey": record.public_key,
    }
    wrong = [f"{name} is not lower-case hex" for name, text in written.items() if not is_hex(text)]
    case = record.case
    counts = [pods for _, pods in case.pods]
    counts += [gpus for taking in case.takings for _, gpus in taking.gpus]
    counts += [gpus for ticket in case.tickets for _, gpus in ticket.gpus]
    if case.pod_size < 1 or min(counts, default=0) < 0:
        wrong.append("the case counts pods or GPUs that there cannot be")
    return wrong


def is_hex(text: str) -> bool:
    return len(text) % 2 == 0 and set(text) <= HEX


def has_valid_signature(record: Record) -> bool:
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415  slow to load, rarely needed
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(record.public_key))
        key.verify(bytes.fromhex(record.signature), signed_bytes(record))
    except (InvalidSignature, ValueError):
        return False
    return True
