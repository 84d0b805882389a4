"""docs/verify_lottery.py shares no code with the package, and both agree on every record."""

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

from jobtree.cli.views.lottery.proof_lines import proof_lines
from jobtree.client.lottery.record_proof import prove
from jobtree.core.lottery.draw import nonce_for
from jobtree.core.lottery.resolution import Case, NodeRoom, Taking, TakingKind, Ticket
from jobtree.core.lottery.resolution_record import NO_BEACON, BeaconInput, Record, make_record
from jobtree.messages.record_signature import public_key, sign

SCRIPT = Path(__file__).parents[2] / "docs" / "verify_lottery.py"
KEY = bytes(range(32))
KINDS: tuple[TakingKind, ...] = ("Reclaim", "DropSpares", "Shrink")

Body = dict[str, Any]


def random_case(random_: random.Random) -> Case:
    """Returns a random case of two domains, with takings and tickets."""
    nodes = [f"n{number}" for number in range(8)]
    slots = [
        tuple((node, random_.choice((2, 4, 8))) for node in sorted(random_.sample(nodes, 2)))
        for _ in range(9)
    ]
    return Case(
        pod_size=4,
        pods=(("A", random_.randint(1, 9)), ("B", random_.randint(0, 3))),
        nodes=tuple(
            NodeRoom(node, "AB"[number % 2], random_.randint(0, 4)) for number, node in enumerate(nodes)
        ),
        takings=tuple(
            Taking(random_.choice(KINDS), f"run-{number}", gpus, f"run-{number}/{number}")
            for number, gpus in enumerate(slots[:4])
        ),
        tickets=tuple(Ticket(f"run-{number}", gpus) for number, gpus in enumerate(slots[4:])),
    )


def reservation_with_record(case: Case, number: int, beacon: BeaconInput = NO_BEACON) -> Body:
    """Returns a Reservation of the Run ``starter`` that was resolved with this case."""
    name, nonce = f"starter-{number}", nonce_for(KEY, "uid-of-starter", number)
    record = make_record(name, "uid-of-starter", number, nonce, case, beacon)
    terms = {"beacon": {"name": beacon.name, "round": beacon.round}} if beacon.name else {}
    return {
        "apiVersion": "rq.davidlangworthy.io/v1",
        "kind": "Reservation",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"runRef": {"name": "starter", "uid": record.run}, "commitment": record.commitment},
        "status": {"state": "Activated", "terms": terms, "lottery": encoded(sign(record, KEY))},
    }


def encoded(record: Record) -> Body:
    body: Body = msgspec.json.decode(msgspec.json.encode(record))
    return body


