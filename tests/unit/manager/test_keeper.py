"""Many pods at once."""

import asyncio
from typing import Any

import pytest

from jobtree.kube.writes import AT_ONCE
from jobtree.manager.keeper import Keeper
from jobtree.manager.log import Log
from jobtree.manager.pods.places import Cast, Place
from jobtree.manager.steps import Company
from jobtree.manager.view import View
from tests.unit.core.build import run

GANG = 3 * AT_ONCE


class Waiting:
    """A server that answers nobody."""

    async def create(self, *_: object) -> bytes:
        never: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        return await never


def test_no_more_pods_are_written_down_than_can_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Place] = []

    def write_down(_: Keeper, __: Company, place: Place) -> dict[str, Any]:
        written.append(place)
        return {}

    async def make() -> None:
        view = View("jobtree-system", lambda *_: None, lambda: None)
        keeper = Keeper(Waiting(), view, Log(), lambda: 0, lambda: None)  # type: ignore[arg-type]
        places = tuple(Place(f"0-{number}-1", "n", 8, 0, number, number) for number in range(GANG))
        company = Company(run("r", "org", 8 * GANG), Cast(1, 8, places))
        making = asyncio.ensure_future(
            asyncio.gather(*(keeper._create("u", company, place.part, place) for place in places))
        )
        for _ in range(3):
            await asyncio.sleep(0)
        making.cancel()
        with pytest.raises(asyncio.CancelledError):
            await making

    monkeypatch.setattr(Keeper, "_document", write_down)
    asyncio.run(make())
    assert len(written) == AT_ONCE
