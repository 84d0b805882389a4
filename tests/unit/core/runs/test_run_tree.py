"""Job trees (J2, J4, J5, J6): children follow the spec of the tree, quotas, and Runs that are no children."""

from typing import Any

import msgspec
import pytest

from jobtree.api.kinds.lease import Lease as WireLease
from jobtree.api.kinds.run import Follow, Gang, Run
from jobtree.api.kubernetes.node import Node
from jobtree.api.schema.object_meta import API_VERSION, OwnerReference
from jobtree.api.schema.quantities import HOUR, format_time
from jobtree.core.model.gpu_lease import lease_to_object
from jobtree.core.planning.planning_pass import plan
from jobtree.core.reporting.tree_status import tree_status
from jobtree.core.runs.run_tree import SHARED
from jobtree.core.world.world import World
from tests.unit.core.build import H100, NAMESPACE, T0, budget, node, nodes, run, tree
from tests.unit.core.lab import Lab

RICH = budget("org", 10_000)


def stage(name: str, gpus: int = 8, **fields: Any) -> dict[str, Any]:  # noqa: ANN401  fields of a stage
    resources = {"gpuType": H100, "totalGPUs": gpus} if gpus else {"totalGPUs": 0, "pods": 2}
    return {"name": name, "resources": resources, **fields}


def phases(lab: Lab, *names: str) -> list[str]:
    return [lab[name].phase for name in names]


def lab_with(*runs: Run, count: int = 4) -> Lab:
    lab = Lab(RICH, nodes("nv-a", count))
    lab.submit(*runs)
    return lab


def forged(child: Run, parent: Run) -> Run:
    """A Run of somebody's own that claims to be a stage of a tree."""
    reference = OwnerReference(
        api_version=API_VERSION,
        kind="Run",
        name=parent.metadata.name,
        uid=parent.metadata.uid,
        controller=True,
    )
    meta = msgspec.structs.replace(child.metadata, owner_references=(reference,))
    return msgspec.structs.replace(child, metadata=meta)


# Children of a tree


def test_child_run_gets_every_field_that_runs_and_stages_share() -> None:
    assert set(SHARED) == set(Gang.__struct_fields__)


def test_j2_one_run_per_stage_owned_by_the_tree() -> None:
    lab = lab_with(tree("t", "org", [stage("prep", 0), stage("train", after=["prep"])]))
    assert [state.key[1] for state in lab.world.run_graph.children(lab["t"])] == ["t-prep", "t-train"]
    (reference,) = lab["t-train"].run_object.metadata.owner_references
    assert (reference.uid, reference.controller) == ("t-uid", True)
    assert lab["t-train"].owner == "org"


def test_j2_stages_run_in_the_order_of_after() -> None:
    stages = [stage("a"), stage("b", after=["a"]), stage("c", after=["b"])]
    lab = lab_with(tree("t", "org", stages))
    names = ("t-a", "t-b", "t-c")
    assert phases(lab, *names) == ["Running", "Waiting", "Waiting"]
    lab.finish("t-a")
    assert phases(lab, *names) == ["Completed", "Running", "Waiting"]
    lab.finish("t-b")
    lab.finish("t-c")
    assert lab["t"].phase == "Completed"


def test_j2_a_stage_that_fails_fails_those_after_it_and_the_tree() -> None:
    lab = lab_with(tree("t", "org", [stage("a"), stage("b", after=["a"], onUpstreamFailure="fail")]))
    lab.finish("t-a", succeeded=False)
    assert phases(lab, "t-a", "t-b", "t") == ["Failed", "Failed", "Failed"]
    assert lab.reasons("t") == ["StageFailed"]
    assert "stage t-a failed" in str(lab.whys("t")[0])


def test_j2_tree_is_not_finished_while_another_branch_runs() -> None:
    lab = lab_with(tree("t", "org", [stage("a"), stage("b")]))
    lab.finish("t-a", succeeded=False)
    assert phases(lab, "t-b", "t") == ["Running", "Pending"]
    lab.finish("t-b")
    assert lab["t"].phase == "Failed"


def test_j2_deleted_child_is_created_again() -> None:
    lab = lab_with(tree("t", "org", [stage("a"), stage("b", after=["a"])]))
    lab.world.drop_run((NAMESPACE, "t-b"))
    lab.settle()
    assert phases(lab, "t-a", "t-b") == ["Running", "Waiting"]


