"""The draw of a lottery: it cannot be steered and can be recomputed by anybody (X7, X8).

When a Reservation is made, ``commitment = SHA-256(nonce)`` is published, with nonce = HMAC-SHA-256(lottery
key, "<Run UID>/<n>"). At activation the nonce is revealed, and the seed is

    SHA-256(nonce ‖ SHA-256(canonical case) ‖ beacon)

where beacon is the value of the public round that was fixed with the promise. It is empty if the policy names
no beacon or the value is not available.

Draw i takes SHA-256(seed ‖ i as 8 bytes, big-endian) as an integer, where i counts every hash from 0.
Values at or above the largest multiple of the remaining weight are rejected, so that no ticket is favoured.
"""

import hashlib
import hmac
from collections.abc import Iterator, Sequence

import msgspec

from jobtree.core.lottery.resolution import Case, CaseSolver, Decision, Ticket

SPACE = 1 << 256


def nonce_for(key: bytes, run_uid: str, number: int) -> bytes:
    return hmac.new(key, f"{run_uid}/{number}".encode(), hashlib.sha256).digest()


def commitment_of(nonce: bytes) -> str:
    return hashlib.sha256(nonce).hexdigest()


def canonical_json(value: object) -> bytes:
    """Returns JSON with sorted keys and no spaces, of integers, strings, lists and maps of them."""
    return msgspec.json.encode(msgspec.to_builtins(value), order="deterministic")


def seed_of(nonce: bytes, case: Case, beacon: bytes = b"") -> bytes:
    return hashlib.sha256(nonce + hashlib.sha256(canonical_json(case)).digest() + beacon).digest()


def draw_order(seed: bytes, tickets: Sequence[Ticket]) -> Iterator[int]:
    """Yields the indexes of tickets in the order drawn, by weight, without replacement."""
    remaining = [(index, ticket.weight) for index, ticket in enumerate(tickets) if ticket.weight]
    count = 0
    while remaining:
        total = sum(weight for _, weight in remaining)
        limit = SPACE - SPACE % total
        value = limit
        while value >= limit:
            value = int.from_bytes(hashlib.sha256(seed + count.to_bytes(8, "big")).digest(), "big")
            count += 1
        point, position = value % total, 0
        while point >= remaining[position][1]:
            point -= remaining[position][1]
            position += 1
        yield remaining.pop(position)[0]


def run_lottery(case: Case, nonce: bytes, beacon: bytes = b"") -> tuple[bytes, Decision]:
    """Returns the seed and the decision that follow from a case, its nonce and the value of the beacon."""
    seed = seed_of(nonce, case, beacon)
    return seed, CaseSolver(case).decide(draw_order(seed, case.tickets))
