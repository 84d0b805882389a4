"""A Run by keyword, YAML or dict: planned, submitted, waited for, resized, explained and cancelled."""

from pathlib import Path
from typing import Any

import pytest

import jobtree
from tests.unit.cli.manifests import FLAVOR, budget, envelope, nodes, run as manifest

Cluster = jobtree.SimulatedClusterClient


def described(name: str = "train", gpus: int = 8, hours: int = 0, **fields: Any) -> jobtree.Run:  # noqa: ANN401
    work = {"sim.rq.davidlangworthy.io/duration": f"{hours}h"} if hours else {}
    return jobtree.Run(name, owner="org:lab", gpu_type=FLAVOR, gpus=gpus, annotations=work, **fields)


def test_keywords_become_the_fields_of_the_manifest() -> None:
    run = described(
        gpus=16,
        namespace="lab",
        group_gpus=8,
        checkpoint="10m",
        max_duration="2h",
        min_gpus=8,
        max_gpus=24,
        step_gpus=8,
        spares=1,
        allow_borrow=True,
        sponsors=("org:vision",),
        after=("data",),
        spec={"runtime": {"maxRestarts": 1}, "locality": {"allowCrossGroupSpread": False}},
    )
    assert run.to_dict() == {
        "apiVersion": "rq.davidlangworthy.io/v1",
        "kind": "Run",
        "metadata": {"name": "train", "namespace": "lab"},
        "spec": {
            "owner": "org:lab",
            "resources": {"gpuType": FLAVOR, "totalGPUs": 16},
            "locality": {"groupGPUs": 8, "allowCrossGroupSpread": False},
            "runtime": {"checkpoint": "10m", "maxDuration": "2h", "maxRestarts": 1},
            "malleable": {"minTotalGPUs": 8, "maxTotalGPUs": 24, "stepGPUs": 8},
            "spares": 1,
            "funding": {"allowBorrow": True, "sponsors": ["org:vision"]},
            "follow": {"after": ["data"]},
        },
    }


