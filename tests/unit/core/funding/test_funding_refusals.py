"""Why cover says no (C6): every reason that applies, with have and need."""

import pytest

from jobtree.api.kinds.budget import Budget
from jobtree.api.kinds.policy import Policy
from jobtree.api.kinds.run import Run
from jobtree.api.schema.object_meta import API_VERSION
from jobtree.api.schema.quantities import HOUR
from jobtree.api.validation.object_parser import parse_object
from tests.unit.core.build import H100, budget, cap, envelope, nodes, run
from tests.unit.core.lab import Lab

A100 = "A100-40GB"
FIXED = run("r", "org", 8)
DECLARED = run("r", "org", 8, max_duration="3h")
BORROWS = run("r", "org", 8, sponsors=["lab"])

Said = list[tuple[str, str, int, int]]


def said(lab: Lab, name: str = "r") -> Said:
    return [(str(why.reason), why.where, why.have, why.need) for why in lab.whys(name)]


def lender(**lending: object) -> Budget:
    return budget("lab", envelope(16, lending={"allow": True, "to": ["*"], **lending}))


@pytest.mark.parametrize(
    ("budgets", "asked", "whys"),
    [
        pytest.param([], FIXED, [("NoEnvelope", "org", 0, 8)], id="no budget"),
        pytest.param(
            [budget("org", envelope(8, flavor=A100))], FIXED, [("NoEnvelope", "org", 0, 8)], id="other flavor"
        ),
        pytest.param(
            [budget("org", envelope(8, start=HOUR))],
            FIXED,
            [("WindowNotOpen", "org/main", 0, 8)],
            id="too soon",
        ),
        pytest.param(
            [budget("org", envelope(8, end=0))], FIXED, [("WindowNotOpen", "org/main", 0, 8)], id="too late"
        ),
        pytest.param(
            [budget("org", 5)], FIXED, [("ConcurrencyExhausted", "org/main", 5, 8)], id="concurrency"
        ),
        pytest.param(
            [budget("org", envelope(8, maxGPUHours=4))],
            FIXED,
            [("HoursExhausted", "org/main", 4, 8)],
            id="an open-ended Run needs an hour of each GPU",
        ),
        pytest.param(
            [budget("org", envelope(8, maxGPUHours=23))],
            DECLARED,
            [("HoursExhausted", "org/main", 7, 8)],
            id="a declared Run needs all its hours",
        ),
        pytest.param(
            [budget("org", envelope(8, maxCredits=10))],
            FIXED,
            [("CreditsExhausted", "org/main", 4, 8)],
            id="credits at 2.5 an hour",
        ),
        pytest.param(
            [budget("org", envelope(5, maxGPUHours=4, maxCredits=10))],
            FIXED,
            [
                ("ConcurrencyExhausted", "org/main", 5, 8),
                ("HoursExhausted", "org/main", 4, 8),
                ("CreditsExhausted", "org/main", 4, 8),
            ],
            id="all that apply",
        ),
        pytest.param(
            [budget("org"), budget("lab", 8)],
            BORROWS,
            [("NoEnvelope", "org", 0, 8), ("LendingDenied", "lab", 0, 8)],
            id="a sponsor that does not lend",
        ),
        pytest.param(
            [budget("org", 2), lender(to=["lab:*"])],
            BORROWS,
            [("ConcurrencyExhausted", "org/main", 2, 8), ("LendingDenied", "lab", 0, 8)],
            id="a sponsor that lends to others",
        ),
        pytest.param(
            [lender(maxConcurrency=4)],
            BORROWS,
            [("BorrowLimit", "lab/main lending", 4, 8)],
            id="lending limit",
        ),
        pytest.param(
            [lender(maxGPUHours=3)], BORROWS, [("BorrowLimit", "lab/main lending", 3, 8)], id="lending hours"
        ),
        pytest.param(
            [lender()],
            run("r", "org", 8, sponsors=["lab"], max_borrow=6),
            [("BorrowLimit", "funding.maxBorrowGPUs", 6, 8)],
            id="the Run's own limit",
        ),
        pytest.param(
            [budget("org", 16, caps=[cap("c", "main", flavor=H100, maxConcurrency=7)])],
            FIXED,
            [("AggregateCap", "org/c", 7, 8)],
            id="aggregate cap in GPUs",
        ),
        pytest.param(
            [budget("org", 16, caps=[cap("c", "main", flavor=H100, maxGPUHours=6)])],
            FIXED,
            [("AggregateCap", "org/c", 6, 8)],
            id="aggregate cap in hours",
        ),
        pytest.param(
            [budget("org", 16, caps=[cap("c", "main", maxCredits=10)])],
            FIXED,
            [("AggregateCap", "org/c", 4, 8)],
            id="aggregate cap in credits",
        ),
    ],
)
def test_every_reason_says_have_and_need(budgets: list[Budget], asked: Run, whys: Said) -> None:
    lab = Lab(nodes("nv-a", 2), *budgets, policy=Policy(prices_milli={H100: 2500}))
    lab.submit(asked)
    assert lab.phase("r") != "Running"
    assert said(lab) == whys


