"""No decision about one Run waits for reports about others (H4)."""

import asyncio

import pytest

from jobtree.kube.http.api_requests import Request
from tests.unit.manager.cluster_objects import (
    endings,
    phase,
    pods_of,
    put_budget,
    put_nodes,
    put_policy,
    put_run,
    states,
)
from tests.unit.manager.memory_cluster import RUNNER, Manager, Server


def begin() -> tuple[Server, Manager]:
    server = Server()
    put_policy(server)
    put_nodes(server, "nv-a", 4)
    put_budget(server, "org", 32)
    put_budget(server, "other", 32)
    return server, Manager(server)


@pytest.mark.parametrize("kind", ["reservations", "gpuleases", "budgets"])
def test_run_starts_while_reports_about_others_have_no_answer(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, manager = begin()
    answers, send = asyncio.Event(), server.send

    async def hang(request: Request) -> bytes:
        if request.writes and f"/{kind}" in request.target and b'"second"' not in (request.body or b""):
            await answers.wait()
        return await send(request)

    monkeypatch.setattr(server, "send", hang)
    put_run(server, "large", "other", 64)  # it waits for a date
    put_run(server, "first", "org", 8)

    async def play() -> None:
        await manager.loop.turn()
        put_run(server, "second", "org", 8)
        await manager.loop.turn()
        for _ in range(20):
            await asyncio.sleep(0)
        assert [phase(server, name) for name in ("first", "second")] == ["Running", "Running"]
        assert len(pods_of(server, "second")) == 1
        answers.set()
        await manager.loop.drain()

    RUNNER.run(play())
    manager.settle()
    assert endings(server, "second") == ["open"]
    assert manager.violations == []


def test_many_promises_are_all_written_while_reports_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reservations that wait for the present batch are written after it, without another event."""
    server, manager = begin()
    send = server.send

    async def slow(request: Request) -> bytes:
        if request.writes:
            await asyncio.sleep(0)
        return await send(request)

    monkeypatch.setattr(server, "send", slow)
    put_run(server, "first", "org", 32)
    for number in range(120):
        put_run(server, f"waits-{number}", "other", 16)
    manager.settle()
    for _ in range(20):
        server.now += 5_000
        manager.settle()
        server.now = max(server.now, manager.model.world.now)
    waiting = [number for number in range(120) if phase(server, f"waits-{number}") == "Reserved"]
    assert waiting
    assert all(f"waits-{number}-1" in states(server) for number in waiting)
    assert manager.violations == []
