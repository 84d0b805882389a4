"""docs/verify_lottery.py shares no code with the package, and agrees with it on every record."""

import copy
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jobtree.cli.views.lottery.record_proof import proof_lines, prove
from jobtree.core.lottery.draw import nonce_for
from jobtree.core.lottery.resolution import Case, NodeRoom, Taking, TakingKind, Ticket
from jobtree.core.lottery.resolution_record import NO_BEACON, BeaconInput, Record, make_record
from jobtree.messages.record_signature import public_key, sign

SCRIPT = Path(__file__).parents[2] / "docs" / "verify_lottery.py"
KEY = bytes(range(32))
KINDS: tuple[TakingKind, ...] = ("Reclaim", "DropSpares", "Shrink")

Body = dict[str, Any]


def a_case(draw: random.Random) -> Case:
    """A small slice of two domains, with cuts and tickets here and there."""
    nodes = [f"n{number}" for number in range(8)]
    some = [tuple((node, draw.choice((2, 4, 8))) for node in sorted(draw.sample(nodes, 2))) for _ in range(9)]
    return Case(
        pod_size=4,
        pods=(("A", draw.randint(1, 9)), ("B", draw.randint(0, 3))),
        nodes=tuple(
            NodeRoom(node, "AB"[number % 2], draw.randint(0, 4)) for number, node in enumerate(nodes)
        ),
        takings=tuple(
            Taking(draw.choice(KINDS), f"run-{number}", gpus, f"run-{number}/{number}")
            for number, gpus in enumerate(some[:4])
        ),
        tickets=tuple(Ticket(f"run-{number}", gpus) for number, gpus in enumerate(some[4:])),
    )


def a_reservation(case: Case, number: int, beacon: BeaconInput = NO_BEACON) -> Body:
    """A Reservation of the Run ``starter`` that was activated with this case."""
    name, nonce = f"starter-{number}", nonce_for(KEY, "uid-of-starter", number)
    record = make_record(name, "uid-of-starter", number, nonce, case, beacon)
    terms = {"beacon": {"name": beacon.name, "round": beacon.round}} if beacon.name else {}
    return {
        "apiVersion": "rq.davidlangworthy.io/v1",
        "kind": "Reservation",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"runRef": {"name": "starter", "uid": record.run}, "commitment": record.commitment},
        "status": {"state": "Activated", "terms": terms, "lottery": written(sign(record, KEY))},
    }


def written(record: Record) -> Body:
    body: Body = msgspec.json.decode(msgspec.json.encode(record))
    return body


def script(whole: Body, *words: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words],
        input=json.dumps(whole),
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    return done.returncode, (done.stdout + done.stderr).splitlines()


def listed(bodies: list[Body]) -> Body:
    return {"apiVersion": "v1", "kind": "List", "items": bodies}


@pytest.fixture(name="reservation", scope="module")
def _reservation() -> Body:
    """One with draws, cuts and something given back."""
    draw = random.Random(1)
    for number in range(1, 1000):
        found = a_reservation(a_case(draw), number)
        decision = found["status"]["lottery"]["decision"]
        if decision["packs"] and decision["draws"] and decision["takings"] and decision["givenBack"]:
            return found
    raise AssertionError("no such case was drawn")


def test_it_accepts_what_the_package_records() -> None:
    draw = random.Random(2)
    bodies = [a_reservation(a_case(draw), number) for number in range(1, 301)]
    code, lines = script(listed(bodies))
    assert lines == [f"accepted: {body['metadata']['name']}" for body in bodies]
    assert code == 0
    decisions = [body["status"]["lottery"]["decision"] for body in bodies]
    assert {bool(decision["draws"]) for decision in decisions} == {True, False}
    assert any(len(decision["draws"]) > 2 for decision in decisions)
    assert any(not decision["packs"] for decision in decisions)
    assert any(decision["givenBack"] for decision in decisions)


