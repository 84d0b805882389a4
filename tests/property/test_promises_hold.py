"""Whatever comes, promises hold: a random day (SCENARIOS.md 13), and a big gang in a flood of small Runs."""

import importlib.util
import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

from jobtree.api.schema.quantities import DAY, HOUR
from jobtree.cli.views.lottery.record_proof import prove
from tests.property.days import GPUS, START, Watched, random_day
from tests.unit.cli.manifests import Body, budget, envelope, lasting, node, run

SCRIPT = Path(__file__).parents[2] / "docs" / "verify_lottery.py"
RUNS = 500
LONG_RUNS = 200  # of a day on which each lasts longer: so that lotteries can draw them
KEY = bytes(32)  # of a simulated cluster that was given no other


@pytest.fixture(name="days", scope="module")
def _days() -> dict[bool, Watched]:
    """The same day with and without Runs that declare what lets them flow around promises."""
    return both(RUNS)


@pytest.fixture(name="drawn", scope="module")
def _drawn() -> dict[bool, Watched]:
    """Days with many lotteries."""
    return both(LONG_RUNS)


def both(runs: int) -> dict[bool, Watched]:
    found = {}
    for backfill in (True, False):
        day = found[backfill] = random_day(13, runs, backfill=backfill)
        day.advance(START + DAY)
    return found


@pytest.mark.parametrize("backfill", [True, False])
def test_13_every_promise_is_kept_or_slips_with_a_reason(days: dict[bool, Watched], backfill: bool) -> None:
    day = days[backfill]
    assert len(day.promises) > 100
    assert day.broken == []
    assert list(day.late()) == []
    assert {step for step, _ in day.slips} <= {"fail"}, day.slips  # never for a later arrival
    assert {reason for _, reason in day.slips} <= {"NodesLost", "CrowdedOut", "FundingLost"}
    assert day.cluster.violations() == []


def test_13_backfill_fills_what_promises_leave(days: dict[bool, Watched]) -> None:
    used = {backfill: day.used(START + DAY) for backfill, day in days.items()}
    assert used[False] < used[True] <= GPUS * DAY, {key: value / (GPUS * DAY) for key, value in used.items()}


def proofs(day: Watched) -> list[Body]:
    found = [body for _, body in day.cluster.objects.of("Reservation")]
    return [body for body in found if body["status"].get("lottery")]


@pytest.fixture(name="script", scope="module")
def _script() -> ModuleType:
    """docs/verify_lottery.py, as whoever downloads it has it."""
    spec = importlib.util.spec_from_file_location("verify_lottery", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_record_of_the_day_verifies(drawn: dict[bool, Watched], script: ModuleType) -> None:
    found = [body for day in drawn.values() for body in proofs(day)]
    assert sum(bool(body["status"]["lottery"]["decision"]["draws"]) for body in found) > 20
    for body in found:
        assert prove(body, KEY).wrong == []
        assert list(script.objections(body, "")) == []


def forgeries(body: Body, places: Iterator[int]) -> Iterator[Body]:
    """The Reservation with one byte of its record changed, wherever that still is JSON."""
    text = json.dumps(body["status"]["lottery"]).encode()
    for at in places:
        for change in (1, 32):
            forged = text[:at] + bytes([text[at] ^ change]) + text[at + 1 :]
            try:
                lottery: Any = json.loads(forged)
            except ValueError:
                continue
            if lottery != body["status"]["lottery"]:
                yield {**deepcopy(body), "status": {**body["status"], "lottery": lottery}}


def refused(script: ModuleType, body: Body) -> bool:
    try:
        objections = list(script.objections(body, ""))
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
        objections = ["it cannot be read"]
    return bool(objections) and not prove(body, None).accepted


def test_every_changed_byte_of_one_record_is_refused(drawn: dict[bool, Watched], script: ModuleType) -> None:
    found = [body for body in proofs(drawn[True]) if body["status"]["lottery"]["decision"]["draws"]]
    body = min(found, key=lambda one: len(json.dumps(one["status"]["lottery"])))
    forged = list(forgeries(body, iter(range(len(json.dumps(body["status"]["lottery"]))))))
    assert len(forged) > 500
    assert [one for one in forged if not refused(script, one)] == []


def test_bytes_here_and_there_of_all_records_are_refused(
    drawn: dict[bool, Watched], script: ModuleType
) -> None:
    dice = Random(13)
    for body in proofs(drawn[False]):
        size = len(json.dumps(body["status"]["lottery"]))
        places = iter(dice.sample(range(size), 12))
        assert [one for one in forgeries(body, places) if not refused(script, one)] == []


def test_a_gang_of_1024_starts_when_promised_in_a_flood_of_small_runs() -> None:
    """For two days there are always more small Runs than fit; none of them delays the big one."""
    dice = Random(4)
    fleet = [node(f"n{number:03}") for number in range(128)]
    flood = Watched(*fleet, budget("small", envelope(2048)), budget("big", envelope(1024)))
    number = 0

    def pour() -> None:
        nonlocal number
        while sum(state.waiting for state in flood.cluster.world.runs.values()) < 2:
            declared = {"maxDuration": "6h"} if dice.random() < 0.5 else {}
            small = run(f"s{number}", dice.choice((32, 64, 128)), "org:small", runtime=declared)
            flood.submit(lasting(small, f"{dice.randint(20, 300)}m"))
            number += 1

    pour()
    flood.advance(START + 12 * HOUR)
    pour()
    flood.submit(lasting(run("big", 1024, "org:big"), "4h"))
    big = flood.cluster.world.runs["default", "big"]
    assert big.promise is not None
    promised = big.promise.at
    assert promised is not None
    for hours in range(14, 60, 2):
        pour()
        flood.advance(START + hours * HOUR)
    started = [
        event.at for event in flood.cluster.events if event.run == big.key and event.name == "Admitted"
    ]
    assert started[0] <= promised
    assert (flood.broken, list(flood.late()), flood.slips) == ([], [], [])
    assert number > 60
