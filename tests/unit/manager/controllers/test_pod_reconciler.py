"""Many pods at once."""

import asyncio
from typing import Any

import msgspec
import pytest

from jobtree.kube.write.object_writer import AT_ONCE
from jobtree.manager.cluster_view import ClusterView
from jobtree.manager.controllers.pod_reconciler import LARGE_AT_ONCE, LARGE_BYTES, PodReconciler
from jobtree.manager.decisions.write_set import DesiredPods
from jobtree.manager.log import Log
from jobtree.manager.pods.pod_set import PodPlacement, PodSet
from tests.unit.core.build import run

GANG = 3 * AT_ONCE


class Waiting:
    """A server that answers nobody."""

    async def create(self, *_: object) -> bytes:
        never: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        return await never


@pytest.mark.parametrize(("size", "at_once"), [(100, AT_ONCE), (LARGE_BYTES, LARGE_AT_ONCE)])
def test_no_more_pods_are_written_down_than_can_be_sent(
    monkeypatch: pytest.MonkeyPatch, size: int, at_once: int
) -> None:
    """Of large ones only a few: a server that has many of them to read has no time for others."""
    written: list[PodPlacement] = []

    def write_down(_: PodReconciler, __: DesiredPods, placement: PodPlacement) -> dict[str, Any]:
        written.append(placement)
        return {}

    async def make() -> None:
        view = ClusterView("jobtree-system", lambda *_: None, lambda: None)
        keeper = PodReconciler(Waiting(), view, Log(), lambda: 0, lambda: None)  # type: ignore[arg-type]
        placements = tuple(PodPlacement(f"0-{number}-1", "n", 8, 0, number, number) for number in range(GANG))
        gang = run("r", "org", 8 * GANG)
        container = {"name": "main", "image": "x", "args": ["a" * size]}
        spec = msgspec.structs.replace(gang.spec, template={"spec": {"containers": [container]}})
        desired = DesiredPods(msgspec.structs.replace(gang, spec=spec), PodSet(1, 8, placements))
        keeper._with_service.add("u")
        ready = [(placement.part, placement) for placement in placements]
        making = asyncio.ensure_future(keeper._create_all("u", desired, ready))
        for _ in range(5):
            await asyncio.sleep(0)
        making.cancel()
        with pytest.raises(asyncio.CancelledError):
            await making

    monkeypatch.setattr(PodReconciler, "_document", write_down)
    asyncio.run(make())
    assert len(written) == at_once
