"""Clusters as clients see them: rows, plans, timelines, the clock, and files that others write."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pytest

import jobtree
from jobtree.client.answers import rows
from tests.unit.cli.cli_runner import CliRunner
from tests.unit.cli.manifests import lasting, run

Cluster = jobtree.SimulatedClusterClient


def test_change_of_another_program_is_seen_and_not_overwritten(
    state: Path, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.submit(run("mine"))
    assert [one.name for one in jobtree.runs()] == ["mine"]
    CliRunner(state.parent, capsys).submit(run("theirs"))
    assert [one.name for one in jobtree.runs()] == ["mine", "theirs"]
    cluster.submit(run("third"))
    assert [one.name for one in jobtree.runs()] == ["mine", "theirs", "third"]


def test_file_that_another_program_changes_now_is_locked(state: Path, cluster: Cluster) -> None:
    from jobtree.simulation.cluster.simulated_cluster import SimulatedCluster  # noqa: PLC0415
    from jobtree.snapshot.state_file import StateFile  # noqa: PLC0415

    with StateFile(str(state), SimulatedCluster).edit(), pytest.raises(jobtree.StateFileError) as locked:
        cluster.advance("1h")
    assert (locked.value.exit_code, "locked by another command" in str(locked.value)) == (4, True)


def test_file_that_breaks_or_goes_away_raises(state: Path, cluster: Cluster) -> None:
    assert len(jobtree.runs()) == 0
    state.write_text("kind: [")
    with pytest.raises(jobtree.InputError, match=r"cluster\.yaml"):
        jobtree.runs()
    state.unlink()
    with pytest.raises(jobtree.StateFileError) as missing:
        cluster.advance("1h")
    assert missing.value.exit_code == 3


def test_failed_change_leaves_nothing_behind(state: Path, cluster: Cluster) -> None:
    before = state.read_bytes()
    with pytest.raises(jobtree.InputError):
        cluster.submit(run("good"), {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}})
    assert state.read_bytes() == before
    assert len(jobtree.runs()) == 0


def test_clock_moves_forward_only(cluster: Cluster) -> None:
    cluster.submit(lasting(run("train"), "1h"))
    events = cluster.advance("3h")
    assert [(event.name, event.run) for event in events] == [("Completed", ("default", "train"))]
    assert cluster.now == "2026-01-05T12:00:00Z"
    for wrong in ({"to": "2026-01-05T11:00:00Z"}, {"duration": "soon"}, {}, {"to": "9999-01-01T00:00:00Z"}):
        with pytest.raises(jobtree.ArgumentError):
            cluster.advance(**wrong)
    assert cluster.now == "2026-01-05T12:00:00Z"


def test_nodes_fail_and_heal(cluster: Cluster) -> None:
    cluster.submit(run("train", runtime={"checkpoint": "10m"}))
    assert "NodeFailed" in {event.name for event in cluster.fail("a01")}
    cluster.heal("a01")
    assert jobtree.runs()[0].status.phase == "Running"
    with pytest.raises(jobtree.NotFoundError) as missing:
        cluster.drain("nowhere")
    assert (missing.value.kind, missing.value.name) == ("Node", "nowhere")


def test_rows_have_exact_amounts_and_times(cluster: Cluster) -> None:
    cluster.submit(lasting(run("train"), "1h"))
    cluster.submit(run("waits"))
    cluster.advance("45m")
    (envelope,) = jobtree.budgets("org:lab")
    amounts = (envelope.used_gpus, envelope.free_gpus, envelope.used_gpu_hours)
    assert amounts == (Decimal(8), Decimal(0), Decimal(6))
    assert jobtree.budgets("org:other").to_dicts() == []
    (promise,) = jobtree.reservations()
    assert (promise.run, promise.state, promise.deficit_gpus) == ("waits", "Pending", 0)
    (lease,) = jobtree.leases("train", since="2026-01-05T09:30:00Z")
    assert lease.first == datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
    assert (lease.gpu_hours, lease.credits) == (Decimal(2), Decimal(2))
    assert jobtree.leases(owner="org:lab", only_open=True).to_dicts()[0]["run"] == "default/train"
    with pytest.raises(jobtree.ArgumentError, match="since=yesterday: must be a day"):
        jobtree.leases(since="yesterday")


def pair(name: str, data: list[dict[str, object]]) -> tuple[str, list[dict[str, object]]]:
    return name, data


def test_rows_are_a_data_frame_where_there_is_a_library(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.submit(run("train"))
    monkeypatch.setattr(rows, "find_spec", lambda _: None)
    with pytest.raises(jobtree.ArgumentError, match="no DataFrame without pandas or polars"):
        jobtree.leases().frame()
    monkeypatch.setattr(rows, "find_spec", lambda name: name == "polars")
    monkeypatch.setattr(
        rows, "import_module", lambda name: SimpleNamespace(DataFrame=lambda data: (name, data))
    )
    library, data = jobtree.budgets().frame()
    assert (library, data[0]["used_gpus"]) == ("polars", 8.0)
    assert not any(isinstance(value, Decimal) for value in data[0].values())


def test_plan_of_several_runs_is_one_plan(cluster: Cluster) -> None:
    plan = cluster.plan(run("one"), run("two"))
    assert [(answer.metadata.name, answer.status.answer) for answer in plan.runs] == [
        ("one", "StartsNow"),
        ("two", "Waits"),
    ]
    assert (plan.starts, plan.accepted(allow_wait=True)) == (False, [("default", "one")])
    assert json.dumps(plan.documents())
    with pytest.raises(jobtree.ArgumentError):
        cluster.plan("one", run("two"))


def test_timeline_has_running_and_promised_gpus(cluster: Cluster) -> None:
    cluster.submit(lasting(run("train", runtime={"maxDuration": "1h"}), "1h"))
    cluster.submit(run("waits"))
    (domain,) = jobtree.timeline("4h").domains()
    assert [(bar.name, bar.gpus, bar.sign) for bar in domain.bars] == [
        ("default/train", 8, "#"),
        ("default/waits-1", 8, "="),
    ]


def test_environment_names_the_cluster_where_no_block_does(
    state: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JOBTREE_STATE", str(state))
    assert len(jobtree.runs()) == 0
    with jobtree.sample_cluster(tmp_path / "sample.yaml"):
        assert len(jobtree.runs()) == 1
        with jobtree.cluster(state):
            assert len(jobtree.runs()) == 0
        assert len(jobtree.runs()) == 1
    assert len(jobtree.runs()) == 0


def test_without_any_cluster_the_error_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("JOBTREE_STATE", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(jobtree.JobtreeError):
        jobtree.runs()


def test_verify_needs_a_record() -> None:
    with pytest.raises(jobtree.ArgumentError, match="no Reservation with the record"):
        jobtree.verify(run("train"))
