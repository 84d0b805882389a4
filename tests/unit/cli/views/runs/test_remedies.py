"""The remedies that ``plan`` prints are sufficient, and not larger than necessary."""

import copy
import re
from typing import Any

import pytest

from tests.unit.cli.cli_runner import CliRunner
from tests.unit.cli.manifests import FLAVOR, Body, budget, envelope, node, nodes, run

LENDING = {"allow": True, "to": ["org:*"]}
SPONSORED = {"allowBorrow": True, "sponsors": ["org:rich"]}


def advice(cli: CliRunner, *bodies: Body) -> str:
    answer = cli.runs("plan", "-f", cli.write_file("asked.yaml", *bodies))
    assert answer.code == 1, answer.out
    return answer.out


def amount(text: str, sentence: str) -> int:
    """Returns the number at the end of a sentence of the advice."""
    match = re.search(re.escape(sentence) + r" ([0-9]+)", text)
    assert match, text
    return int(match[1])


def starts(cli: CliRunner, *bodies: Body) -> bool:
    return cli.runs("plan", "-f", cli.write_file("tried.yaml", *bodies)).code == 0


def changed(body: Body, path: str, value: object) -> Body:
    """Returns a copy with another value at a path such as ``spec.envelopes.0.concurrency``."""
    copied = copy.deepcopy(body)
    *parents, last = path.split(".")
    node: Any = copied
    for step in parents:
        node = node[int(step)] if step.isdecimal() else node.setdefault(step, {})
    node[last] = value
    return copied


def test_remedy_raises_an_envelope_by_what_all_payers_lack(cli: CliRunner) -> None:
    lab, rich = budget("lab", envelope(20)), budget("rich", envelope(8, lending=LENDING))
    wanted = run("wanted", 48, funding=SPONSORED)
    cli.write_cluster(*nodes(8), lab, rich)
    text = advice(cli, wanted)
    assert "ConcurrencyExhausted (have 20, need 48): envelope lab/own has 20 of the 48" in text
    # Pods have 8 GPUs. Of 20 GPUs, 16 pay for two pods and 4 are left over; the sponsor pays for one pod.
    # Three pods lack a payer: 24 GPUs, less the 4.
    by = amount(text, "raise envelope lab/own by")
    assert by == 20
    assert starts(cli, changed(lab, "spec.envelopes.0.concurrency", 20 + by), wanted)
    assert not starts(cli, changed(lab, "spec.envelopes.0.concurrency", 20 + by - 1), wanted)
    by = amount(text, "raise envelope rich/own by")
    assert starts(cli, changed(rich, "spec.envelopes.0.concurrency", 8 + by), wanted)
    assert not starts(cli, changed(rich, "spec.envelopes.0.concurrency", 8 + by - 1), wanted)


def test_remedy_raises_hours_by_what_the_declared_duration_needs(cli: CliRunner) -> None:
    lab = budget("lab", envelope(8, maxGPUHours=20))
    wanted = run("wanted", 8, runtime={"maxDuration": "3h"})
    cli.write_cluster(*nodes(1), lab)
    text = advice(cli, wanted)
    by = amount(text, "raise maxGPUHours of envelope lab/own by")
    assert by == 4
    assert starts(cli, changed(lab, "spec.envelopes.0.maxGPUHours", 20 + by), wanted)
    assert not starts(cli, changed(lab, "spec.envelopes.0.maxGPUHours", 20 + by - 1), wanted)
    assert "or declare a runtime.maxDuration of at most 2h30m" in text
    assert starts(cli, changed(wanted, "spec.runtime.maxDuration", "2h30m"))


def test_remedy_raises_credits_by_what_the_first_hour_costs(cli: CliRunner) -> None:
    lab = budget("lab", envelope(8, maxCredits=5))
    cli.write_cluster(*nodes(1), lab)
    by = amount(advice(cli, run("wanted", 8)), "raise maxCredits of envelope lab/own by")
    assert by == 3
    assert starts(cli, changed(lab, "spec.envelopes.0.maxCredits", 5 + by), run("wanted", 8))


def test_remedy_raises_the_limits_of_borrowing(cli: CliRunner) -> None:
    lending = {**LENDING, "maxConcurrency": 16}
    lab, rich = budget("lab", envelope(8)), budget("rich", envelope(64, lending=lending))
    wanted = run("wanted", 32, funding={**SPONSORED, "maxBorrowGPUs": 16})
    cli.write_cluster(*nodes(8), lab, rich)
    text = advice(cli, wanted)
    assert "ask org:rich to raise the lending of envelope rich/own by 8 GPUs" in text
    assert amount(text, "raise funding.maxBorrowGPUs of this Run by") == 8
    raised = changed(rich, "spec.envelopes.0.lending.maxConcurrency", 24)
    assert starts(cli, raised, changed(wanted, "spec.funding.maxBorrowGPUs", 24))


