"""Promises of small pods beside those of larger ones (R2, R6): what nodes can carry is what is promised."""

from jobtree.api.schema.quantities import HOUR
from jobtree.core.availability.fragmentation import FragmentationBound, NodeAvailability, PromisedPods
from tests.unit.core.build import T0, budget, envelope, nodes, run
from tests.unit.core.lab import Lab


def drained(first: int) -> Lab:
    """Three of four nodes will be whole in two hours, all of them promised to one gang; the first will not.

    One GPU is free now, on a node that the gang needs.
    """
    lab = Lab(nodes("nv-a", 4), budget("org:a", 100))
    lab.submit(run("long", "org:a", first, max_duration="100h"))
    lab.submit(run("x", "org:a", 8 - first, max_duration="2h"))
    lab.submit(run("y", "org:a", 7, max_duration="2h"))
    lab.submit(run("z1", "org:a", 8, max_duration="2h"), run("z2", "org:a", 8, max_duration="2h"))
    lab.submit(run("gang", "org:a", 24, at=1, max_duration="10h"))
    assert lab.promised_at("gang") == 2 * HOUR
    return lab


def test_a_small_run_is_promised_a_node_that_a_gang_does_not_need_whole() -> None:
    lab = drained(first=7)
    lab.submit(run("small", "org:a", 1, at=2, max_duration="720h"))
    assert lab.promised_at("small") == 2 * HOUR, "the GPU that is free now is on a node the gang needs"
    lab.live(2 * HOUR)
    assert [lab[name].phase for name in ("gang", "small")] == ["Running", "Running"], lab.story
    assert not [line for line in lab.story if "CrowdedOut" in line]


def test_a_small_run_that_is_gone_in_time_starts_at_once() -> None:
    lab = drained(first=7)
    lab.submit(run("small", "org:a", 1, at=2, max_duration="2h"))
    assert lab["small"].phase == "Running"


def test_a_small_run_starts_on_the_node_that_no_gang_needs_though_another_has_less_left() -> None:
    lab = Lab(nodes("nv-a", 4), budget("org:a", 100))
    lab.submit(run("long", "org:a", 6, max_duration="100h"))
    lab.submit(run("y", "org:a", 7, max_duration="2h"))
    lab.submit(run("z1", "org:a", 8, max_duration="2h"), run("z2", "org:a", 8, max_duration="2h"))
    lab.submit(run("gang", "org:a", 24, at=1, max_duration="10h"))
    lab.submit(run("small", "org:a", 1, at=2, max_duration="720h"))
    assert [lease.slots[0][0] for lease in lab["small"].leases.values()] == ["nv-a-00"]
    lab.live(2 * HOUR)
    assert lab["gang"].phase == "Running", lab.story


def test_a_run_that_is_gone_in_time_stands_where_a_gang_will_and_leaves_others_the_place_beside() -> None:
    """Only one GPU is beside the nodes that the gang needs whole: a Run that stays is promised it."""
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


def test_a_larger_pod_that_nobody_is_promised_may_be_broken_up() -> None:
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


def test_what_is_left_beside_larger_pods_is_counted_node_by_node() -> None:
    soon, late = T0 + HOUR, T0 + 9 * HOUR
    rooms = NodeAvailability({"a": 3, "b": 1}, [("a", 5, (late, late, late)), ("b", 7, (soon, soon, soon))])
    gang = PromisedPods(at=soon, end=late, firm_until=soon, pods=8, gpus=8, size=8)
    wholes = FragmentationBound(1, rooms, [gang])
    assert wholes.beside(T0, late) == [3, 0]
    assert wholes.pods(0, T0, late, 4) == 3
    assert wholes.pods(0, T0, soon, 4) == 4, "who is gone by then is in nobody's way"
