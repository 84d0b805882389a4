"""Promises hold on random days, and for a big gang among many small Runs; lottery records verify."""

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
from jobtree.client.lottery.record_proof import prove
from tests.property.random_days import GPUS, START, PromiseChecker, random_day
from tests.unit.cli.manifests import Body, budget, envelope, lasting, node, run

SCRIPT = Path(__file__).parents[2] / "docs" / "verify_lottery.py"
RUNS = 500
LONG_RUNS = 200  # fewer Runs in a day last longer, so that lotteries can draw them
KEY = bytes(32)  # the default of a simulated cluster


@pytest.fixture(name="days", scope="module")
def _days() -> dict[bool, PromiseChecker]:
    """The same day with and without backfill, by whether there is backfill."""
    return days_of(RUNS)


@pytest.fixture(name="drawn", scope="module")
def _drawn() -> dict[bool, PromiseChecker]:
    """Days with many lotteries."""
    return days_of(LONG_RUNS)


def days_of(runs: int) -> dict[bool, PromiseChecker]:
    days = {}
    for backfill in (True, False):
        day = days[backfill] = random_day(13, runs, backfill=backfill)
        day.advance(START + DAY)
    return days


@pytest.mark.parametrize("backfill", [True, False])
def test_every_promise_is_kept_or_slips_with_a_reason(
    days: dict[bool, PromiseChecker], backfill: bool
) -> None:
    """Story 13 of docs/scenarios.md."""
    day = days[backfill]
    assert len(day.promises) > 100
    assert day.broken == []
    assert list(day.late()) == []
    assert {step for step, _ in day.slips} <= {"fail"}, day.slips  # never for a later arrival
    assert {reason for _, reason in day.slips} <= {
        "NodesLost",
        "NodeFailure",
        "CrowdedOut",
        "Collision",
        "FundingLost",
    }
    assert day.cluster.violations() == []


def test_backfill_uses_more_of_the_fleet(days: dict[bool, PromiseChecker]) -> None:
    used = {backfill: day.used(START + DAY) for backfill, day in days.items()}
    assert used[False] < used[True] <= GPUS * DAY, {key: value / (GPUS * DAY) for key, value in used.items()}


def proofs(day: PromiseChecker) -> list[Body]:
    """Returns the Reservations of a day that have a lottery record."""
    bodies = [body for _, body in day.cluster.objects.of("Reservation")]
    return [body for body in bodies if body["status"].get("lottery")]


@pytest.fixture(name="script", scope="module")
def _script() -> ModuleType:
    """docs/verify_lottery.py as a module, as users download it."""
    spec = importlib.util.spec_from_file_location("verify_lottery", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_record_of_the_day_verifies(drawn: dict[bool, PromiseChecker], script: ModuleType) -> None:
    bodies = [body for day in drawn.values() for body in proofs(day)]
    assert sum(bool(body["status"]["lottery"]["decision"]["draws"]) for body in bodies) > 15
    for body in bodies:
        assert prove(body, KEY).wrong == []
        assert list(script.objections(body, "")) == []


def forgeries(body: Body, places: Iterator[int]) -> Iterator[Body]:
    """Yields the Reservation with one byte of its record changed, if the record is still JSON."""
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


def test_every_changed_byte_of_one_record_is_refused(
    drawn: dict[bool, PromiseChecker], script: ModuleType
) -> None:
    bodies = [body for body in proofs(drawn[True]) if body["status"]["lottery"]["decision"]["draws"]]
    body = min(bodies, key=lambda candidate: len(json.dumps(candidate["status"]["lottery"])))
    forged = list(forgeries(body, iter(range(len(json.dumps(body["status"]["lottery"]))))))
    assert len(forged) > 500
    assert [forgery for forgery in forged if not refused(script, forgery)] == []


def test_random_changed_bytes_of_all_records_are_refused(
    drawn: dict[bool, PromiseChecker], script: ModuleType
) -> None:
    dice = Random(13)
    for body in proofs(drawn[False]):
        size = len(json.dumps(body["status"]["lottery"]))
        places = iter(dice.sample(range(size), 12))
        assert [forgery for forgery in forgeries(body, places) if not refused(script, forgery)] == []


def test_gang_of_1024_gpus_starts_when_promised_among_many_small_runs() -> None:
    """For two days there are always more small Runs than fit; none of them delays the big one."""
    dice = Random(4)
    fleet = [node(f"n{number:03}") for number in range(128)]
    flood = PromiseChecker(*fleet, budget("small", envelope(2048)), budget("big", envelope(1024)))
    number = 0

    def submit_small_runs() -> None:
        """Submits small Runs until two of them wait."""
        nonlocal number
        while sum(state.waiting for state in flood.cluster.world.runs.values()) < 2:
            declared = {"maxDuration": "6h"} if dice.random() < 0.5 else {}
            small = run(f"s{number}", dice.choice((32, 64, 128)), "org:small", runtime=declared)
            flood.submit(lasting(small, f"{dice.randint(20, 300)}m"))
            number += 1

    submit_small_runs()
    flood.advance(START + 12 * HOUR)
    submit_small_runs()
    flood.submit(lasting(run("big", 1024, "org:big"), "4h"))
    big = flood.cluster.world.runs["default", "big"]
    assert big.promise is not None
    promised = big.promise.at
    assert promised is not None
    for hours in range(14, 60, 2):
        submit_small_runs()
        flood.advance(START + hours * HOUR)
    started = [
        event.at for event in flood.cluster.events if event.run == big.key and event.name == "Admitted"
    ]
    assert started[0] <= promised
    assert (flood.broken, list(flood.late()), flood.slips) == ([], [], [])
    assert number > 60