def test_j2_deleted_child_that_ran_is_created_again_without_its_leases() -> None:
    lab = lab_with(tree("t", "org", [stage("a")]))
    lab.world.drop_run((NAMESPACE, "t-a"))
    lab.settle()
    assert lab["t-a"].phase == "Running"
    assert sum(lease.gpus for lease in lab.leases("t-a")) == 8
    assert lab.envelope("org").account.charge == 8000


def test_j2_children_of_a_finished_tree_are_not_created_again() -> None:
    lab = lab_with(tree("t", "org", [stage("a")]))
    lab.finish("t-a")
    lab.world.drop_run((NAMESPACE, "t-a"))
    lab.settle()
    assert (NAMESPACE, "t-a") not in lab.world.runs


def test_j2_editing_a_waiting_tree_edits_stages_that_have_not_begun() -> None:
    lab = lab_with(tree("t", "org", [stage("a"), stage("b", 8, after=["a"])]))
    lab.submit(tree("t", "org", [stage("a", 16), stage("b", 24, after=["a"])]))
    assert (lab["t-a"].width, lab["t-b"].run_object.spec.resources.total_gpus) == (8, 24)  # type: ignore[union-attr]
    lab.finish("t-a")
    assert lab["t-b"].width == 24


def test_j2_a_stage_that_is_added_to_a_tree_gets_its_run() -> None:
    lab = lab_with(tree("t", "org", [stage("a")]))
    lab.submit(tree("t", "org", [stage("a"), stage("b", after=["a"])]))
    assert phases(lab, "t-a", "t-b") == ["Running", "Waiting"]


def test_j2_nested_trees_have_children_of_their_own() -> None:
    inner = {"name": "eval", "after": ["train"], "stages": [stage("x"), stage("y", after=["x"])]}
    lab = lab_with(tree("t", "org", [stage("train"), inner]))
    below = [state.key[1] for state in lab.world.run_graph.descendants(lab["t"])]
    assert sorted(below) == ["t-eval", "t-eval-x", "t-eval-y", "t-train"]
    assert phases(lab, "t-train", "t-eval-x", "t-eval-y") == ["Running", "Waiting", "Waiting"]
    lab.finish("t-train")
    assert phases(lab, "t-eval-x", "t-eval-y") == ["Running", "Waiting"]
    lab.finish("t-eval-x")
    lab.finish("t-eval-y")
    assert phases(lab, "t-eval", "t") == ["Completed", "Completed"]


def test_j2_a_tree_may_follow_another_run_and_its_stages_wait_for_that() -> None:
    follower = tree("t", "org", [stage("a")])
    spec = msgspec.structs.replace(follower.spec, follow=Follow(after=("up",)))
    lab = lab_with(run("up", "org", 8), msgspec.structs.replace(follower, spec=spec))
    assert lab.phase("t-a") == "Waiting"
    lab.finish("up")
    assert lab.phase("t-a") == "Running"


def test_j6_cancel_ends_the_whole_tree() -> None:
    inner = {"name": "in", "stages": [stage("x")]}
    lab = lab_with(tree("t", "org", [stage("a"), inner]))
    assert sum(len(lab.leases(name)) for name in ("t-a", "t-in-x")) == 2
    lab.world.drop_run((NAMESPACE, "t"))
    lab.settle()
    assert lab.world.runs == {}
    assert {reason for name in ("t-a", "t-in-x") for reason, _ in lab.endings(name)} == {"Cancelled"}


def test_j6_deleted_tree_ends_as_a_whole() -> None:
    lab = lab_with(tree("t", "org", [stage("a"), stage("b", after=["a"])]))
    known = lab["t"].run_object
    meta = msgspec.structs.replace(known.metadata, deletion_timestamp=format_time(T0))
    lab.submit(msgspec.structs.replace(known, metadata=meta))
    assert lab.world.runs == {}


# Who is no child


def test_j2_run_with_the_name_of_a_stage_is_no_child() -> None:
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.submit(run("t-a", "org", 16))
    lab.submit(tree("t", "org", [stage("a")], at=1))
    assert (lab["t-a"].parent, lab["t-a"].width) == (None, 16)


def test_j2_forged_owner_reference_makes_no_child() -> None:
    parent = tree("t", "org", [stage("a")], quota={"maxGPUs": 16})
    lab = lab_with(parent)
    lab.submit(forged(run("intruder", "org", 16, at=1), parent))
    assert (lab["intruder"].parent, lab["intruder"].quotas) == (None, ())
    assert [state.key[1] for state in lab.world.run_graph.children(lab["t"])] == ["t-a"]


