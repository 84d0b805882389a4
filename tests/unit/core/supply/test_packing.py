"""Where pods go (P1–P6): what a node offers, packing order, groups, several domains, spares."""

import pytest

from jobtree.api.kinds.run import Run
from jobtree.api.kubernetes.node import Node
from jobtree.api.kubernetes.pod import Pod
from tests.unit.core.build import budget, envelope, foreign_pod, node, nodes, run, template
from tests.unit.core.lab import Lab

RICH = budget("org", 10_000)
WHERE = "flavor H100-80GB"


def said(lab: Lab, name: str) -> list[tuple[str, str, int, int]]:
    return [(str(why.reason), why.where, why.have, why.need) for why in lab.whys(name)]


def test_pod_does_not_fit_on_free_gpus_of_two_nodes() -> None:
    lab = Lab(RICH, node("a", gpus=8), node("b", gpus=8))
    lab.put(foreign_pod("a", 4), foreign_pod("b", 4))
    lab.submit(run("r", "org", 8))
    assert said(lab, "r") == [("NoFreeSlots", WHERE, 0, 8)]
    lab.submit(run("halves", "org", 8, per_pod=4, at=1))
    assert lab.on("halves") == {"a": 4, "b": 4}


NEEDS_CPU = template(cpu="10", memory="1Gi")


@pytest.mark.parametrize(
    ("usable", "unusable"),
    [
        (node("n"), node("n", cordoned=True)),
        (node("n"), node("n", ready=False)),
        (node("n"), node("n", failed=True)),
        (node("n", taint="nvidia.com/gpu"), node("n", taint="dedicated")),
        (node("n", cpu="10"), node("n", cpu="9")),
        (node("n", memory="1Gi"), node("n", memory="1000Mi")),
        (node("n", gpus=8), node("n", gpus=7)),
        (node("n", labels={"rack": "1"}), node("n", labels={"rack": "2"})),
    ],
    ids=[
        "cordoned",
        "not ready",
        "failed",
        "tainted",
        "short of CPU",
        "short of memory",
        "small",
        "selector",
    ],
)
def test_node_that_does_not_admit_the_pod_offers_nothing(usable: Node, unusable: Node) -> None:
    for offered, phase in ((usable, "Running"), (unusable, "Pending")):
        lab = Lab(RICH, node("other", gpus=4), offered)
        selector = {"rack": "1"} if "rack" in offered.labels else {}
        lab.submit(
            run("r", "org", 8, per_pod=8, template=template(cpu="10", memory="1Gi", selector=selector))
        )
        assert lab.phase("r") == phase


def test_taint_refuses_only_pods_that_do_not_tolerate_it() -> None:
    lab = Lab(RICH, node("n", taint="dedicated"))
    lab.submit(run("r", "org", 8, template=template(tolerates="dedicated")))
    assert lab.on("r") == {"n": 8}


@pytest.mark.parametrize(
    ("pod", "runs_on"),
    [
        (foreign_pod("a", 1), {"b": 8}),
        (foreign_pod("a", 0, cpu="91"), {"b": 8}),
        (foreign_pod("a", 0, cpu="90"), {"a": 8}),
        (foreign_pod("a", 0, memory="64Gi"), {"b": 8}),
    ],
    ids=["a GPU", "too much CPU", "as much CPU as is left", "all the memory"],
)
def test_foreign_pods_use_gpus_of_their_node(pod: Pod, runs_on: dict[str, int]) -> None:
    lab = Lab(RICH, node("a", cpu="100", memory="64Gi"), node("b", cpu="100", memory="64Gi"), pod)
    lab.submit(run("r", "org", 8, template=NEEDS_CPU))
    assert lab.on("r") == runs_on


def test_finished_foreign_pod_releases_its_gpus() -> None:
    lab = Lab(RICH, node("a"), foreign_pod("a", 1))
    lab.submit(run("r", "org", 8))
    assert lab.phase("r") == "Pending"
    lab.world.drop_pod("other-a")
    lab.settle()
    assert lab.phase("r") == "Running"