def test_what_nearer_payers_have_is_not_needed_of_later_ones() -> None:
    lab = Lab(nodes("nv-a", 16), budget("org", 24), budget("org:x", 96))
    lab.submit(run("r", "org:x", 128))
    assert said(lab) == [
        ("ConcurrencyExhausted", "org-x/main", 96, 128),
        ("ConcurrencyExhausted", "org/main", 24, 32),
    ]


def test_a_cap_over_two_envelopes_is_not_counted_twice() -> None:
    caps = [cap("c", "a", "b", flavor=H100, maxConcurrency=8)]
    lab = Lab(nodes("nv-a", 2), budget("org", envelope(8, "a"), envelope(8, "b"), caps=caps))
    lab.submit(run("r", "org", 16, per_pod=4))
    assert said(lab) == [
        ("ConcurrencyExhausted", "org/a", 8, 16),
        ("AggregateCap", "org/c", 8, 16),
        ("AggregateCap", "org/c", 0, 8),
    ]


def test_a_cap_without_a_flavor_spans_flavors_in_credits() -> None:
    caps = [cap("c", "h", "a", maxCredits=24)]
    both = budget("org", envelope(8, "h"), envelope(8, "a", flavor=A100), caps=caps)
    fleet = [*nodes("nv-a", 1), *nodes("nv-b", 2, flavor=A100)]
    lab = Lab(fleet, both, policy=Policy(prices_milli={H100: 2000}))
    lab.submit(run("h", "org", 8, max_duration="1h"))
    lab.submit(run("a", "org", 8, flavor=A100, max_duration="2h", at=1))
    assert (lab.phase("h"), said(lab, "a")) == ("Running", [("AggregateCap", "org/c", 4, 8)])


def test_a_declared_run_commits_no_more_than_to_its_windows_end() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", envelope(8, maxGPUHours=16, end=2 * HOUR)))
    lab.submit(DECLARED)
    assert lab.phase("r") == "Running"


def test_what_a_declared_run_has_committed_is_not_there_for_others() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org", envelope(16, maxGPUHours=24)))
    lab.submit(run("long", "org", 8, max_duration="2h"))
    lab.submit(run("r", "org", 8, max_duration="2h", at=1))
    assert said(lab) == [("HoursExhausted", "org/main", 4, 8)]
    lab.finish("long")
    assert lab.phase("r") == "Running"


def test_open_ended_runs_that_start_together_must_both_fit_in_the_hours_left() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", envelope(8, maxGPUHours=6)))
    lab.submit(run("a", "org", 4), run("r", "org", 4, at=1))
    assert (lab.phase("a"), said(lab)) == ("Running", [("HoursExhausted", "org/main", 2, 4)])


def test_a_trees_quota_is_shared_by_all_below_it() -> None:
    spec = {
        "owner": "org",
        "quota": {"maxGPUs": 12},
        "stages": [{"name": name, "resources": {"gpuType": H100, "totalGPUs": 8}} for name in "ab"],
    }
    metadata = {"name": "tree", "namespace": "ns", "uid": "tree-uid"}
    tree = parse_object(
        {"apiVersion": API_VERSION, "kind": "Run", "metadata": metadata, "spec": spec}, "test"
    )
    assert isinstance(tree, Run)
    lab = Lab(nodes("nv-a", 2), budget("org", 16), tree)
    lab.settle()
    assert (lab.phase("tree-a"), said(lab, "tree-b")) == ("Running", [("TreeQuota", "ns/tree", 4, 8)])
