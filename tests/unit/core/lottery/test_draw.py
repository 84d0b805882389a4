"""A record verifies without other data, and none with a changed byte does (X7–X9)."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from jobtree.core.lottery.draw import commitment_of, draw_order, nonce_for, run_lottery, seed_of
from jobtree.core.lottery.kill_probability import (
    exact_probabilities,
    kill_probabilities,
    simulated_probabilities,
)
from jobtree.core.lottery.resolution import Case, NodeRoom, Taking, Ticket
from jobtree.core.lottery.resolution_record import Record, make_record, signed_bytes, verify
from jobtree.messages.record_signature import public_key, sign

KEY = b"a lottery key of thirty-two byte"
DRAWS = 3_000


def two_domains() -> Case:
    """Two domains, both short: it takes at least one draw in each, and one ticket reaches into both."""
    return Case(
        pod_size=4,
        pods=(("nv-a", 3), ("nv-b", 2)),
        nodes=(
            NodeRoom("a0", "nv-a", 4),
            NodeRoom("a1", "nv-a", 0),
            NodeRoom("a2", "nv-a", 0),
            NodeRoom("b0", "nv-b", 0),
            NodeRoom("b1", "nv-b", 2),
        ),
        takings=(
            Taking("DropSpares", "u1", (("a1", 2),), "u1/spare"),
            Taking("Shrink", "u2", (("b1", 1),), "u2/step/0"),
        ),
        tickets=(
            Ticket("u1", (("a1", 2), ("a2", 4))),
            Ticket("u2", (("b0", 4),)),
            Ticket("u3", (("a2", 4), ("b0", 4))),
            Ticket("u4", (("a1", 4), ("b1", 1))),
        ),
    )


def held(number: int = 1, case: Case | None = None) -> Record:
    nonce = nonce_for(KEY, "winner", number)
    return sign(make_record(f"big-{number}", "winner", number, nonce, case or two_domains()), KEY)


def test_a_record_is_verified_without_other_data() -> None:
    """The record holds all that decides, signed (X8)."""
    written = msgspec.json.encode(held())
    read = msgspec.json.decode(written, type=Record)
    assert verify(read) == []
    assert read.public_key == public_key(KEY)
    assert read.commitment == commitment_of(nonce_for(KEY, "winner", 1))


def test_a_promise_draws_the_same_losers_each_time() -> None:
    assert held() == held()
    assert held(2).seed != held(1).seed


def changes(value: Any, path: tuple[object, ...] = ()) -> Iterator[tuple[tuple[object, ...], Any]]:  # noqa: ANN401  plain JSON
    """The same document with one leaf changed, or one member of a list missing, doubled or moved."""
    if isinstance(value, dict):
        for key, inner in value.items():
            for where, changed in changes(inner, (*path, key)):
                yield where, {**value, key: changed}
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            for where, changed in changes(inner, (*path, at)):
                yield where, [*value[:at], changed, *value[at + 1 :]]
            yield (*path, at, "missing"), value[:at] + value[at + 1 :]
            yield (*path, at, "doubled"), [*value[: at + 1], *value[at:]]
        if len(value) > 1 and value[::-1] != value:
            yield (*path, "reversed"), value[::-1]
    else:
        yield from ((path, changed) for changed in leaf_changes(value))


def leaf_changes(value: bool | int | str) -> Iterator[bool | int | str]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1)
    else:
        yield "00" + value[2:] if value[:2] not in ("", "00") else value + "01"
        yield value[:-1] + ("0" if value[-1:] != "0" else "1")
        yield from (value[:-1] + "x", value + " ")
        if value.upper() != value:
            yield value.upper()


def test_a_record_is_refused_when_any_field_changed() -> None:
    record = held()
    body: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(record))
    accepted, tried = [], 0
    for where, changed in changes(body):
        try:
            forged = msgspec.convert(changed, Record)
        except msgspec.ValidationError:
            continue  # it is not even a record
        tried += 1
        assert forged != record, where
        if not verify(forged):
            accepted.append(where)
    assert tried > 100
    assert accepted == []


def test_a_record_signed_with_another_key_is_refused_when_the_decision_changed() -> None:
    """The commitment was published before: whoever changes the case also needs another nonce."""
    record, other = held(), b"somebody else's key, as long as it"
    tickets = record.case.tickets
    for case in (
        msgspec.structs.replace(record.case, tickets=tickets[1:]),
        msgspec.structs.replace(record.case, tickets=tickets[:-1]),
        msgspec.structs.replace(record.case, tickets=tickets[::-1]),
        msgspec.structs.replace(record.case, takings=record.case.takings[:1]),
    ):
        forged = sign(msgspec.structs.replace(record, case=case), other)
        assert "the seed does not follow from the nonce, the case and the beacon" in verify(forged)
    loser = record.decision.losers[0]
    spared = msgspec.structs.replace(
        record.decision, losers=tuple(uid for uid in record.decision.losers if uid != loser)
    )
    forged = sign(msgspec.structs.replace(record, decision=spared), other)
    assert verify(forged) == ["the decision does not follow from the draws"]
    nonce = bytes(32)
    again = sign(msgspec.structs.replace(held(), nonce=nonce.hex()), other)
    assert "the nonce is not the one that was committed to" in verify(again)


def test_a_record_is_refused_when_its_tickets_are_out_of_order() -> None:
    case = two_domains()
    turned = msgspec.structs.replace(case, tickets=case.tickets[::-1])
    assert verify(held(case=turned)) == ["the tickets are not in the order of their Runs' UIDs"]


def test_signed_bytes_are_canonical() -> None:
    signed = signed_bytes(held())
    assert b" " not in signed
    assert b"signature" not in signed
    assert b"publicKey" not in signed
    assert signed == msgspec.json.encode(msgspec.json.decode(signed), order="sorted")


def test_kill_probabilities_are_the_shares_of_draws_over_two_domains() -> None:
    case = two_domains()
    odds = exact_probabilities(case)
    assert kill_probabilities(case) == odds
    lost: Counter[str] = Counter()
    draws: Counter[int] = Counter()
    for number in range(DRAWS):
        _, decision = run_lottery(case, nonce_for(KEY, "winner", number))
        assert decision.packs
        lost.update(decision.losers)
        draws[len(decision.draws)] += 1
    assert len(draws) > 1, "it must be a case of several draws"
    for uid, odd in odds.items():
        assert abs(lost[uid] * 1000 / DRAWS - odd) < 30, (uid, odds, lost)


def test_simulated_probabilities_are_within_their_error_of_the_exact_ones() -> None:
    case = two_domains()
    found = simulated_probabilities(case)
    assert all(abs(found[uid] - odd) <= 20 for uid, odd in exact_probabilities(case).items())
    assert simulated_probabilities(case) == found


def test_no_run_loses_that_is_not_needed() -> None:
    """X5: give back every draw, step and spare without which the gang still packs."""
    case = two_domains()
    for number in range(200):
        _, decision = run_lottery(case, nonce_for(KEY, "winner", number))
        for spared in decision.losers:
            assert not packs(case, decision.takings, [uid for uid in decision.losers if uid != spared])
        for index in decision.takings:
            kept = tuple(one for one in decision.takings if one != index)
            assert not packs(case, kept, decision.losers)
        assert packs(case, decision.takings, decision.losers)


def packs(case: Case, takings: tuple[int, ...], losers: tuple[str, ...] | list[str]) -> bool:
    """Pod by pod and by hand. What was taken from a loser is free as well."""
    free = {room.node: room.free for room in case.nodes}
    parts = [one.gpus for number, one in enumerate(case.takings) if number in takings or one.run in losers]
    parts += [ticket.gpus for ticket in case.tickets if ticket.run in losers]
    for gpus in parts:
        for node, count in gpus:
            free[node] += count
    room = {domain: 0 for domain, _ in case.pods}
    for one in case.nodes:
        room[one.domain] += free[one.node] // case.pod_size
    return all(room[domain] >= pods for domain, pods in case.pods)


@pytest.mark.parametrize("weights", [(1, 1, 1), (1, 2, 5), (3, 0, 1)])
def test_every_ticket_is_drawn_once_and_by_its_weight(weights: tuple[int, ...]) -> None:
    tickets = [Ticket(f"u{at}", (("n", weight),)) for at, weight in enumerate(weights)]
    first: Counter[int] = Counter()
    for number in range(DRAWS):
        order = list(draw_order(seed_of(nonce_for(KEY, "w", number), two_domains()), tickets))
        assert sorted(order) == [at for at, weight in enumerate(weights) if weight]
        first[order[0]] += 1
    for at, weight in enumerate(weights):
        assert abs(first[at] / DRAWS - weight / sum(weights)) < 0.03
