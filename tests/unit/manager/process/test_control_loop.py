"""The control loop keeps readers away from the world during a plan."""

import asyncio

import pytest

from jobtree.kube.write.object_writer import Writer
from jobtree.kube.write.write_gate import Gate
from jobtree.manager.cluster_view import ClusterView
from jobtree.manager.decisions.write_set import WriteSet
from jobtree.manager.log import Log
from jobtree.manager.metrics import Metrics
from jobtree.manager.planner import world_gauges
from jobtree.manager.planner.planning_model import PlanningModel
from jobtree.manager.process.control_loop import ControlLoop
from jobtree.manager.process.health import Health
from tests.unit.manager.memory_cluster import KEY, NullStream, Server


def test_world_is_not_read_during_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scraper that does not wait gets the figures from before the plan."""
    monkeypatch.setattr(world_gauges, "WAIT_SECONDS", 0.0)
    metrics, log = Metrics(), Log(NullStream())  # type: ignore[arg-type]
    view = ClusterView("jobtree-system", lambda *_: None, lambda: None)
    during: list[str] = []

    loops: list[ControlLoop] = []

    class Scraped(PlanningModel):
        def take_turn(self, *given: object) -> WriteSet:
            assert metrics.of_world is not None
            during.append(metrics.of_world())
            loops[0].stop()
            return super().take_turn(*given)  # type: ignore[arg-type]

    async def turn() -> str:
        writer = Writer(Server(), Gate(lambda: True))  # type: ignore[arg-type]
        loops.append(ControlLoop(Scraped(KEY), view, writer, Health(view, metrics), log))
        await loops[0].run()
        assert metrics.of_world is not None
        return metrics.of_world()

    assert "jobtree_fleet_gpus" in asyncio.run(turn())
    assert during == [""]
