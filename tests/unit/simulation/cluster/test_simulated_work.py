"""Work of a simulated Run: what a stop costs, and how it is reported, as in scenario 16."""

import pytest

from jobtree.api.documents.document_stream import Document
from jobtree.api.schema.quantities import HOUR, MINUTE, parse_time
from jobtree.simulation.cluster.simulated_cluster import SimulatedCluster
from jobtree.simulation.cluster.simulated_work import LOST, SimulatedWork
from tests.unit.cli.manifests import T0, Body, budget, envelope, nodes, run

START = parse_time(T0)
ELASTIC = {"minTotalGPUs": 8, "maxTotalGPUs": 24, "stepGPUs": 8}


@pytest.mark.parametrize(
    ("checkpoint", "saved", "done", "lost"),
    [(None, False, 0, 800), (30, False, 720, 80), (None, True, 800, 0), (30, True, 800, 0)],
)
def test_stop_costs_unsaved_work(checkpoint: int | None, saved: bool, done: int, lost: int) -> None:
    work = SimulatedWork(None)
    work.resize(8, 0)
    work.stop(100, checkpoint, saved=saved)
    assert (work.done, work.lost) == (done, lost)
    work.resize(8, 200)
    work.stop(210, None)
    assert (work.done, work.lost) == (done, lost + 80)


def scenario_7(on_notice: str) -> SimulatedCluster:
    """Returns the cluster of scenario 7 after two hours, when j4 was submitted; no Run ever completes."""
    cluster = SimulatedCluster(START, checked=False)
    notice = {"onNotice": on_notice}
    cluster.load(documents(*nodes(9), budget("a", envelope(64)), budget("b", envelope(64))))
    cluster.submit(
        documents(
            run("j1", 32, "org:a", runtime={"checkpoint": "30m", **notice}),
            run("j2", 24, "org:b", malleable=ELASTIC, runtime=notice),
            run("j3", 8, "org:a", runtime={"checkpoint": "10m", **notice}),
        )
    )
    cluster.advance(START + 2 * HOUR)
    cluster.submit(documents(run("j4", 32, "org:b", runtime=notice)))
    return cluster


def documents(*bodies: Body) -> list[Document]:
    return [Document("test", body) for body in bodies]


def lost(cluster: SimulatedCluster) -> dict[str, int]:
    """Returns the lost GPU-milliseconds that the document of each Run reports."""
    cluster.documents()
    runs = {key[2]: body["metadata"].get("annotations", {}) for key, body in cluster.objects.of("Run")}
    return {name: int(notes[LOST]) for name, notes in runs.items() if LOST in notes}


def stops(cluster: SimulatedCluster) -> int:
    return sum(event.name == "RandomPreempt" for event in cluster.events)


def test_lost_work_of_two_days_is_reported() -> None:
    cluster = scenario_7("Ignore")
    cluster.advance(START + 2 * HOUR + 48 * HOUR)
    assert stops(cluster) >= 4
    reported = lost(cluster)
    assert set(reported) & {"j2", "j4"}  # Runs without a checkpoint lose everything
    assert reported.get("j1", 0) <= 32 * 30 * MINUTE * stops(cluster)
    assert cluster.violations() == []


def test_run_that_saves_on_notice_loses_no_work() -> None:
    cluster = scenario_7("Checkpoint")
    cluster.advance(START + 2 * HOUR + 48 * HOUR)
    assert stops(cluster) >= 4
    assert lost(cluster) == {}


def test_work_is_lost_when_a_node_fails_without_notice() -> None:
    cluster = SimulatedCluster(START)
    cluster.load(documents(*nodes(1), budget("lab", envelope(8))))
    cluster.submit(documents(run("r", runtime={"onNotice": "Checkpoint"})))
    cluster.advance(START + HOUR)
    cluster.fail(["a01"])
    assert lost(cluster) == {"r": 8 * HOUR}