def test_j2_a_reference_to_another_uid_makes_no_child() -> None:
    parent = tree("t", "org", [stage("a")])
    stale = msgspec.structs.replace(parent, metadata=msgspec.structs.replace(parent.metadata, uid="old"))
    lab = Lab(RICH, nodes("nv-a", 4))
    lab.put(parent, forged(run("t-a", "org", 16, at=1), stale))
    lab.settle()
    assert lab["t-a"].parent is None


def test_j2_a_reference_to_a_run_without_stages_makes_no_child() -> None:
    plain = run("t", "org", 8)
    lab = lab_with(plain)
    lab.submit(forged(run("t-a", "org", 8, at=1), plain))
    assert lab["t-a"].parent is None


# One quota for all


def test_j4_stages_share_the_quota_in_gpus() -> None:
    lab = lab_with(tree("t", "org", [stage("a"), stage("b"), stage("c")], quota={"maxGPUs": 16}))
    assert sorted(phases(lab, "t-a", "t-b", "t-c")) == ["Reserved", "Running", "Running"]
    (waiting,) = [name for name in ("t-a", "t-b", "t-c") if lab[name].phase == "Reserved"]
    assert "TreeQuota" in lab.reasons(waiting)
    running = next(name for name in ("t-a", "t-b", "t-c") if lab[name].phase == "Running")
    lab.finish(running)
    assert lab[waiting].phase == "Running"


def test_j4_nested_tree_is_limited_by_both_quotas() -> None:
    inner = {"name": "in", "stages": [stage("x"), stage("y")], "quota": {"maxGPUs": 8}}
    lab = lab_with(tree("t", "org", [inner, stage("a")], quota={"maxGPUs": 24}))
    assert sorted(phases(lab, "t-in-x", "t-in-y")) == ["Reserved", "Running"]
    assert lab["t-a"].phase == "Running"
    assert [account.charge for account in lab["t-in-x"].quotas] == [8000, 16000]


def test_j4_outer_quota_limits_inner_stages() -> None:
    inner = {"name": "in", "stages": [stage("x")]}
    lab = lab_with(tree("t", "org", [stage("a"), inner], quota={"maxGPUs": 8}))
    assert sorted(phases(lab, "t-a", "t-in-x")) == ["Reserved", "Running"]


def test_j4_spares_count_at_their_rate() -> None:
    lab = lab_with(tree("t", "org", [stage("a", 8, spares=1)], quota={"maxGPUs": 10}))
    assert (lab.spares("t-a"), [one.charge for one in lab["t-a"].quotas]) == (8, [10_000])


def test_j4_growth_stays_within_the_quota() -> None:
    widths = {"minTotalGPUs": 8, "maxTotalGPUs": 32, "stepGPUs": 8}
    grows = stage("a", 8, malleable=widths, runtime={"onResize": "Rendezvous"})
    lab = lab_with(tree("t", "org", [grows], quota={"maxGPUs": 16}))
    lab.live(5 * HOUR)
    assert lab["t-a"].width == 16


def test_j4_hours_of_the_quota_run_out_to_the_millisecond() -> None:
    lab = lab_with(tree("t", "org", [stage("a"), stage("b")], quota={"maxGPUHours": 32}))
    lab.live(5 * HOUR)
    for name in ("t-a", "t-b"):
        (ended,) = [at for reason, at in lab.endings(name) if reason == "BudgetExhausted"]
        assert ended == 2 * HOUR
        assert lab.on(name, "Opportunistic")


@pytest.mark.parametrize("turn", range(4))
def test_j4_quotas_do_not_depend_on_the_order_of_objects(turn: int) -> None:
    inner = {"name": "in", "stages": [stage("x"), stage("y")], "quota": {"maxGPUs": 16, "maxGPUHours": 900}}
    made = lab_with(tree("t", "org", [inner, stage("a")], quota={"maxGPUs": 24}))
    made.live(HOUR)
    things: list[Node | Run | WireLease] = [*nodes("nv-a", 4)]
    things += [state.run_object for state in made.world.runs.values()]
    things += [lease_to_object(lease) for name in ("t-in-x", "t-in-y", "t-a") for lease in made.leases(name)]
    ordered = things[turn * 3 :] + things[: turn * 3]
    again = rebuilt(ordered if turn % 2 else ordered[::-1], made.world.now)
    for name in ("t-in-x", "t-in-y", "t-a"):
        was, now = made[name].quotas, again.runs[NAMESPACE, name].quotas
        assert [(one.label, one.charge, one.used(again.now)) for one in now] == [
            (one.label, one.charge, one.used(made.world.now)) for one in was
        ]
    assert plan(again).actions == ()