def test_cpu_is_counted_for_each_pod_and_released() -> None:
    lab = Lab(RICH, node("a", cpu="25"))
    lab.submit(run("two-pods", "org", 4, per_pod=2, template=NEEDS_CPU))
    lab.submit(run("third", "org", 2, per_pod=2, template=NEEDS_CPU, at=1))
    assert (lab.phase("two-pods"), lab.phase("third")) == ("Running", "Pending")
    lab.finish("two-pods")
    assert lab.phase("third") == "Running"


# How nodes and domains are chosen


def test_a_used_domain_comes_before_a_tighter_fresh_one() -> None:
    lab = Lab(RICH, nodes("nv-a", 4), nodes("nv-b", 1))
    lab.submit(run("first", "org", 16))
    lab.submit(run("second", "org", 8, at=1))
    assert lab.domains("second") == {0: {"nv-a"}}


def test_used_domain_with_the_fewest_gpus_left_over_comes_first() -> None:
    lab = Lab(RICH, nodes("nv-a", 4), nodes("nv-b", 3))
    lab.submit(run("a", "org", 32, at=1), run("b", "org", 24, at=2))
    lab.finish("a", "b")
    lab.submit(run("b2", "org", 8, at=3))
    assert lab.domains("b2") == {0: {"nv-b"}}
    lab.submit(run("a2", "org", 24, at=4))
    lab.submit(run("c", "org", 8, at=5))
    assert (lab.domains("a2"), lab.domains("c")) == ({0: {"nv-a"}}, {0: {"nv-a"}})


def test_fresh_domain_with_the_fewest_gpus_left_over_comes_first_then_by_name() -> None:
    lab = Lab(RICH, nodes("nv-c", 2), nodes("nv-b", 2), nodes("nv-a", 3))
    lab.submit(run("r", "org", 16))
    assert lab.domains("r") == {0: {"nv-b"}}


@pytest.mark.parametrize(
    ("sizes", "gpus", "chosen"),
    [
        ({"a": 8, "b": 4}, 4, {"b": 4}),
        ({"a": 8, "b": 4}, 2, {"b": 2}),
        ({"a": 8, "b": 8}, 4, {"a": 4}),
        ({"a": 8, "b": 6, "c": 2}, 8, {"a": 8}),
        ({"a": 6, "b": 6, "c": 4}, 8, {"a": 6, "c": 2}),
        ({"b": 3, "a": 8}, 3, {"b": 3}),
    ],
    ids=["exact", "tightest", "by name", "a whole node", "full ones first", "not by order of arrival"],
)
def test_nodes_of_a_domain_are_filled_with_the_fewest_gpus_left_over_first(
    sizes: dict[str, int], gpus: int, chosen: dict[str, int]
) -> None:
    lab = Lab(RICH, [node(name, gpus=size) for name, size in sizes.items()])
    lab.submit(run("r", "org", gpus, per_pod=2 if gpus % 2 == 0 else 3))
    assert lab.on("r") == chosen


# Groups, and what has none


def test_each_group_sits_in_one_domain_and_the_last_may_be_smaller() -> None:
    lab = Lab(RICH, nodes("nv-a", 3), nodes("nv-b", 3))
    lab.submit(run("r", "org", 40, group=16))
    assert lab.domains("r") == {0: {"nv-a"}, 1: {"nv-b"}, 2: {"nv-a"}}
    assert [lease.gpus for lease in lab.leases("r")] == [16, 16, 8]


def test_groups_that_must_share_a_domain_wait_until_one_holds_all() -> None:
    lab = Lab(RICH, nodes("nv-a", 3), nodes("nv-b", 3))
    lab.submit(run("together", "org", 32, group=16, spread=False))
    lab.submit(run("apart", "org", 32, group=16, at=1))
    assert (lab.phase("together"), lab.phase("apart")) == ("Pending", "Running")
    assert said(lab, "together") == [("GroupTooLarge", WHERE, 24, 32)]


def test_groups_that_must_share_a_domain_take_the_tightest_one_that_holds_all() -> None:
    lab = Lab(RICH, nodes("nv-a", 5), nodes("nv-b", 3), nodes("nv-c", 4))
    lab.submit(run("r", "org", 32, group=16, spread=False))
    assert lab.domains("r") == {0: {"nv-c"}, 1: {"nv-c"}}


