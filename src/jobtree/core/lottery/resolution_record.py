"""The record of a resolution: its input and its result, so that anybody can verify it (X8).

Canonical bytes are JSON with sorted keys and no spaces, integers and strings only, lower-case hex. The
process that writes the plan signs them. Verification needs only the record.
"""

from typing import Any

import msgspec

from jobtree.core.lottery.draw import canonical_json, commitment_of, draw_order, run_lottery, seed_of
from jobtree.core.lottery.resolution import Case, CaseSolver, Decision

HEX = frozenset("0123456789abcdef")


class BeaconInput(msgspec.Struct, frozen=True):
    """The beacon round that was fixed with the promise; its value is empty if it was not available."""

    name: str = ""
    round: int = 0
    value: str = ""


NO_BEACON = BeaconInput()


class Record(msgspec.Struct, frozen=True, rename="camel"):
    """What was published with the promise, what is revealed now, and the decision that follows."""

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


def make_record(  # noqa: PLR0913, PLR0917  all inputs of the decision
    reservation: str, run_uid: str, number: int, nonce: bytes, case: Case, beacon: BeaconInput = NO_BEACON
) -> Record:
    """Runs the lottery of a case and returns its record, without a signature."""
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
    """Returns the record of a lottery that was not held because the nonce does not match the commitment."""
    return msgspec.structs.replace(record, commitment=commitment, decision=Decision(packs=0))


def signed_bytes(record: Record) -> bytes:
    """Returns the bytes that are signed: the record without its signature and public key."""
    body: dict[str, Any] = msgspec.to_builtins(record)
    return canonical_json(
        {key: value for key, value in body.items() if key not in ("signature", "publicKey")}
    )


def recompute(record: Record) -> Decision:
    """Computes the decision from the case, the nonce and the beacon value of the record."""
    seed = seed_of(bytes.fromhex(record.nonce), record.case, bytes.fromhex(record.beacon.value))
    return CaseSolver(record.case).decide(draw_order(seed, record.case.tickets))


def verify(record: Record) -> list[str]:
    """Returns everything that is wrong with a record; empty if it is valid."""
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
    """Returns what cannot be read; nothing can be computed from such a record."""
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
