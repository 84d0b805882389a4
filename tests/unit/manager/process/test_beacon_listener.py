"""Values of a public beacon: heard when they are published, never waited for."""

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
from tests.unit.manager.cluster import Manager, Server, Silent
from tests.unit.manager.stage import POLICY, put_budget, put_nodes, put_policy, put_run

VALUE = "00ff" * 16
GENESIS = "2026-01-05T09:00:00Z"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beacon_listener, "RETRY_SECONDS", 0)


@asynccontextmanager
async def publisher(*answers: object) -> AsyncIterator[str]:
    """A beacon that answers so, one after another, and then as it should."""
    left = list(answers)

    async def answer(request: web.Request) -> web.Response:
        given = left.pop(0) if left else {"round": int(request.match_info["round"]), "randomness": VALUE}
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


def hear(
    *answers: object, play: Callable[[BeaconListener, Beacon, asyncio.Event], Awaitable[None]]
) -> list[BeaconValue]:
    async def main() -> list[BeaconValue]:
        async with publisher(*answers) as url:
            woken = asyncio.Event()
            listener = BeaconListener(Log(Silent()), woken.set, clock=lambda: T0 / 1000)  # type: ignore[arg-type]
            await play(listener, Beacon("drand", 30_000, T0 - 30_000, url), woken)
            news = listener.new_values()
            listener.stop()
            return news

    return asyncio.run(asyncio.wait_for(main(), 30))


async def first(listener: BeaconListener, source: Beacon, woken: asyncio.Event) -> None:
    listener.follow_rounds(source, [("drand", 2), ("other", 1)])
    await woken.wait()


@pytest.mark.parametrize(
    "stumbles",
    [
        (),
        (500, 404),
        ({"randomness": "no hex"}, {}),
        ({"round": 1, "randomness": VALUE},),
        ({"randomness": ""},),
    ],
    ids=["none", "refusals", "garbage", "another round", "nothing"],
)
def test_a_published_value_is_heard_sooner_or_later(stumbles: tuple[object, ...]) -> None:
    assert hear(*stumbles, play=first) == [BeaconValue("drand", 2, VALUE)]


def test_whoever_begins_to_lead_first_hears_what_was_published_and_waits_for_nothing_else() -> None:
    async def play(listener: BeaconListener, source: Beacon, _: asyncio.Event) -> None:
        await listener.catch_up(source, [("drand", 2), ("drand", 3)])  # the other in half a minute

    assert hear(500, play=play) == [BeaconValue("drand", 2, VALUE)]


def test_a_beacon_that_does_not_answer_keeps_nobody_from_leading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beacon_listener, "ANSWER_SECONDS", 0.01)

    async def play(listener: BeaconListener, source: Beacon, _: asyncio.Event) -> None:
        await listener.catch_up(
            msgspec.structs.replace(source, url="http://127.0.0.1:1/{round}"), [("drand", 2)]
        )
        await listener.catch_up(None, [("drand", 2)])

    assert hear(play=play) == []


def test_what_is_not_published_or_not_wanted_is_not_asked_for() -> None:
    async def play(listener: BeaconListener, source: Beacon, woken: asyncio.Event) -> None:
        listener.follow_rounds(source, [("drand", 3)])  # in half a minute
        listener.follow_rounds(msgspec.structs.replace(source, url=""), [("drand", 2)])
        listener.follow_rounds(source, [("drand", 1)])
        await woken.wait()
        listener.follow_rounds(source, [("drand", 1)])

    assert hear(play=play) == [BeaconValue("drand", 1, VALUE)]


def test_what_was_heard_is_told_again_to_a_world_built_anew() -> None:
    async def play(listener: BeaconListener, source: Beacon, woken: asyncio.Event) -> None:
        await first(listener, source, woken)
        assert len(listener.new_values()) == 1
        listener.restart()

    (heard,) = hear(play=play)
    world = World()
    heard.apply_to(world)
    assert world.beacon_values == {("drand", 2): VALUE}


def test_a_draw_mixes_in_what_was_heard(monkeypatch: pytest.MonkeyPatch) -> None:
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
    (reservation,) = [one for one in server.all(RESERVATIONS) if one["metadata"]["name"] == "winner-1"]
    record = msgspec.convert(reservation["status"]["lottery"], Record)
    assert (record.beacon.value, verify(record)) == (VALUE, [])