def alterations(value: Any) -> Iterator[Any]:  # noqa: ANN401  whatever a record holds
    """The same value with one leaf changed, or one part left out, everywhere in turn."""
    match value:
        case dict():
            for name, part in value.items():
                yield {key: one for key, one in value.items() if key != name}
                for changed in alterations(part):
                    yield {**value, name: changed}
            yield {**value, "more": 1}
        case list():
            for at, part in enumerate(value):
                yield [*value[:at], *value[at + 1 :]]
                for changed in alterations(part):
                    yield [*value[:at], changed, *value[at + 1 :]]
        case _:
            yield from other_leaves(value)


def other_leaves(value: bool | int | str) -> Iterator[bool | int | str]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield value + 1
    else:
        yield f"{value[:-1]}{'0' if value[-1:] != '0' else '1'}"
        if value.upper() != value:
            yield value.upper()


def test_it_refuses_any_change_and_so_does_the_package(reservation: Body) -> None:
    changed = []
    for record in alterations(reservation["status"]["lottery"]):
        body = copy.deepcopy(reservation)
        body["status"]["lottery"] = record
        changed.append(body)
    assert len(changed) > 100
    code, lines = script(listed(changed))
    answers = [line for line in lines if not line.startswith("  ")]
    assert answers == [f"refused: {reservation['metadata']['name']}"] * len(changed)
    assert code == 1
    assert [prove(body, None).accepted for body in changed] == [False] * len(changed)
    assert prove(reservation, KEY).wrong == []


MIXED = BeaconInput("drand", 7, "00ff")


@pytest.mark.parametrize("beacon", [MIXED, BeaconInput("drand", 7)], ids=["at hand", "missing"])
def test_a_beacon_is_mixed_in_and_its_round_is_the_one_that_was_fixed(beacon: BeaconInput) -> None:
    body = a_reservation(a_case(random.Random(3)), 1, beacon)
    assert (script(body)[0], prove(body, KEY).wrong) == (0, [])
    assert f"round {beacon.round} of beacon drand" in next(proof_lines(prove(body, KEY)))
    for other in ({"name": "drand", "round": 8}, {"name": "other", "round": 7}, None):
        body["status"]["terms"]["beacon"] = other
        assert script(body)[0] == 1
        assert any("round of the beacon" in reason for reason in prove(body, None).wrong)


def test_another_value_of_the_beacon_is_another_seed() -> None:
    case = a_case(random.Random(3))
    seeds = {
        a_reservation(case, 1, beacon)["status"]["lottery"]["seed"]
        for beacon in (NO_BEACON, BeaconInput("drand", 7), MIXED, BeaconInput("drand", 7, "00fe"))
    }
    assert len(seeds) == 3  # without a value it is as without a beacon


@pytest.mark.parametrize("path", ["metadata.name", "spec.commitment", "spec.runRef.uid"])
def test_it_refuses_a_record_that_belongs_to_another_reservation(reservation: Body, path: str) -> None:
    body = copy.deepcopy(reservation)
    *parents, last = path.split(".")
    at = body
    for part in parents:
        at = at[part]
    at[last] = "another-7"
    assert script(body)[0] == 1
    assert not prove(body, None).accepted


def test_the_published_key_can_be_asked_for(reservation: Body) -> None:
    assert script(reservation, "--key", public_key(KEY))[0] == 0
    code, lines = script(reservation, "--key", public_key(bytes(32)))
    assert (code, lines[1]) == (1, "  it was not signed with the published key")
    assert "signed with another key" in prove(reservation, bytes(32)).wrong[0]


def test_without_a_record_there_is_nothing_to_check(reservation: Body) -> None:
    body = {**reservation, "status": {"state": "Pending"}}
    code, lines = script(body)
    assert (code, len(lines)) == (2, 1)


def test_it_imports_nothing_of_the_package() -> None:
    assert "import jobtree" not in SCRIPT.read_text(encoding="utf-8")
    assert "from jobtree" not in SCRIPT.read_text(encoding="utf-8")


def test_the_records_of_further_stages_are_checked_too(reservation: Body) -> None:
    record = reservation["status"]["lottery"]
    twice = {**reservation, "status": {**reservation["status"], "lotteries": [record]}}
    assert (script(twice)[0], len(script(twice)[1])) == (0, 2)
    forged = {**twice, "status": {**twice["status"], "lotteries": [{**record, "nonce": "00" * 32}]}}
    assert script(forged)[0] == 1
