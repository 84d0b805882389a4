"""Every row of ``make bench-live`` comes out, on a small cluster; how fast is not asked here."""

import asyncio
from collections.abc import Sequence

import pytest

from benchmarks.live.results import Figure
from benchmarks.live.rows import ROWS, Effort

SMALL = Effort(nodes=40, share=0.004)


def measured(name: str) -> dict[str, dict[str, Figure]]:
    rows: dict[str, dict[str, Figure]] = {}

    def tell(row: str, figures: Sequence[Figure]) -> None:
        rows[row] = {figure.name: figure for figure in figures}

    asyncio.run(ROWS[name](SMALL, tell))
    return rows


def test_gangs() -> None:
    rows = measured("gangs")
    assert list(rows) == ["3 gangs of 8 GPUs, 40 nodes", "1 gangs of 128 GPUs, 40 nodes"]
    for figures in rows.values():
        ratio = figures["gangs per second"].value / figures["gangs per second by kube-scheduler"].value
        times = figures["times kube-scheduler"]
        assert times.value == ratio
        assert times.raw is not None
        assert times.raw > 0
        lifted = figures["the same without its limit on requests"].value
        assert figures["times that"].value == figures["gangs per second"].value / lifted
        assert figures["share of raw pods"].value > 0
    assert rows["3 gangs of 8 GPUs, 40 nodes"]["share of raw writes"].value > 0
    # Run, commit, lease, pod and event; budgets are told once for all, and sometimes later.
    assert 4 <= rows["3 gangs of 8 GPUs, 40 nodes"]["writes per gang"].value <= 6


@pytest.mark.parametrize("name", ["podless", "pods"])
def test_published_shape(name: str) -> None:
    ((row, figures),) = measured(name).items()
    assert row.startswith("60 two-pod gangs of 30 teams")
    assert 0 < figures["all admitted"].value <= figures["all completed"].value
    assert figures["manager, peak"].verdict == "pass"


def test_idle() -> None:
    ((_, figures),) = measured("idle").items()
    assert figures["submit to bound, p50"].value <= figures["submit to bound, p99"].value


def test_size() -> None:
    ((row, figures),) = measured("size").items()
    assert row == "320 GPUs, 76 pods"
    assert figures["resident"].verdict == "pass"
    reading, planning = (
        figures[f"start until {what}"].value
        for what in ("the cluster is read", "the first plan is carried out")
    )
    assert 0 < reading <= planning
    assert figures["takeover after SIGKILL"].value > 0