def test_yaml_and_dict_describe_the_same_run(tmp_path: Path) -> None:
    run = described(checkpoint="10m")
    (tmp_path / "run.yaml").write_text(run.to_yaml())
    for same in (
        jobtree.Run.from_yaml(run.to_yaml()),
        jobtree.Run.from_dict(run.to_dict()),
        jobtree.Run.from_file(tmp_path / "run.yaml"),
    ):
        assert same.to_dict() == run.to_dict()


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"gpus": -1}, "spec.resources.totalGPUs"),
        ({"checkpoint": "soon"}, "spec.runtime.checkpoint"),
        ({"spec": {"colour": "blue"}}, "spec.colour"),
        ({"min_gpus": 8, "max_gpus": 8, "step_gpus": 0}, "spec.malleable.stepGPUs"),
    ],
)
def test_description_that_breaks_a_rule_is_refused_at_once(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(jobtree.InputError) as refused:
        described(**fields)
    problems = refused.value.problems
    assert any(str(getattr(problem, "field", problem)).startswith(field) for problem in problems), problems


def test_other_objects_are_no_run() -> None:
    with pytest.raises(jobtree.InputError, match="kind: must be Run, but is Budget"):
        jobtree.Run.from_dict(budget("lab"))
    with pytest.raises(jobtree.InputError, match="has 2 objects"):
        jobtree.Run.from_yaml("{kind: Run}\n---\n{kind: Run}")


def test_plan_of_a_new_run_tells_its_slots_and_changes_nothing(state: Path, cluster: Cluster) -> None:
    before = state.read_bytes()
    plan = described().plan()
    (answer,) = plan.runs
    assert (plan.starts, answer.status.answer) == (True, "StartsNow")
    assert answer.status.leases[0].slots == ("a01#0-7",)
    assert state.read_bytes() == before
    assert list(cluster.runs()) == []


def test_submitted_run_has_the_decision_and_a_status_that_is_read_now(cluster: Cluster) -> None:
    run = described(hours=1).submit()
    assert (run.uid != "", run.namespace, run.status.phase) == (True, "default", "Running")
    cluster.advance("1h")
    assert run.status.phase == "Completed"


def test_wait_moves_the_clock_of_a_simulation_until_the_run_runs(cluster: Cluster) -> None:
    described("first", hours=2).submit()
    second = described("second", hours=3).submit()
    assert second.status.phase == "Reserved"
    assert second.plan().runs[0].status.reservation is not None
    assert second.wait().status.phase == "Running"
    assert cluster.now == "2026-01-05T11:00:00Z"
    assert second.wait("Completed").status.phase == "Completed"
    assert cluster.now == "2026-01-05T14:00:00Z"
    assert second.wait("Running") is second  # it has run


def test_wait_ends_at_its_timeout(cluster: Cluster) -> None:
    described("first", hours=2).submit()
    second = described("second").submit()
    with pytest.raises(jobtree.WaitTimeoutError) as timeout:
        second.wait(timeout="1h")
    facts = (timeout.value.run, timeout.value.phase, timeout.value.until)
    assert facts == ("default/second", "Reserved", "Running")
    assert isinstance(timeout.value, TimeoutError)
    assert cluster.now == "2026-01-05T10:00:00Z"
    with pytest.raises(jobtree.ArgumentError, match="is not a duration"):
        second.wait(timeout="soon")
    with pytest.raises(jobtree.ArgumentError, match="must be one of Running, Completed, Finished"):
        second.wait("Done")  # type: ignore[arg-type]


def test_wait_for_a_run_that_can_never_start_ends(cluster: Cluster) -> None:
    described("endless").submit()
    never = jobtree.Run("never", owner="org:poor", gpu_type=FLAVOR, gpus=8).submit()
    with pytest.raises(jobtree.WaitTimeoutError, match="is Reserved and not Running"):
        never.wait()
    assert cluster.now < "2026-02-05"


def test_wait_for_a_deleted_or_failed_run_raises(cluster: Cluster) -> None:
    run = described(hours=9).submit()
    cluster.run("train").cancel()
    with pytest.raises(jobtree.RunEndedError) as ended:
        run.wait("Completed")
    assert (ended.value.phase, ended.value.exit_code) == ("", 1)
    failing = described("failing", hours=9, max_duration="1h", spec={"runtime": {"maxRestarts": 0}}).submit()
    with pytest.raises(jobtree.RunEndedError) as ended:
        failing.wait("Completed")
    assert ended.value.phase == "Failed"


def test_run_that_was_created_again_is_another_run(cluster: Cluster) -> None:
    run = described().submit()
    run.cancel()
    cluster.advance("1h")
    described().submit()
    with pytest.raises(jobtree.ConflictError, match="was deleted and created again"):
        run.refresh()
    with pytest.raises(jobtree.ConflictError, match="was deleted and created again"):
        run.cancel()
    assert cluster.run("train").status.phase == "Running"


def test_run_that_is_gone_or_not_submitted_raises(cluster: Cluster) -> None:
    with pytest.raises(jobtree.ConflictError, match="was not submitted yet"):
        _ = described().status
    run = described().submit()
    run.cancel()
    with pytest.raises(jobtree.NotFoundError) as missing:
        _ = run.status
    assert (missing.value.kind, missing.value.name) == ("Run", "default/train")
    with pytest.raises(jobtree.NotFoundError):
        cluster.run("nobody")


@pytest.mark.usefixtures("cluster")
def test_edit_after_submit_needs_replace_and_keeps_the_rules() -> None:
    described("first").submit()
    run = described("second", gpus=8).submit()
    edited = jobtree.Run.from_dict({**run.to_dict(), "spec": {**run.spec, "runtime": {"maxDuration": "1h"}}})
    with pytest.raises(jobtree.ConflictError, match="already exists"):
        edited.submit()
    assert edited.submit(replace=True).uid == run.uid
    assert run.refresh().spec["runtime"] == {"maxDuration": "1h"}
    other = jobtree.Run.from_dict({**run.to_dict(), "spec": {**run.spec, "owner": "org:other"}})
    with pytest.raises(jobtree.InputError, match="owner"):
        other.submit(replace=True)


def test_dry_run_is_refused_like_a_submit_and_saves_nothing(cluster: Cluster) -> None:
    assert described().submit(dry_run=True).uid == ""
    assert len(cluster.runs()) == 0
    described().submit()
    with pytest.raises(jobtree.ConflictError):
        described().submit(dry_run=True)


def test_shrink_and_grow_set_the_desired_width(state: Path) -> None:
    with jobtree.cluster(state) as cluster:
        cluster.submit(budget("more", envelope(16), owner="org:lab"))
        run = described(gpus=16, min_gpus=8, max_gpus=16, step_gpus=8, checkpoint="1m").submit()
        assert run.shrink(by=8).spec["malleable"]["desiredTotalGPUs"] == 8
        assert run.status.width is not None
        assert run.status.width.allocated == 8
        run.grow(to=16)
        assert run.status.width.desired == 16
        with pytest.raises(jobtree.ArgumentError, match="its widths are 8 to 16"):
            run.shrink(to=9)
        with pytest.raises(jobtree.ArgumentError, match="either by=N or to=N"):
            run.shrink()
        with pytest.raises(jobtree.ConflictError, match="is a fixed gang"):
            described("fixed").submit().grow(by=8)


def test_explain_has_leases_payers_and_causes(cluster: Cluster) -> None:
    train = described(hours=1).submit()
    waits = described("waits").submit()
    cluster.advance("30m")
    history = train.explain()
    (lease,) = history.leases
    assert (lease.gpus, lease.closed, float(lease.gpu_hours)) == (8, "", 4)
    assert [(share.class_, share.gpus, share.gpu_hours) for share in history.payers] == [("Owned", 8, "4")]
    (cause,) = waits.explain().plan.status.causes
    assert (cause.reason, cause.where, cause.need) == ("ConcurrencyExhausted", "lab/own", 8)


def test_simulated_run_has_no_logs(cluster: Cluster) -> None:
    run = described().submit()
    with pytest.raises(jobtree.ConflictError, match="has no pods"):
        next(run.logs())
    assert cluster.runs(phase="Running")[0].name == "train"


def test_run_stays_with_the_cluster_that_it_was_submitted_to(state: Path, tmp_path: Path) -> None:
    with jobtree.cluster(state):
        run = described().submit()
    with jobtree.sample_cluster(tmp_path / "other.yaml"):
        assert run.status.phase == "Running"
        assert [other.name for other in jobtree.runs()] == ["hello"]


def test_texts_of_others_are_escaped_in_notebooks(cluster: Cluster) -> None:
    described(labels={"a": "b"}).submit()
    label = "<script>alert(1)</script>"
    cluster.submit({**manifest("bad"), "metadata": {"name": "bad", "annotations": {"note": label}}})
    body = cluster.run("bad").to_dict()
    body["status"]["message"] = label
    shown = jobtree.Run.of(body, None)
    for view in (shown, jobtree.runs(), jobtree.plan(described("x")), cluster.timeline(), jobtree.budgets()):
        html = view._repr_html_()
        assert "<script>" not in html
        assert html.startswith('<div class="jobtree">')
    assert "&lt;script&gt;" in shown._repr_html_()


def test_nodes_and_budgets_are_created_with_runs_or_not_at_all(cluster: Cluster) -> None:
    (run,) = cluster.submit(*nodes(1, "b"), budget("new", envelope(8)), manifest("fast", owner="org:new"))
    assert run.status.phase == "Running"
    with pytest.raises(jobtree.ConflictError):
        cluster.submit(manifest("fresh"), manifest("fast"))
    assert [one.name for one in cluster.runs()] == ["fast"]


def test_stage_is_explained_with_its_tree_and_not_cancelled_alone(cluster: Cluster) -> None:
    resources = {"gpuType": FLAVOR, "totalGPUs": 8}
    stages = [
        {"name": "prep", "resources": resources},
        {"name": "train", "resources": resources, "after": ["prep"]},
    ]
    tree = jobtree.Run("tree", owner="org:lab", spec={"stages": stages}).submit()
    assert [stage.state.key[1] for stage in tree.explain().stages] == ["tree-prep", "tree-train"]
    with pytest.raises(jobtree.ConflictError, match="is a stage of default/tree"):
        cluster.run("tree-prep").cancel()
    tree.cancel()
    assert len(cluster.runs()) == 0
