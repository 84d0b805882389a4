"""Every row of ``make bench-live`` works on a small cluster; the figures are not judged."""

import asyncio
from collections.abc import Sequence

import pytest

from benchmarks.live.results import Figure
from benchmarks.live.rows import ROWS, Effort

SMALL = Effort(nodes=40, share=0.004)


def measure(name: str) -> dict[str, dict[str, Figure]]:
    rows: dict[str, dict[str, Figure]] = {}

    def add_row(row: str, figures: Sequence[Figure]) -> None:
        rows[row] = {figure.name: figure for figure in figures}

    asyncio.run(ROWS[name](SMALL, add_row))
    return rows


def test_gangs_row_compares_with_kube_scheduler_and_raw_pods() -> None:
    rows = measure("gangs")
    assert list(rows) == ["3 gangs of 8 GPUs, 40 nodes", "1 gangs of 128 GPUs, 40 nodes"]
    for figures in rows.values():
        ratio = figures["gangs per second"].value / figures["gangs per second by kube-scheduler"].value
        times = figures["times kube-scheduler"]
        assert times.value == ratio
        assert times.raw is not None
        assert times.raw > 0
        unlimited = figures["the same without its limit on requests"].value
        assert figures["times that"].value == figures["gangs per second"].value / unlimited
        assert figures["share of raw pods"].value > 0
    assert rows["3 gangs of 8 GPUs, 40 nodes"]["share of raw writes"].value > 0
    # Run, commit, lease, pod and event; the status of budgets is written once for several gangs.
    assert 4 <= rows["3 gangs of 8 GPUs, 40 nodes"]["writes per gang"].value <= 6


@pytest.mark.parametrize("name", ["podless", "pods"])
def test_published_rows_admit_and_complete_all_gangs(name: str) -> None:
    ((row, figures),) = measure(name).items()
    assert row.startswith("60 two-pod gangs of 30 teams")
    assert 0 < figures["all admitted"].value <= figures["all completed"].value
    assert figures["manager, peak"].verdict == "pass"


def test_idle_row_measures_submit_to_bound() -> None:
    ((_, figures),) = measure("idle").items()
    assert figures["submit to bound, p50"].value <= figures["submit to bound, p99"].value


def test_bursts_row_measures_another_namespace_during_a_burst_and_after_a_start() -> None:
    ((row, figures),) = measure("bursts").items()
    assert row == "8 GPUs beside 8 new Runs of another namespace"
    for when in ("during the burst", "after a start"):
        assert (
            0 < figures[f"submit to bound {when}, p50"].value <= figures[f"submit to bound {when}, p99"].value
        )


def test_size_row_measures_memory_start_and_takeover() -> None:
    ((row, figures),) = measure("size").items()
    assert row == "320 GPUs, 76 pods"
    assert figures["resident"].verdict == "pass"
    reading, planning = (
        figures[f"start until {event}"].value
        for event in ("the cluster is read", "the first plan is carried out")
    )
    assert 0 < reading <= planning
    assert figures["takeover after SIGKILL"].value > 0
