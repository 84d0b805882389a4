"""Values of a public beacon are fetched when they are published; no plan waits for them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from aiohttp import web

from jobtree.api.kinds.policy import Beacon
from jobtree.core.lottery.resolution_record import Record, verify
from jobtree.core.world.world import World
from jobtree.kube.http.api_resources import RESERVATIONS
from jobtree.manager.log import Log
from jobtree.manager.process import beacon_listener
from jobtree.manager.process.beacon_listener import BeaconListener, BeaconValue
from tests.unit.core.build import T0
from tests.unit.manager.cluster_objects import POLICY, put_budget, put_nodes, put_policy, put_run
from tests.unit.manager.memory_cluster import Manager, NullStream, Server

VALUE = "00ff" * 16
GENESIS = "2026-01-05T09:00:00Z"


@pytest.fixture(autouse=True)
def _retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beacon_listener, "RETRY_SECONDS", 0)


@asynccontextmanager
async def publisher(*answers: object) -> AsyncIterator[str]:
    """Serves a beacon that gives these answers in turn, and then correct ones."""
    remaining = list(answers)

    async def answer(request: web.Request) -> web.Response:
        given = (
            remaining.pop(0)
            if remaining
            else {"round": int(request.match_info["round"]), "randomness": VALUE}
        )
        if isinstance(given, int):
            return web.Response(status=given)
        return web.json_response(given)

    app = web.Application()
    app.router.add_get("/public/{round}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/public/{{round}}"
    finally:
        await runner.cleanup()


def values_heard(
    *answers: object, play: Callable[[BeaconListener, Beacon, asyncio.Event], Awaitable[None]]
) -> list[BeaconValue]:
    async def main() -> list[BeaconValue]:
        async with publisher(*answers) as url:
            woken = asyncio.Event()
            listener = BeaconListener(Log(NullStream()), woken.set, clock=lambda: T0 / 1000)  # type: ignore[arg-type]
            await play(listener, Beacon("drand", 30_000, T0 - 30_000, url), woken)
            values = listener.new_values()
            listener.stop()
            return values

    return asyncio.run(asyncio.wait_for(main(), 30))


async def wait_for_first(listener: BeaconListener, source: Beacon, woken: asyncio.Event) -> None:
    listener.follow_rounds(source, [("drand", 2), ("other", 1)])
    await woken.wait()


@pytest.mark.parametrize(
    "wrong_answers",
    [
        (),
        (500, 404),
        ({"randomness": "no hex"}, {}),
        ({"round": 1, "randomness": VALUE},),
        ({"randomness": ""},),
    ],
    ids=["none", "refusals", "garbage", "another round", "nothing"],
)
def test_published_value_is_fetched_in_spite_of_wrong_answers(wrong_answers: tuple[object, ...]) -> None:
    assert values_heard(*wrong_answers, play=wait_for_first) == [BeaconValue("drand", 2, VALUE)]


def test_new_leader_waits_only_for_published_values() -> None:
    async def play(listener: BeaconListener, source: Beacon, _: asyncio.Event) -> None:
        await listener.catch_up(source, [("drand", 2), ("drand", 3)])  # round 3 is published in half a minute

    assert values_heard(500, play=play) == [BeaconValue("drand", 2, VALUE)]


def test_new_leader_does_not_wait_for_a_beacon_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beacon_listener, "ANSWER_SECONDS", 0.01)

    async def play(listener: BeaconListener, source: Beacon, _: asyncio.Event) -> None:
        await listener.catch_up(
            msgspec.structs.replace(source, url="http://127.0.0.1:1/{round}"), [("drand", 2)]
        )
        await listener.catch_up(None, [("drand", 2)])

    assert values_heard(play=play) == []


def test_only_published_and_wanted_rounds_are_fetched() -> None:
    async def play(listener: BeaconListener, source: Beacon, woken: asyncio.Event) -> None:
        listener.follow_rounds(source, [("drand", 3)])  # published in half a minute
        listener.follow_rounds(msgspec.structs.replace(source, url=""), [("drand", 2)])
        listener.follow_rounds(source, [("drand", 1)])
        await woken.wait()
        listener.follow_rounds(source, [("drand", 1)])

    assert values_heard(play=play) == [BeaconValue("drand", 1, VALUE)]


def test_values_are_new_again_when_the_world_is_rebuilt() -> None:
    async def play(listener: BeaconListener, source: Beacon, woken: asyncio.Event) -> None:
        await wait_for_first(listener, source, woken)
        assert len(listener.new_values()) == 1
        listener.restart()

    (value,) = values_heard(play=play)
    world = World()
    value.apply_to(world)
    assert world.beacon_values == {("drand", 2): VALUE}


def test_draw_mixes_in_the_value_of_the_beacon(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(_url: str, _number: int) -> str:
        return VALUE

    monkeypatch.setattr(beacon_listener, "fetch", answer)
    server = Server()
    put_policy(
        server,
        f'{POLICY}beacon: {{name: drand, period: 30s, genesis: "{GENESIS}", url: "http://x/{{round}}"}}\n',
    )
    put_nodes(server, "nv-a", 2)
    put_budget(server, "org", 16)
    put_budget(server, "other", 16)
    put_run(server, "loser", "org", 16)
    manager = Manager(server)
    manager.settle()
    put_run(server, "winner", "other", 16)
    manager.settle()
    server.now += 60_000
    manager.settle()
    (reservation,) = [body for body in server.all(RESERVATIONS) if body["metadata"]["name"] == "winner-1"]
    record = msgspec.convert(reservation["status"]["lottery"], Record)
    assert (record.beacon.value, verify(record)) == (VALUE, [])
