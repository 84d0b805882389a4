#!/usr/bin/env python3
"""Check a lottery of Jobtree without Jobtree.

    kubectl get reservation j4-1 -o json | python3 verify_lottery.py
    python3 verify_lottery.py --key PUBLISHED_KEY reservation.json

Reads a Reservation (or a List of them) as JSON, and prints for each with a record whether it proves itself:
``accepted``, or ``refused`` and why. The exit code is 0 if all are accepted, 1 if one is refused, 2 if there
is nothing to check. Needs Python 3.9 and the package ``cryptography``; it shares no code with Jobtree, and
follows the rules as they are published:

- commitment = SHA-256(nonce); it stood in the Reservation from the beginning, before anything was drawn.
- seed = SHA-256(nonce, SHA-256(canonical case), value of the beacon). The beacon's round was fixed with the
  promise (``status.terms.beacon``); without a beacon, or where its value was not at hand, the value is empty:
  then compare with what the beacon published.
- Draw i is SHA-256(seed, i as 8 bytes, big-endian) as an integer, i counting every hash from 0. Values at or
  above the largest multiple of the remaining tickets are skipped. A GPU is a ticket; Runs are sorted by UID.
- Cuts are made in the order of the case until the gang fits; if they are not enough, Runs are drawn until it
  does. Then, last first, every draw and every cut that the gang can do without is given back.
- The record without ``signature`` and ``publicKey`` is signed with Ed25519.

Canonical is JSON with sorted keys, no spaces, UTF-8.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

Map = dict[str, Any]

SPACE = 2**256
UNSIGNED = ("signature", "publicKey")
FIELDS = {
    "reservation",
    "run",
    "number",
    "commitment",
    "nonce",
    "seed",
    "case",
    "decision",
    "beacon",
    *UNSIGNED,
}
HEX = ("commitment", "nonce", "seed", *UNSIGNED)


def canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def sha256(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def draw_order(seed: bytes, tickets: list[Map]) -> Iterator[str]:
    """UIDs in the order in which they are drawn."""
    left = [(ticket["run"], sum(gpus for _, gpus in ticket["gpus"])) for ticket in tickets]
    left = [(run, weight) for run, weight in left if weight]
    hashes = (int.from_bytes(sha256(seed, i.to_bytes(8, "big")), "big") for i in range(2**63))
    while left:
        total = sum(weight for _, weight in left)
        point = next(value for value in hashes if value < SPACE - SPACE % total) % total
        position = 0
        while point >= left[position][1]:
            point -= left[position][1]
            position += 1
        yield left.pop(position)[0]


class Slice:
    """The nodes of the promised slice; what is freed on them decides whether the gang fits."""

    def __init__(self, case: Map) -> None:
        self.size = case["podSize"]
        self.pods = case["pods"]
        self.nodes = {room["node"]: room for room in case["nodes"]}
        self.freed: list[Map] = []

    def fits(self) -> bool:
        free = {name: room["free"] for name, room in self.nodes.items()}
        for part in self.freed:
            for node, gpus in part["gpus"]:
                if node in free:
                    free[node] += gpus
        room: dict[str, int] = {}
        for name, gpus in free.items():
            domain = self.nodes[name]["domain"]
            room[domain] = room.get(domain, 0) + gpus // self.size
        return all(room.get(domain, 0) >= pods for domain, pods in self.pods)

    def can_do_without(self, part: Map) -> bool:
        """Give a part back if the gang still fits; whether it did."""
        self.freed.remove(part)
        if self.fits():
            return True
        self.freed.append(part)
        return False


def decide(case: Map, seed: bytes) -> Map:
    """What has to give way, recomputed from the beginning."""
    place = Slice(case)
    cuts: list[int] = []
    drawn: list[str] = []
    for number, cut in enumerate(case["takings"]):
        if place.fits():
            break
        place.freed.append(cut)
        cuts.append(number)
    tickets = {ticket["run"]: ticket for ticket in case["tickets"]}
    order = draw_order(seed, case["tickets"])
    while not place.fits():
        run = next(order, None)
        if run is None:
            return {"packs": 0, "takings": [], "losers": [], "draws": drawn, "givenBack": []}
        place.freed.append(tickets[run])
        drawn.append(run)
    return give_back(case, place, cuts, drawn)


def give_back(case: Map, place: Slice, cuts: list[int], drawn: list[str]) -> Map:
    tickets = {ticket["run"]: ticket for ticket in case["tickets"]}
    losers: list[str] = []
    kept: list[int] = []
    returned: list[str] = []
    for run in reversed(drawn):
        if place.can_do_without(tickets[run]):
            returned.append(run)
        else:
            losers.insert(0, run)
    for number in reversed(cuts):
        cut = case["takings"][number]
        if cut["run"] in losers:
            continue  # it goes with the loser
        if place.can_do_without(cut):
            returned.append(cut["key"])
        else:
            kept.insert(0, number)
    return {"packs": 1, "takings": kept, "losers": losers, "draws": drawn, "givenBack": returned}


def well_signed(record: Map) -> bool:
    body = {name: value for name, value in record.items() if name not in UNSIGNED}
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(record["publicKey"]))
        key.verify(bytes.fromhex(record["signature"]), canonical(body))
    except (InvalidSignature, ValueError):
        return False
    return True


def objections(reservation: Map, published: str) -> Iterator[str]:
    """Everything that is wrong with a Reservation's record."""
    record = reservation["status"]["lottery"]
    if set(record) != FIELDS:
        yield "the record has other fields than a record has"
        return
    for name in HEX:
        if not set(record[name]) <= set("0123456789abcdef"):
            yield f"{name} is not in lower-case hexadecimal digits"
            return
    spec, name = reservation["spec"], reservation["metadata"]["name"]
    about = (record["reservation"], record["run"], f"-{record['number']}")
    if about != (name, spec["runRef"]["uid"], name[name.rfind("-") :]):
        yield "the record belongs to another Reservation"
    if published and record["publicKey"] != published:
        yield "it was not signed with the published key"
    fixed = (reservation["status"].get("terms") or {}).get("beacon") or {"name": "", "round": 0}
    if {"name": fixed["name"], "round": fixed["round"], "value": record["beacon"]["value"]} != record[
        "beacon"
    ]:
        yield "the beacon is not of the round that was fixed with the promise"
    yield from contradictions(record, spec)


