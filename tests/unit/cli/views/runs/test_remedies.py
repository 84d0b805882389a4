"""What plan advises is enough, and no more than enough."""

import copy
import re
from typing import Any

import pytest

from tests.unit.cli.desk import FLAVOR, Body, Desk, budget, envelope, node, nodes, run

LENDING = {"allow": True, "to": ["org:*"]}
SPONSORED = {"allowBorrow": True, "sponsors": ["org:rich"]}


def advice(desk: Desk, *bodies: Body) -> str:
    answer = desk.runs("plan", "-f", desk.file("asked.yaml", *bodies))
    assert answer.code == 1, answer.out
    return answer.out


def amount(text: str, sentence: str) -> int:
    """The number at the end of a sentence of the advice."""
    found = re.search(re.escape(sentence) + r" ([0-9]+)", text)
    assert found, text
    return int(found[1])


def starts(desk: Desk, *bodies: Body) -> bool:
    return desk.runs("plan", "-f", desk.file("tried.yaml", *bodies)).code == 0


def changed(body: Body, path: str, value: object) -> Body:
    """A copy with another value at ``spec.envelopes.0.concurrency``."""
    copied = copy.deepcopy(body)
    *parents, last = path.split(".")
    at: Any = copied
    for step in parents:
        at = at[int(step)] if step.isdecimal() else at.setdefault(step, {})
    at[last] = value
    return copied


def test_an_envelope_is_raised_by_what_all_payers_lack(desk: Desk) -> None:
    lab, rich = budget("lab", envelope(20)), budget("rich", envelope(8, lending=LENDING))
    wanted = run("wanted", 48, funding=SPONSORED)
    desk.cluster(*nodes(8), lab, rich)
    text = advice(desk, wanted)
    assert "ConcurrencyExhausted (have 20, need 48): envelope lab/own has 20 of the 48" in text
    # Pods have 8 GPUs: 20 pay for two and 4 are left over, the sponsor pays for one, three are missing.
    by = amount(text, "raise envelope lab/own by")
    assert by == 20
    assert starts(desk, changed(lab, "spec.envelopes.0.concurrency", 20 + by), wanted)
    assert not starts(desk, changed(lab, "spec.envelopes.0.concurrency", 20 + by - 1), wanted)
    by = amount(text, "raise envelope rich/own by")
    assert starts(desk, changed(rich, "spec.envelopes.0.concurrency", 8 + by), wanted)
    assert not starts(desk, changed(rich, "spec.envelopes.0.concurrency", 8 + by - 1), wanted)


def test_hours_are_raised_by_what_the_declared_time_needs(desk: Desk) -> None:
    lab = budget("lab", envelope(8, maxGPUHours=20))
    wanted = run("wanted", 8, runtime={"maxDuration": "3h"})
    desk.cluster(*nodes(1), lab)
    text = advice(desk, wanted)
    by = amount(text, "raise maxGPUHours of envelope lab/own by")
    assert by == 4
    assert starts(desk, changed(lab, "spec.envelopes.0.maxGPUHours", 20 + by), wanted)
    assert not starts(desk, changed(lab, "spec.envelopes.0.maxGPUHours", 20 + by - 1), wanted)
    assert "or declare a runtime.maxDuration of at most 2h30m" in text
    assert starts(desk, changed(wanted, "spec.runtime.maxDuration", "2h30m"))


def test_credits_are_raised_by_what_an_hour_costs(desk: Desk) -> None:
    lab = budget("lab", envelope(8, maxCredits=5))
    desk.cluster(*nodes(1), lab)
    by = amount(advice(desk, run("wanted", 8)), "raise maxCredits of envelope lab/own by")
    assert by == 3
    assert starts(desk, changed(lab, "spec.envelopes.0.maxCredits", 5 + by), run("wanted", 8))


def test_limits_of_borrowing(desk: Desk) -> None:
    lending = {**LENDING, "maxConcurrency": 16}
    lab, rich = budget("lab", envelope(8)), budget("rich", envelope(64, lending=lending))
    wanted = run("wanted", 32, funding={**SPONSORED, "maxBorrowGPUs": 16})
    desk.cluster(*nodes(8), lab, rich)
    text = advice(desk, wanted)
    assert "ask org:rich to raise the lending of envelope rich/own by 8 GPUs" in text
    assert amount(text, "raise funding.maxBorrowGPUs of this Run by") == 8
    raised = changed(rich, "spec.envelopes.0.lending.maxConcurrency", 24)
    assert starts(desk, raised, changed(wanted, "spec.funding.maxBorrowGPUs", 24))