def test_remedy_raises_an_aggregate_cap(cli: CliRunner) -> None:
    cap = {"name": "all", "flavor": FLAVOR, "envelopes": ["own"], "maxConcurrency": 8}
    lab = budget("lab", envelope(16), aggregateCaps=[cap])
    cli.write_cluster(*nodes(2), lab)
    cli.submit(run("first"))
    text = advice(cli, run("wanted"))
    assert "AggregateCap (have 0, need 8)" in text
    assert amount(text, "raise maxConcurrency of cap lab/all by") == 8
    assert "or wait for default/first (8 GPUs)" in text
    assert starts(cli, changed(lab, "spec.aggregateCaps.0.maxConcurrency", 16), run("wanted"))


def test_remedy_names_a_cap_on_hours(cli: CliRunner) -> None:
    cap = {"name": "all", "flavor": FLAVOR, "envelopes": ["own"], "maxGPUHours": 4}
    cli.write_cluster(*nodes(2), budget("lab", envelope(16), aggregateCaps=[cap]))
    assert "raise maxGPUHours or maxCredits of cap lab/all" in advice(cli, run("wanted"))


@pytest.mark.parametrize(
    ("rich", "sentence"),
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
def test_remedy_says_why_a_sponsor_does_not_lend(cli: CliRunner, rich: Body, sentence: str) -> None:
    cli.write_cluster(*nodes(2), budget("lab", envelope(8)), rich)
    text = advice(cli, run("wanted", 16, funding=SPONSORED))
    assert "LendingDenied (have 0, need 8)" in text
    assert sentence in text


def test_remedy_proposes_an_envelope_or_a_sponsor_when_there_is_no_payer(cli: CliRunner) -> None:
    cli.write_cluster(*nodes(2), budget("rich", envelope(8, lending=LENDING)))
    text = advice(cli, run("wanted", 8, owner="org:poor"))
    assert "NoEnvelope (have 0, need 8)" in text
    assert f"give org:poor, or a parent of it, an envelope of {FLAVOR} with at least 8 GPUs" in text
    assert "borrow from org:rich (up to 8 GPUs): funding.allowBorrow: true, with sponsors" in text


def test_remedy_proposes_opportunistic_work_when_it_would_start(cli: CliRunner) -> None:
    assert "funding.allowOpportunistic: true" in advice(cli, run("wanted", 16))
    assert starts(cli, run("wanted", 16, funding={"allowOpportunistic": True}))
    cli.submit(run("first"))
    assert "allowOpportunistic" not in advice(cli, run("wanted", 16))


def test_remedy_names_closed_and_future_windows(cli: CliRunner) -> None:
    cli.write_cluster(
        *nodes(1),
        budget(
            "lab",
            envelope(8, "past", end="2026-01-05T08:00:00Z"),
            envelope(8, "future", start="2026-01-06T08:00:00Z"),
        ),
    )
    text = advice(cli, run("wanted"))
    assert "its window closed at 2026-01-05T08:00:00Z: move its end" in text
    assert "wait until 2026-01-06T08:00:00Z: its window opens then" in text


def test_remedy_names_runs_to_wait_for_and_nodes_to_repair(cli: CliRunner) -> None:
    cli.write_cluster(*nodes(2), budget("lab", envelope(64)))
    cli.submit(run("first", 8, runtime={"maxDuration": "2h"}))
    text = advice(cli, run("wanted", 16))
    assert "NoFreeSlots (have 8, need 16)" in text
    assert "wait for default/first (8 GPUs, ends by 2026-01-05T11:00:00Z)" in text
    cli.runs("fail", "a02")
    text = advice(cli, run("wanted", 16))
    assert "add nodes: the fleet has 8 GPUs of this flavor in service" in text
    assert "bring back a02: cordoned, not ready or out of service" in text


def test_plan_says_no_free_slots_when_free_gpus_are_scattered(cli: CliRunner) -> None:
    cli.write_cluster(node("a01"), node("a02"), node("b01", "nv-b"), budget("lab", envelope(64)))
    cli.submit(run("first", 4), run("second", 4, resources={"gpuType": FLAVOR, "totalGPUs": 4}))
    cli.submit(run("third", 8))
    text = advice(cli, run("wanted", 16, locality={"groupGPUs": 16}))
    assert "NoFreeSlots (have 0, need 16)" in text


def test_remedy_proposes_spreading_when_no_domain_is_large_enough(cli: CliRunner) -> None:
    cli.write_cluster(*nodes(2), *nodes(2, "b"), budget("lab", envelope(64)))
    wanted = run("wanted", 32, locality={"allowCrossGroupSpread": False})
    text = advice(cli, wanted)
    assert "GroupTooLarge (have 16, need 32)" in text
    assert "locality.allowCrossGroupSpread: true" in text
    assert starts(cli, changed(wanted, "spec.locality.allowCrossGroupSpread", value=True))
