"""The causes with which cover refuses a Run (C6): every reason that applies, with have and need."""

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

Causes = list[tuple[str, str, int, int]]  # reason, where, have, need


def causes(lab: Lab, name: str = "r") -> Causes:
    return [(str(cause.reason), cause.where, cause.have, cause.need) for cause in lab.whys(name)]


def lender(**lending: object) -> Budget:
    return budget("lab", envelope(16, lending={"allow": True, "to": ["*"], **lending}))


@pytest.mark.parametrize(
    ("budgets", "asked", "expected"),
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
            id="an open-ended Run commits an hour of each GPU",
        ),
        pytest.param(
            [budget("org", envelope(8, maxGPUHours=23))],
            DECLARED,
            [("HoursExhausted", "org/main", 7, 8)],
            id="a declared Run commits all its hours",
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
def test_refusal_lists_every_reason_with_have_and_need(
    budgets: list[Budget], asked: Run, expected: Causes
) -> None:
    lab = Lab(nodes("nv-a", 2), *budgets, policy=Policy(prices_milli={H100: 2500}))
    lab.submit(asked)
    assert lab.phase("r") != "Running"
    assert causes(lab) == expected


def test_refusal_needs_from_a_later_payer_only_what_nearer_ones_lack() -> None:
    lab = Lab(nodes("nv-a", 16), budget("org", 24), budget("org:x", 96))
    lab.submit(run("r", "org:x", 128))
    assert causes(lab) == [
        ("ConcurrencyExhausted", "org-x/main", 96, 128),
        ("ConcurrencyExhausted", "org/main", 24, 32),
    ]


def test_cap_over_two_envelopes_is_counted_once() -> None:
    caps = [cap("c", "a", "b", flavor=H100, maxConcurrency=8)]
    lab = Lab(nodes("nv-a", 2), budget("org", envelope(8, "a"), envelope(8, "b"), caps=caps))
    lab.submit(run("r", "org", 16, per_pod=4))
    assert causes(lab) == [
        ("ConcurrencyExhausted", "org/a", 8, 16),
        ("AggregateCap", "org/c", 8, 16),
        ("AggregateCap", "org/c", 0, 8),
    ]


def test_cap_in_credits_limits_envelopes_of_several_flavors() -> None:
    caps = [cap("c", "h", "a", maxCredits=24)]
    capped = budget("org", envelope(8, "h"), envelope(8, "a", flavor=A100), caps=caps)
    fleet = [*nodes("nv-a", 1), *nodes("nv-b", 2, flavor=A100)]
    lab = Lab(fleet, capped, policy=Policy(prices_milli={H100: 2000}))
    lab.submit(run("h", "org", 8, max_duration="1h"))
    lab.submit(run("a", "org", 8, flavor=A100, max_duration="2h", at=1))
    assert (lab.phase("h"), causes(lab, "a")) == ("Running", [("AggregateCap", "org/c", 4, 8)])


def test_declared_run_commits_hours_only_up_to_the_end_of_the_window() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", envelope(8, maxGPUHours=16, end=2 * HOUR)))
    lab.submit(DECLARED)
    assert lab.phase("r") == "Running"


def test_hours_that_a_declared_run_committed_are_refused_to_others() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org", envelope(16, maxGPUHours=24)))
    lab.submit(run("long", "org", 8, max_duration="2h"))
    lab.submit(run("r", "org", 8, max_duration="2h", at=1))
    assert causes(lab) == [("HoursExhausted", "org/main", 4, 8)]
    lab.finish("long")
    assert lab.phase("r") == "Running"


def test_open_ended_runs_that_start_together_commit_an_hour_each() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", envelope(8, maxGPUHours=6)))
    lab.submit(run("a", "org", 4), run("r", "org", 4, at=1))
    assert (lab.phase("a"), causes(lab)) == ("Running", [("HoursExhausted", "org/main", 2, 4)])


def test_quota_of_a_tree_limits_all_its_stages_together() -> None:
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
    assert (lab.phase("tree-a"), causes(lab, "tree-b")) == ("Running", [("TreeQuota", "ns/tree", 4, 8)])