def test_groups_that_must_share_a_domain_go_where_the_nearest_payer_pays() -> None:
    """C2: the tier comes before pack order, though nv-a is the tighter domain."""
    own = envelope(32, selector={"fabric.domain": "nv-b"})
    lab = Lab(budget("org", 64), budget("org:a", own), nodes("nv-a", 4), nodes("nv-b", 6))
    lab.submit(run("r", "org:a", 32, group=16, spread=False))
    assert lab.paid("r") == {"Owned org-a/main": 32}
    assert lab.domains("r") == {0: {"nv-b"}, 1: {"nv-b"}}


def test_the_first_groups_decide_where_no_payer_is_nearest_for_all() -> None:
    own = envelope(16, selector={"fabric.domain": "nv-b"})
    lab = Lab(budget("org", 64), budget("org:a", own), nodes("nv-a", 4), nodes("nv-b", 6))
    lab.submit(run("r", "org:a", 32, group=16, spread=False))
    assert lab.paid("r") == {"Owned org-a/main": 16, "Shared org/main": 16}


def test_run_without_groups_is_one_group_if_a_domain_holds_it() -> None:
    lab = Lab(RICH, nodes("nv-a", 2), nodes("nv-b", 4))
    lab.submit(run("r", "org", 24))
    assert lab.domains("r") == {0: {"nv-b"}}


def test_run_without_groups_uses_the_fewest_domains_if_none_holds_it() -> None:
    lab = Lab(RICH, nodes("nv-a", 1), nodes("nv-b", 2), nodes("nv-c", 4))
    lab.submit(run("r", "org", 40))
    assert lab.domains("r") == {0: {"nv-c"}, 1: {"nv-a"}}
    lab.submit(run("rest", "org", 16, at=1))
    assert lab.domains("rest") == {0: {"nv-b"}}


def test_run_without_groups_waits_if_it_may_not_spread() -> None:
    lab = Lab(RICH, nodes("nv-a", 1), nodes("nv-b", 2))
    lab.submit(run("r", "org", 24, spread=False))
    assert said(lab, "r") == [("GroupTooLarge", WHERE, 16, 24)]


def test_group_larger_than_every_domain_is_refused_with_that_reason() -> None:
    lab = Lab(RICH, nodes("nv-a", 3), nodes("nv-b", 4))
    lab.submit(run("r", "org", 64, group=64))
    assert said(lab, "r") == [("GroupTooLarge", WHERE, 32, 64)]


@pytest.mark.parametrize(
    ("asked", "have"),
    [
        (run("r", "org", 32), 24),
        (run("r", "org", 32, per_pod=16), 0),
        (run("r", "org", 32, spread=False), 16),
        (run("r", "org", 32, group=16), 16),
        (run("r", "org", 32, group=8), 24),
        (run("r", "org", 32, group=32), 0),
        (run("r", "org", 48, malleable=(32, 48, 8)), 24),
    ],
    ids=[
        "anywhere",
        "no such pods",
        "in one domain",
        "whole groups",
        "small groups",
        "one group",
        "its least",
    ],
)
def test_refusal_counts_only_gpus_that_the_run_could_use(asked: Run, have: int) -> None:
    lab = Lab(RICH, nodes("nv-a", 4), nodes("nv-b", 2), budget("lab", 24))
    lab.put(*(foreign_pod(f"nv-a-0{number}", 8) for number in range(3)))
    lab.submit(asked)
    assert said(lab, "r")[-1][2:] == (have, 32)


def test_flavor_that_no_node_has_is_refused_with_that_reason() -> None:
    lab = Lab(RICH, nodes("nv-a", 1), budget("lab", envelope(8, flavor="A100-40GB")))
    lab.submit(run("r", "lab", 8, flavor="A100-40GB"))
    assert said(lab, "r") == [("NoSuchFlavor", "A100-40GB", 0, 8)]


def test_p1_node_that_has_lost_gpus_offers_those_that_it_still_has() -> None:
    """The leases may be on slots that the node has no more, but their pods use GPUs that it has."""
    lab = Lab(RICH, node("n"))
    lab.submit(run("low", "org", 4), run("high", "org", 4, at=1))
    lab.finish("low")
    lab.put(node("n", gpus=7))
    lab.submit(run("four", "org", 4, at=2))
    assert lab.phase("four") == "Pending"
    lab.submit(run("three", "org", 3, at=3))
    assert lab.on("three") == {"n": 3}
