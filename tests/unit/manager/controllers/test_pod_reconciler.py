"""The number of pod documents in memory is limited."""

import asyncio
from typing import Any

import msgspec
import pytest

from jobtree.api.schema.packed_template import PackedTemplate
from jobtree.kube.write.object_writer import AT_ONCE
from jobtree.manager.cluster_view import ClusterView
from jobtree.manager.controllers.pod_reconciler import LARGE_AT_ONCE, LARGE_BYTES, PodReconciler
from jobtree.manager.decisions.write_set import DesiredPods
from jobtree.manager.log import Log
from jobtree.manager.pods.pod_set import PodPlacement, PodSet
from tests.unit.core.build import run

GANG = 3 * AT_ONCE


class SilentWriter:
    """A writer whose requests get no answer."""

    async def create(self, *_: object) -> bytes:
        never: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        return await never


@pytest.mark.parametrize(("size", "at_once"), [(100, AT_ONCE), (LARGE_BYTES, LARGE_AT_ONCE)])
def test_no_more_pod_documents_are_made_than_can_be_sent(
    monkeypatch: pytest.MonkeyPatch, size: int, at_once: int
) -> None:
    """Few large pods are sent at once, because the server would have no time for other requests."""
    written: list[PodPlacement] = []

    def record(_: PodReconciler, __: DesiredPods, placement: PodPlacement) -> dict[str, Any]:
        written.append(placement)
        return {}

    async def make() -> None:
        view = ClusterView("jobtree-system", lambda *_: None, lambda: None)
        keeper = PodReconciler(SilentWriter(), view, Log(), lambda: 0, lambda: None)  # type: ignore[arg-type]
        placements = tuple(PodPlacement(f"0-{number}-1", "n", 8, 0, number, number) for number in range(GANG))
        gang = run("r", "org", 8 * GANG)
        container = {"name": "main", "image": "x", "args": ["a" * size]}
        template = PackedTemplate({"spec": {"containers": [container]}})
        spec = msgspec.structs.replace(gang.spec, template=template)
        desired = DesiredPods(msgspec.structs.replace(gang, spec=spec), PodSet(1, 8, placements))
        keeper._with_service.add("u")
        ready = [(placement.part, placement) for placement in placements]
        making = asyncio.ensure_future(keeper._create_all("u", desired, ready))
        for _ in range(5):
            await asyncio.sleep(0)
        making.cancel()
        with pytest.raises(asyncio.CancelledError):
            await making

    monkeypatch.setattr(PodReconciler, "_document", record)
    asyncio.run(make())
    assert len(written) == at_once
