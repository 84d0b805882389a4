"""The status of trees (J6): their stages summed up, and when each of them will be done."""

from typing import Any

from jobtree.api.kinds.run import RunStatus
from jobtree.api.schema.quantities import HOUR, format_time
from jobtree.core.reporting.tree_status import tree_status
from tests.unit.core.build import H100, T0, budget, nodes, run, tree
from tests.unit.core.lab import Lab

RICH = budget("org", 10_000)


def stage(
    name: str,
    gpus: int = 8,
    limit: str | None = None,
    beside: list[str] | None = None,
    **fields: Any,  # noqa: ANN401  of a stage
) -> dict[str, Any]:
    resources = {"gpuType": H100, "totalGPUs": gpus} if gpus else {"totalGPUs": 0, "pods": 1}
    runtime = {"maxDuration": limit} if limit else {}
    return {"name": name, "resources": resources, "runtime": runtime, "with": beside or [], **fields}


def status(lab: Lab, name: str = "t") -> RunStatus:
    return tree_status(lab.world, lab[name])


def times(lab: Lab, name: str = "t") -> dict[str, tuple[str | None, str | None]]:
    return {one.name: (one.earliest_start, one.done_by) for one in status(lab, name).stages}


def at(hours: float) -> str:
    return format_time(T0 + int(hours * HOUR))


def lab_with(stages: list[dict[str, Any]], count: int = 4) -> Lab:
    lab = Lab(RICH, nodes("nv-a", count))
    lab.submit(tree("t", "org", stages))
    return lab


def test_j6_the_phase_of_a_tree_is_the_furthest_that_its_stages_have_come() -> None:
    lab = lab_with([stage("a"), stage("b", after=["a"])])
    assert status(lab).phase == "Running"
    lab.finish("t-a")
    assert status(lab).phase == "Running"
    lab.finish("t-b")
    assert status(lab).phase == "Completed"


def test_j6_a_tree_without_a_started_stage_is_reserved() -> None:
    lab = Lab(RICH, nodes("nv-a", 1))
    lab.submit(run("holds", "org", 8, max_duration="1h"))
    lab.submit(tree("t", "org", [stage("a"), stage("b", after=["a"])], at=1))
    found = status(lab)
    assert (found.phase, found.reservation, found.earliest_start) == ("Reserved", "t-a-1", at(1))


def test_j6_between_two_stages_a_tree_is_running() -> None:
    lab = lab_with([stage("a"), stage("b", 64, after=["a"])])
    lab.finish("t-a")
    assert (lab.phase("t-b"), status(lab).phase) == ("Pending", "Running")


def test_j6_a_tree_counts_completed_stages_and_sums_widths() -> None:
    lab = lab_with([stage("a", 8), stage("b", 16), stage("c", 8, after=["a"])])
    found = status(lab)
    assert found.message == "0 of 3 stages are completed"
    assert (found.width.min, found.width.allocated) == (32, 24)  # type: ignore[union-attr]
    lab.finish("t-a")
    assert status(lab).message == "1 of 3 stages are completed"


def test_j6_a_failed_tree_names_the_failed_stage() -> None:
    lab = lab_with([stage("a")])
    lab.finish("t-a", succeeded=False)
    found = status(lab)
    assert (found.phase, found.reason) == ("Failed", "StageFailed")
    assert "stage t-a failed" in found.message


def test_j6_eta_along_a_line_of_stages() -> None:
    lab = lab_with([stage("a", limit="2h"), stage("b", limit="3h", after=["a"]), stage("c", after=["b"])])
    assert times(lab) == {"a": (at(0), at(2)), "b": (at(2), at(5)), "c": (at(5), None)}


def test_j6_eta_follows_the_longest_path_of_a_diamond() -> None:
    stages = [
        stage("a", limit="1h"),
        stage("short", limit="1h", after=["a"]),
        stage("long", limit="4h", after=["a"]),
        stage("end", limit="1h", after=["short", "long"]),
    ]
    assert times(lab_with(stages))["end"] == (at(5), at(6))


def test_j6_eta_of_a_stage_after_a_promised_stage() -> None:
    lab = Lab(RICH, nodes("nv-a", 1))
    lab.submit(run("holds", "org", 8, max_duration="1h"))
    lab.submit(tree("t", "org", [stage("a", limit="2h"), stage("b", limit="1h", after=["a"])], at=1))
    assert times(lab) == {"a": (at(1), at(3)), "b": (at(3), at(4))}


def test_j6_eta_moves_earlier_when_a_stage_ends_early() -> None:
    lab = lab_with([stage("a", limit="2h"), stage("b", limit="3h", after=["a"])])
    lab.live(HOUR)
    lab.finish("t-a")
    assert times(lab) == {"a": (None, at(1)), "b": (at(1), at(4))}


def test_j6_a_stage_has_no_eta_when_an_upstream_has_no_known_end() -> None:
    lab = lab_with([stage("a", limit="2h"), stage("b"), stage("c", limit="1h", after=["a", "b"])])
    assert times(lab)["c"] == (None, None)


def test_j6_a_nested_tree_ends_with_its_last_stage() -> None:
    inner = {
        "name": "in",
        "after": ["a"],
        "stages": [stage("x", limit="1h"), stage("y", limit="2h", after=["x"])],
    }
    lab = lab_with([stage("a", limit="1h"), inner, stage("z", limit="1h", after=["in"])])
    assert times(lab) == {"a": (at(0), at(1)), "in": (at(1), at(4)), "z": (at(4), at(5))}
    assert times(lab, "t-in") == {"x": (at(1), at(2)), "y": (at(2), at(4))}
    assert {one.name: one.phase for one in status(lab).stages}["in"] == "Waiting"


def test_j6_stages_without_gpus_have_an_eta_too() -> None:
    lab = lab_with([stage("prep", 0, limit="30m"), stage("train", limit="1h", after=["prep"])])
    assert times(lab) == {"prep": (at(0), at(0.5)), "train": (at(0.5), at(1.5))}


def test_j6_a_waiting_stage_gang_shows_its_one_reservation() -> None:
    lab = Lab(RICH, nodes("nv-a", 2))
    lab.submit(run("holds", "org", 8, max_duration="1h"))
    lab.submit(tree("t", "org", [stage("a"), stage("b", beside=["a"])], at=1))
    found = status(lab)
    assert (found.reservation, found.earliest_start) == ("t-1", at(1))
    assert {one.earliest_start for one in found.stages} == {at(1)}


def test_j6_a_stage_gang_after_other_stages_has_one_earliest_start() -> None:
    stages = [stage("a", limit="2h"), stage("b", after=["a"]), stage("c", beside=["b"])]
    found = times(lab_with(stages))
    assert (found["b"][0], found["c"][0]) == (at(2), at(2))
