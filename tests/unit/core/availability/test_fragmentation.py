"""Promises of small pods beside those of larger ones (R2, R6): what nodes can carry is what is promised."""

from jobtree.api.schema.quantities import HOUR
from jobtree.core.availability.fragmentation import FragmentationBound
from jobtree.core.availability.misfit_pods import PromisedPods
from jobtree.core.availability.node_availability import NodeAvailability
from tests.unit.core.build import T0, budget, envelope, nodes, run
from tests.unit.core.lab import Lab


def lab_with_promised_gang() -> Lab:
    """Four nodes: in two hours three of them are free as a whole, and all three are promised to a gang.

    The first node stays in use. One GPU is free now, on a node that the gang needs.
    """
    lab = Lab(nodes("nv-a", 4), budget("org:a", 100))
    lab.submit(run("long", "org:a", 7, max_duration="100h"))
    lab.submit(run("x", "org:a", 1, max_duration="2h"))
    lab.submit(run("y", "org:a", 7, max_duration="2h"))
    lab.submit(run("z1", "org:a", 8, max_duration="2h"), run("z2", "org:a", 8, max_duration="2h"))
    lab.submit(run("gang", "org:a", 24, at=1, max_duration="10h"))
    assert lab.promised_at("gang") == 2 * HOUR
    return lab


def test_small_run_is_promised_a_node_that_the_gang_does_not_need_whole() -> None:
    lab = lab_with_promised_gang()
    lab.submit(run("small", "org:a", 1, at=2, max_duration="720h"))
    assert lab.promised_at("small") == 2 * HOUR, "the GPU that is free now is on a node the gang needs"
    lab.live(2 * HOUR)
    assert [lab[name].phase for name in ("gang", "small")] == ["Running", "Running"], lab.story
    assert not [line for line in lab.story if "CrowdedOut" in line]


def test_small_run_starts_at_once_when_it_ends_before_the_gang_starts() -> None:
    lab = lab_with_promised_gang()
    lab.submit(run("small", "org:a", 1, at=2, max_duration="2h"))
    assert lab["small"].phase == "Running"


def test_small_run_starts_on_the_node_that_no_gang_needs_when_another_packs_better() -> None:
    lab = Lab(nodes("nv-a", 4), budget("org:a", 100))
    lab.submit(run("long", "org:a", 6, max_duration="100h"))
    lab.submit(run("y", "org:a", 7, max_duration="2h"))
    lab.submit(run("z1", "org:a", 8, max_duration="2h"), run("z2", "org:a", 8, max_duration="2h"))
    lab.submit(run("gang", "org:a", 24, at=1, max_duration="10h"))
    lab.submit(run("small", "org:a", 1, at=2, max_duration="720h"))
    assert [lease.slots[0][0] for lease in lab["small"].leases.values()] == ["nv-a-00"]
    lab.live(2 * HOUR)
    assert lab["gang"].phase == "Running", lab.story


def test_short_run_uses_a_promised_node_and_leaves_the_left_over_gpu_to_a_run_that_stays() -> None:
    """Only one GPU is left over beside the nodes that the gang needs whole: it is promised to a long Run."""
    lab = Lab(nodes("nv-a", 3), budget("org:a", 100), budget("org:b", 16))
    lab.put(budget("org:c", envelope(1, start=HOUR)))
    lab.submit(run("long", "org:a", 7, max_duration="100h"))
    lab.submit(run("half", "org:b", 8, max_duration="2h"))
    lab.submit(run("gang", "org:b", 16, at=1, max_duration="10h"))
    lab.submit(run("stays", "org:c", 1, at=2, max_duration="720h"))
    assert (lab.promised_at("gang"), lab.promised_at("stays")) == (2 * HOUR, HOUR)
    lab.submit(run("short", "org:a", 1, at=3, max_duration="90m"))
    assert [lease.slots[0][0] for lease in lab["short"].leases.values()] == ["nv-a-02"], lab.story
    lab.live(2 * HOUR)
    assert [lab[name].phase for name in ("gang", "stays")] == ["Running", "Running"], lab.story
    assert not [line for line in lab.story if "CrowdedOut" in line]


def test_node_is_broken_up_for_small_pods_when_no_larger_pod_is_promised_there() -> None:
    lab = Lab(nodes("nv-a", 4), budget("org:a", 100))
    for name in ("w", "x", "y", "z"):
        lab.submit(run(name, "org:a", 7, max_duration="2h"))
    lab.submit(run("gang", "org:a", 24, at=1, max_duration="10h"))
    lab.submit(run("small", "org:a", 1, at=2, max_duration="720h"))
    lab.submit(run("another", "org:a", 1, at=3, max_duration="720h"))
    assert lab["small"].phase == "Running", "three of four nodes are needed whole"
    assert lab["another"].phase == "Reserved"
    lab.live(2 * HOUR)
    assert [lab[name].phase for name in ("gang", "another")] == ["Running", "Running"], lab.story


def test_fragmentation_bound_counts_gpus_left_over_node_by_node() -> None:
    soon, late = T0 + HOUR, T0 + 9 * HOUR
    availability = NodeAvailability({"a": 3, "b": 1}, [("a", 5, (late,) * 4), ("b", 7, (soon,) * 4)])
    gang = PromisedPods(
        at=soon,
        end=late,
        immune_until=soon,
        gpus=8,
        size=8,
        disruption=0,
        precedence=(T0, 0, (T0, "", "gang")),
    )
    fragmentation = FragmentationBound(1, availability, [gang])
    assert fragmentation.gpus_beside_larger(T0, late) == [3, 0]
    assert fragmentation.pods(0, T0, late, 4) == 3
    assert fragmentation.pods(0, T0, soon, 4) == 4, "a Run that ends before the gang starts is not limited"