def run_script(document: Body, *words: str) -> tuple[int, list[str]]:
    process = subprocess.run(
        [sys.executable, str(SCRIPT), *words],
        input=json.dumps(document),
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    return process.returncode, (process.stdout + process.stderr).splitlines()


def kubernetes_list(bodies: list[Body]) -> Body:
    return {"apiVersion": "v1", "kind": "List", "items": bodies}


@pytest.fixture(name="reservation", scope="module")
def _reservation() -> Body:
    """A Reservation whose resolution has draws, takings, and entries that were given back."""
    random_ = random.Random(1)
    for number in range(1, 1000):
        body = reservation_with_record(random_case(random_), number)
        decision = body["status"]["lottery"]["decision"]
        if decision["packs"] and decision["draws"] and decision["takings"] and decision["givenBack"]:
            return body
    raise AssertionError("no such case was drawn")


def test_script_accepts_records_of_the_package() -> None:
    random_ = random.Random(2)
    bodies = [reservation_with_record(random_case(random_), number) for number in range(1, 301)]
    code, lines = run_script(kubernetes_list(bodies))
    assert lines == [f"accepted: {body['metadata']['name']}" for body in bodies]
    assert code == 0
    decisions = [body["status"]["lottery"]["decision"] for body in bodies]
    assert {bool(decision["draws"]) for decision in decisions} == {True, False}
    assert any(len(decision["draws"]) > 2 for decision in decisions)
    assert any(not decision["packs"] for decision in decisions)
    assert any(decision["givenBack"] for decision in decisions)


def alterations(value: Any) -> Iterator[Any]:  # noqa: ANN401  any value of a record
    """Yields copies of a value with one leaf changed, or one part left out or added."""
    match value:
        case dict():
            for name, part in value.items():
                yield {key: other for key, other in value.items() if key != name}
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


def test_script_and_package_refuse_every_altered_record(reservation: Body) -> None:
    changed = []
    for record in alterations(reservation["status"]["lottery"]):
        body = copy.deepcopy(reservation)
        body["status"]["lottery"] = record
        changed.append(body)
    assert len(changed) > 100
    code, lines = run_script(kubernetes_list(changed))
    results = [line for line in lines if not line.startswith("  ")]
    assert results == [f"refused: {reservation['metadata']['name']}"] * len(changed)
    assert code == 1
    assert [prove(body, None).accepted for body in changed] == [False] * len(changed)
    assert prove(reservation, KEY).wrong == []


MIXED = BeaconInput("drand", 7, "00ff")


@pytest.mark.parametrize("beacon", [MIXED, BeaconInput("drand", 7)], ids=["at hand", "missing"])
def test_record_has_the_round_of_the_beacon_that_was_fixed(beacon: BeaconInput) -> None:
    body = reservation_with_record(random_case(random.Random(3)), 1, beacon)
    assert (run_script(body)[0], prove(body, KEY).wrong) == (0, [])
    assert f"round {beacon.round} of beacon drand" in next(proof_lines(prove(body, KEY)))
    for other in ({"name": "drand", "round": 8}, {"name": "other", "round": 7}, None):
        body["status"]["terms"]["beacon"] = other
        assert run_script(body)[0] == 1
        assert any("round of the beacon" in reason for reason in prove(body, None).wrong)


def test_value_of_the_beacon_changes_the_seed() -> None:
    case = random_case(random.Random(3))
    seeds = {
        reservation_with_record(case, 1, beacon)["status"]["lottery"]["seed"]
        for beacon in (NO_BEACON, BeaconInput("drand", 7), MIXED, BeaconInput("drand", 7, "00fe"))
    }
    assert len(seeds) == 3  # a beacon without a value does not change the seed


@pytest.mark.parametrize("path", ["metadata.name", "spec.commitment", "spec.runRef.uid"])
def test_script_refuses_a_record_of_another_reservation(reservation: Body, path: str) -> None:
    body = copy.deepcopy(reservation)
    *parents, last = path.split(".")
    target = body
    for part in parents:
        target = target[part]
    target[last] = "another-7"
    assert run_script(body)[0] == 1
    assert not prove(body, None).accepted


def test_script_checks_the_published_key(reservation: Body) -> None:
    assert run_script(reservation, "--key", public_key(KEY))[0] == 0
    code, lines = run_script(reservation, "--key", public_key(bytes(32)))
    assert (code, lines[1]) == (1, "  it was not signed with the published key")
    assert "signed with another key" in prove(reservation, bytes(32)).wrong[0]


def test_script_exits_2_when_there_is_no_record(reservation: Body) -> None:
    body = {**reservation, "status": {"state": "Pending"}}
    code, lines = run_script(body)
    assert (code, len(lines)) == (2, 1)


def test_script_imports_nothing_of_the_package() -> None:
    assert "import jobtree" not in SCRIPT.read_text(encoding="utf-8")
    assert "from jobtree" not in SCRIPT.read_text(encoding="utf-8")


def test_script_checks_the_records_of_other_stages(reservation: Body) -> None:
    record = reservation["status"]["lottery"]
    two_records = {**reservation, "status": {**reservation["status"], "lotteries": [record]}}
    assert (run_script(two_records)[0], len(run_script(two_records)[1])) == (0, 2)
    forged = {
        **two_records,
        "status": {**two_records["status"], "lotteries": [{**record, "nonce": "00" * 32}]},
    }
    assert run_script(forged)[0] == 1