def rebuilt(things: list[Node | Run | WireLease], now: int) -> World:
    """A world that hears of these things in this order."""
    world = World(None, now)
    world.lottery_key = b"the lottery key of all labs"
    world.put_budget(RICH)
    for thing in things:
        if isinstance(thing, Node):
            world.put_node(thing)
        elif isinstance(thing, Run):
            world.put_run(thing)
        else:
            world.put_lease(thing)
    return world


# Stages without GPUs (J5)


def test_j5_stage_without_gpus_needs_no_payer_and_no_node() -> None:
    lab = Lab(budget("org", 1), node("n", gpus=1))
    lab.submit(tree("t", "org", [stage("prep", 0), stage("big", 8, after=["prep"])]))
    assert (phases(lab, "t-prep", "t-big"), lab.leases("t-prep")) == (["Running", "Waiting"], [])
    lab.finish("t-prep")
    assert (lab["t-prep"].phase, lab.phase("t-big")) == ("Completed", "Pending")


def test_j5_a_stage_without_gpus_has_a_max_duration_too() -> None:
    lab = lab_with(tree("t", "org", [stage("prep", 0, runtime={"maxDuration": "1h"})]))
    lab.live(2 * HOUR)
    assert (lab["t-prep"].phase, lab.reasons("t-prep")) == ("Failed", ["DurationExceeded"])


# Names that are taken (H3)


def two_stages(*, with_: bool = False) -> Run:
    return tree("t", "org", [stage("a"), {**stage("b"), "with" if with_ else "after": ["a"]}])


def test_tree_that_is_deleted_leaves_a_run_that_only_has_the_name_of_a_stage() -> None:
    """H3: stages are known by the UID of their tree, not by name."""
    lab = lab_with(run("t-a", "org", 8), two_stages())
    lab.world.drop_run((NAMESPACE, "t"))
    lab.settle()
    assert phases(lab, "t-a") == ["Running"]
    assert [key[1] for key in lab.world.runs] == ["t-a"]


def test_tree_says_that_the_name_of_a_stage_is_taken_and_makes_it_when_it_is_free() -> None:
    """H3: the tree says so, and the stage is made as soon as the name is free."""
    lab = lab_with(run("t-a", "org", 8), two_stages())
    status = tree_status(lab.world, lab["t"])
    assert status.reason == "NameTaken"
    assert "a stage needs the name t-a, which another Run has" in status.message
    assert phases(lab, "t-a", "t-b") == ["Running", "Waiting"], "the other Run is no upstream of a stage"
    lab.finish("t-a")
    assert phases(lab, "t-a", "t-b") == ["Completed", "Waiting"]
    lab.world.drop_run((NAMESPACE, "t-a"))
    lab.settle()
    assert (lab["t-a"].parent, lab["t-a"].phase) == ((NAMESPACE, "t"), "Running")
    assert tree_status(lab.world, lab["t"]).reason == ""


def test_stages_that_start_together_wait_for_one_whose_name_is_taken() -> None:
    """H3, J3: none of them starts without the other."""
    lab = lab_with(run("t-b", "org", 8), two_stages(with_=True))
    assert (lab["t-a"].phase, lab["t-a"].width) == ("Waiting", 0)
    lab.world.drop_run((NAMESPACE, "t-b"))
    lab.settle()
    assert phases(lab, "t-a", "t-b") == ["Running", "Running"]


def test_stages_of_an_earlier_tree_are_no_stages_of_a_new_tree_of_its_name() -> None:
    """H3: the garbage collector deletes them, and then the new tree makes its own."""
    lab = lab_with(two_stages())
    old = lab["t-a"].run_object
    new = msgspec.structs.replace(
        two_stages(), metadata=msgspec.structs.replace(two_stages().metadata, uid="new-uid")
    )
    world = World(now=T0)
    world.put_run(old)
    world.put_run(new)
    assert world.run_graph.children(world.runs[NAMESPACE, "t"]) == []
    assert world.run_graph.taken_names(world.runs[NAMESPACE, "t"]) == ["t-a"]
