"""Reports are written beside the decisions, a batch at a time (H4)."""

import asyncio

import pytest

from jobtree.api.kinds.budget import BudgetStatus
from jobtree.kube.http.api_errors import UnreachableError
from jobtree.manager.controllers.report_writer import ReportWriter
from jobtree.manager.decisions.write_set import WriteSet


class SlowServer:
    """Keeps every batch until ``go`` is set."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.batches: list[list[str]] = []
        self.finished = 0

    async def write(self, write_set: WriteSet) -> None:
        self.batches.append([name for name, _ in write_set.budgets])
        await self.go.wait()

    def end(self) -> None:
        self.finished += 1


def report(*budgets: str) -> WriteSet:
    return WriteSet(budgets=tuple((name, BudgetStatus()) for name in budgets))


def test_reports_that_come_during_a_batch_are_written_together() -> None:
    async def play() -> None:
        server = SlowServer()
        reports = ReportWriter(server.write, server.end)
        for name in ("a", "b", "c", "b"):
            reports.add(report(name))
            await asyncio.sleep(0)
        assert (server.batches, reports.is_busy) == ([["a"]], True)
        server.go.set()
        await reports.drain()
        assert (server.batches, reports.is_busy, server.finished) == ([["a"], ["b", "c"]], False, 2)

    asyncio.run(play())


def test_reports_that_wait_are_dropped_when_the_model_is_built_again() -> None:
    async def play() -> None:
        server = SlowServer()
        reports = ReportWriter(server.write, server.end)
        for name in ("a", "b"):
            reports.add(report(name))
            await asyncio.sleep(0)
        forgetting = asyncio.ensure_future(reports.forget())
        await asyncio.sleep(0)
        assert not forgetting.done(), "the present batch is awaited"
        server.go.set()
        await forgetting
        assert (server.batches, reports.is_busy) == ([["a"]], False)

    asyncio.run(play())


def test_unreachable_server_is_told_to_the_next_turn_once() -> None:
    async def fail(_: WriteSet) -> None:
        raise UnreachableError("no answer", may_have_happened=True)

    async def play() -> None:
        reports = ReportWriter(fail, lambda: None)
        reports.add(report("a"))
        await reports.drain()
        with pytest.raises(UnreachableError):
            reports.raise_error()
        reports.raise_error()

    asyncio.run(play())