def test_a_cap_over_envelopes(desk: Desk) -> None:
    cap = {"name": "all", "flavor": FLAVOR, "envelopes": ["own"], "maxConcurrency": 8}
    lab = budget("lab", envelope(16), aggregateCaps=[cap])
    desk.cluster(*nodes(2), lab)
    desk.submit(run("first"))
    text = advice(desk, run("wanted"))
    assert "AggregateCap (have 0, need 8)" in text
    assert amount(text, "raise maxConcurrency of cap lab/all by") == 8
    assert "or wait for default/first (8 GPUs)" in text
    assert starts(desk, changed(lab, "spec.aggregateCaps.0.maxConcurrency", 16), run("wanted"))


def test_a_cap_on_hours(desk: Desk) -> None:
    cap = {"name": "all", "flavor": FLAVOR, "envelopes": ["own"], "maxGPUHours": 4}
    desk.cluster(*nodes(2), budget("lab", envelope(16), aggregateCaps=[cap]))
    assert "raise maxGPUHours or maxCredits of cap lab/all" in advice(desk, run("wanted"))


@pytest.mark.parametrize(
    ("rich", "said"),
    [
        (
            budget("rich", envelope(8)),
            "ask org:rich to lend: lending.allow: true and org:lab in lending.to of rich/own",
        ),
        (
            budget("rich", envelope(8, flavor="A100")),
            f"ask another sponsor: org:rich has no envelope of {FLAVOR}",
        ),
        (budget("ricch", envelope(8)), "no Budget is owned by org:rich: did you mean org:ricch?"),
    ],
)
def test_a_sponsor_that_does_not_lend(desk: Desk, rich: Body, said: str) -> None:
    desk.cluster(*nodes(2), budget("lab", envelope(8)), rich)
    text = advice(desk, run("wanted", 16, funding=SPONSORED))
    assert "LendingDenied (have 0, need 8)" in text
    assert said in text


def test_nobody_to_ask(desk: Desk) -> None:
    desk.cluster(*nodes(2), budget("rich", envelope(8, lending=LENDING)))
    text = advice(desk, run("wanted", 8, owner="org:poor"))
    assert "NoEnvelope (have 0, need 8)" in text
    assert f"give org:poor, or a parent of it, an envelope of {FLAVOR} with at least 8 GPUs" in text
    assert "borrow from org:rich (up to 8 GPUs): funding.allowBorrow: true, with sponsors" in text


def test_unpaid_work_is_offered_where_it_would_start(desk: Desk) -> None:
    assert "funding.allowOpportunistic: true" in advice(desk, run("wanted", 16))
    assert starts(desk, run("wanted", 16, funding={"allowOpportunistic": True}))
    desk.submit(run("first"))
    assert "allowOpportunistic" not in advice(desk, run("wanted", 16))


def test_windows(desk: Desk) -> None:
    desk.cluster(
        *nodes(1),
        budget(
            "lab",
            envelope(8, "past", end="2026-01-05T08:00:00Z"),
            envelope(8, "future", start="2026-01-06T08:00:00Z"),
        ),
    )
    text = advice(desk, run("wanted"))
    assert "its window closed at 2026-01-05T08:00:00Z: move its end" in text
    assert "wait until 2026-01-06T08:00:00Z: its window opens then" in text


def test_full_nodes(desk: Desk) -> None:
    desk.cluster(*nodes(2), budget("lab", envelope(64)))
    desk.submit(run("first", 8, runtime={"maxDuration": "2h"}))
    text = advice(desk, run("wanted", 16))
    assert "NoFreeSlots (have 8, need 16)" in text
    assert "wait for default/first (8 GPUs, ends by 2026-01-05T11:00:00Z)" in text
    desk.runs("fail", "a02")
    text = advice(desk, run("wanted", 16))
    assert "add nodes: the fleet has 8 GPUs of this flavor in service" in text
    assert "bring back a02: cordoned, not ready or out of service" in text


def test_free_gpus_that_are_in_pieces(desk: Desk) -> None:
    desk.cluster(node("a01"), node("a02"), node("b01", "nv-b"), budget("lab", envelope(64)))
    desk.submit(run("first", 4), run("second", 4, resources={"gpuType": FLAVOR, "totalGPUs": 4}))
    desk.submit(run("third", 8))
    text = advice(desk, run("wanted", 16, locality={"groupGPUs": 16}))
    assert "NoFreeSlots (have 0, need 16)" in text


def test_a_run_that_must_stay_in_one_domain(desk: Desk) -> None:
    desk.cluster(*nodes(2), *nodes(2, "b"), budget("lab", envelope(64)))
    wanted = run("wanted", 32, locality={"allowCrossGroupSpread": False})
    text = advice(desk, wanted)
    assert "GroupTooLarge (have 16, need 32)" in text
    assert "locality.allowCrossGroupSpread: true" in text
    assert starts(desk, changed(wanted, "spec.locality.allowCrossGroupSpread", value=True))