def contradictions(record: Map, spec: Map) -> Iterator[str]:
    nonce = bytes.fromhex(record["nonce"])
    if not sha256(nonce).hex() == record["commitment"] == spec["commitment"]:
        yield "the nonce is not the one that was committed to"
    seed = sha256(nonce, sha256(canonical(record["case"])), bytes.fromhex(record["beacon"]["value"]))
    if seed.hex() != record["seed"]:
        yield "the seed does not follow from the nonce, the case and the beacon"
    runs = [ticket["run"] for ticket in record["case"]["tickets"]]
    if runs != sorted(set(runs)):
        yield "the tickets are not sorted by UID"
    if canonical(decide(record["case"], seed)) != canonical(record["decision"]):
        yield "the decision does not follow from the draws"
    if not well_signed(record):
        yield "the signature does not belong to these bytes and this key"


def check(reservation: Map, published: str) -> bool:
    """Print the answer for one Reservation; whether it is accepted."""
    name = reservation["metadata"]["name"]
    try:
        wrong = list(objections(reservation, published))
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as broken:
        wrong = [f"the record cannot be read: {type(broken).__name__} {broken}"]
    sys.stdout.write(f"{'refused' if wrong else 'accepted'}: {name}\n")
    sys.stdout.writelines(f"  {reason}\n" for reason in wrong)
    return not wrong


def each_record(reservation: Map) -> Iterator[Map]:
    """A Reservation that started several stages holds a record for each: the first apart, then the others."""
    for record in (reservation["status"]["lottery"], *reservation["status"].get("lotteries", ())):
        yield {**reservation, "status": {**reservation["status"], "lottery": record}}


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the proof of a lottery of Jobtree.")
    parser.add_argument("file", nargs="?", type=argparse.FileType(encoding="utf-8"), default=sys.stdin)
    parser.add_argument("--key", default="", help="the public key that was published, in hexadecimal digits")
    arguments = parser.parse_args()
    whole = json.load(arguments.file)
    found = whole["items"] if whole.get("kind") == "List" else [whole]
    drawn = [one for one in found if one["kind"] == "Reservation" and one.get("status", {}).get("lottery")]
    proofs = [proof for one in drawn for proof in each_record(one)]
    if not proofs:
        sys.stderr.write("there is no Reservation with a record in it: nothing was drawn yet\n")
        return 2
    accepted = [check(one, arguments.key) for one in proofs]
    return 0 if all(accepted) else 1


if __name__ == "__main__":
    sys.exit(main())
