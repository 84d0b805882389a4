"""The library in a program with an event loop: the same answers, and waits that can be cancelled."""

import asyncio
from collections.abc import Iterator

import pytest

import jobtree
from jobtree.client.aio import lines_from_thread
from tests.unit.cli.manifests import FLAVOR, lasting, run


def test_functions_and_methods_can_be_awaited(cluster: jobtree.SimulatedClusterClient) -> None:
    async def program() -> list[str]:
        train = jobtree.aio.AsyncRun(jobtree.Run("train", owner="org:lab", gpu_type=FLAVOR, gpus=8))
        assert (await train.plan()).starts
        await train.submit()
        await train.wait()
        await jobtree.aio.submit(lasting(run("second"), "1h"))
        return [one.name for one in await jobtree.aio.runs()]

    assert asyncio.run(program()) == ["second", "train"]
    assert len(cluster.runs()) == 2


def test_errors_are_raised_where_they_are_awaited(cluster: jobtree.SimulatedClusterClient) -> None:
    cluster.submit(run("train"))
    waits = jobtree.aio.AsyncRun(cluster.submit(run("waits"))[0])

    async def program() -> None:
        await waits.wait(timeout="1h")

    with pytest.raises(jobtree.WaitTimeoutError):
        asyncio.run(program())


def test_lines_arrive_in_order_and_errors_after_them() -> None:
    def lines() -> Iterator[str]:
        yield "one"
        yield "two"
        raise jobtree.NoAnswerError("gone")

    async def program() -> None:
        async for line in lines_from_thread(lines()):
            received.append(line)  # noqa: PERF401  what came before the error is kept

    received: list[str] = []
    with pytest.raises(jobtree.NoAnswerError, match="gone"):
        asyncio.run(program())
    assert received == ["one", "two"]
