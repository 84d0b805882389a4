"""Who starts, in what order, how wide, and on what (P7, C9)."""

import pytest

from jobtree.api.schema.quantities import HOUR, MINUTE
from tests.unit.core.build import T0, budget, envelope, foreign_pod, node, nodes, run
from tests.unit.core.lab import Lab


def test_runs_start_in_the_order_of_their_creation_whatever_their_size() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", 64))
    lab.submit(run("young", "org", 8, at=2), run("old", "org", 8, at=1))
    assert (lab.phase("old"), lab.phase("young")) == ("Running", "Pending")


def test_of_runs_created_together_the_name_decides() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", 64))
    lab.submit(run("b", "org", 8), run("a", "org", 8))
    assert (lab.phase("a"), lab.phase("b")) == ("Running", "Pending")


def test_a_run_that_ends_makes_room_for_the_next() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", 64))
    lab.submit(run("a", "org", 8), run("b", "org", 8, at=1))
    lab.advance(HOUR)
    lab.finish("a")
    assert (lab.phase("a"), lab.phase("b")) == ("Completed", "Running")
    assert lab.leases("b")[0].start == T0 + HOUR


@pytest.mark.parametrize(
    ("free_nodes", "concurrency", "width"),
    [(3, 64, 24), (2, 64, 16), (1, 64, 8), (0, 64, 0), (3, 23, 16), (3, 8, 8), (3, 7, 0)],
)
def test_a_malleable_run_starts_at_the_widest_step_that_fits_and_is_paid(
    free_nodes: int, concurrency: int, width: int
) -> None:
    lab = Lab(nodes("nv-a", free_nodes), node("tiny", gpus=1), budget("org", concurrency))
    lab.submit(run("r", "org", 24, per_pod=8, malleable=(8, 32, 8)))
    assert lab["r"].width == width


def test_narrower_comes_without_spares_before_it_comes_narrower_still() -> None:
    lab = Lab(nodes("nv-a", 3), budget("org", 64))
    lab.submit(run("r", "org", 24, per_pod=8, spares=1, malleable=(8, 32, 8)))
    assert (lab["r"].width, lab.spares("r")) == (24, 0)


def test_a_malleable_grouped_run_loses_whole_groups() -> None:
    lab = Lab(nodes("nv-a", 5), budget("org", 64))
    lab.submit(run("r", "org", 48, group=16, malleable=(16, 48, 16)))
    assert [lease.gpus for lease in lab.leases("r")] == [16, 16]


def test_a_finished_or_cancelled_run_never_starts_again() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", 64))
    lab.submit(run("a", "org", 8))
    lab.finish("a", succeeded=False)
    lab.submit(run("b", "org", 8, at=1))
    lab.world.drop_run(("ns", "b"))
    lab.settle()
    assert lab.phase("a") == "Failed"
    assert [reason for reason, _ in lab.endings("b")] == ["Cancelled"]
    assert ("ns", "b") not in lab.world.runs


def test_a_run_fails_at_the_very_instant_its_duration_is_over() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", 64))
    lab.submit(run("r", "org", 8, max_duration="1h"))
    assert lab.world.timers.next_instant() == T0 + HOUR
    lab.advance(9 * HOUR)
    assert (lab.phase("r"), lab.reasons("r"), lab.endings("r")) == (
        "Failed",
        ["DurationExceeded"],
        [("Failed", HOUR)],
    )


@pytest.mark.parametrize(("ended", "phase"), [(HOUR, "Completed"), (HOUR + 1, "Failed")])
def test_work_that_ends_at_that_very_instant_is_completed(ended: int, phase: str) -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", 64))
    lab.submit(run("r", "org", 8, max_duration="1h"))
    lab.world.advance_clock(T0 + ended)
    lab.finish("r")
    assert lab.phase("r") == phase


def test_an_end_that_is_told_of_a_run_that_waits_means_nothing() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", 64))
    lab.submit(run("a", "org", 8), run("b", "org", 8, at=1))
    lab.finish("b")
    lab.finish("a")
    lab.put(node("nv-a-00"))
    lab.settle()
    assert lab.phase("b") == "Running"


# Opportunistic starts


def poor(*, opportunistic: bool) -> Lab:
    lab = Lab(nodes("nv-a", 2), budget("org", 1))
    lab.submit(run("r", "org", 8, opportunistic=opportunistic))
    return lab


def test_unfunded_work_starts_only_if_it_says_so() -> None:
    assert poor(opportunistic=False).phase("r") == "Pending"
    lab = poor(opportunistic=True)
    assert (lab.paid("r"), lab.reasons("r")) == ({"Opportunistic org/main": 8}, ["Opportunistic"])
    assert [(lease.role, lease.rate, lease.reason) for lease in lab.leases("r")] == [
        ("Opportunistic", 0, "Start")
    ]


def test_its_payer_is_the_first_that_matches_flavor_and_place_whatever_its_headroom() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", 1), budget("org:x", envelope(1, selector={"region": "eu"})))
    lab.submit(run("r", "org:x", 8, opportunistic=True))
    assert lab.paid("r") == {"Opportunistic org/main": 8}


def test_where_no_payer_matches_there_is_no_opportunistic_start() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", envelope(8, selector={"region": "eu"})))
    lab.submit(run("r", "org", 8, opportunistic=True))
    assert lab.phase("r") == "Pending"


def test_a_funded_start_is_preferred_at_any_width() -> None:
    lab = Lab(nodes("nv-a", 3), budget("org", 8))
    lab.submit(run("r", "org", 24, malleable=(8, 24, 8), opportunistic=True))
    assert lab.paid("r") == {"Owned org/main": 8}


def spare_holder() -> Lab:
    lab = Lab(nodes("nv-a", 2), budget("org", 10), budget("lab", 1))
    lab.submit(run("holder", "org", 8, spares=1))
    assert lab.on("holder", "Spare") == {"nv-a-01": 8}
    return lab


def test_opportunistic_work_stands_on_the_slots_of_other_runs_spares() -> None:
    lab = spare_holder()
    lab.submit(run("r", "lab", 8, opportunistic=True, at=1))
    assert lab.on("r", "Opportunistic") == {"nv-a-01": 8}
    assert lab.spares("holder") == 8


def test_free_nodes_come_before_the_slots_of_spares() -> None:
    """P7: the spare's domain is in use and would be the tighter one, but a node is free elsewhere."""
    lab = Lab(budget("org:a", 16), budget("org:b", 1), nodes("nv-a", 2), nodes("nv-b", 4))
    lab.submit(run("kept", "org:a", 8, spares=1))
    assert lab.spares("kept") == 8
    lab.submit(run("free", "org:b", 8, at=1, opportunistic=True))
    assert lab.domains("free") == {0: {"nv-b"}}
    lab.submit(run("wide", "org:b", 32, at=2, opportunistic=True, group=8))
    assert lab.on("wide", "Opportunistic") == {"nv-b-01": 8, "nv-b-02": 8, "nv-b-03": 8, "nv-a-01": 8}


def test_on_a_node_free_slots_come_before_those_of_spares() -> None:
    lab = Lab(node("n"), budget("org", 3), budget("lab", 1))
    lab.submit(run("holder", "org", 2, per_pod=2, spares=1))
    lab.submit(run("r", "lab", 6, per_pod=6, opportunistic=True, at=1))
    assert [lease.slots for lease in lab.leases("r")] == [(("n", 0b11111100),)]


def test_a_spares_slots_are_lent_once() -> None:
    lab = spare_holder()
    lab.submit(run("r", "lab", 8, opportunistic=True, at=1))
    lab.submit(run("s", "lab", 8, opportunistic=True, at=2))
    assert lab.phase("s") == "Pending"


def test_other_peoples_pods_still_count_on_a_node_whose_spares_are_lent() -> None:
    lab = Lab(node("n"), foreign_pod("n", 2), budget("org", 3), budget("lab", 1))
    lab.submit(run("holder", "org", 2, per_pod=2, spares=1))
    lab.submit(run("r", "lab", 4, per_pod=4, opportunistic=True, at=1))
    used = 0
    for name in ("holder", "r"):
        for lease in lab.leases(name):
            used |= dict(lease.slots)["n"]
    assert used.bit_count() + 2 <= 8


def test_funded_work_does_not_stand_on_spares() -> None:
    lab = spare_holder()
    lab.put(budget("lab", 8))
    lab.submit(run("r", "lab", 8, at=1))
    assert lab.phase("r") == "Pending"


def test_opportunistic_work_on_free_slots_is_paid_for_as_soon_as_someone_can() -> None:
    lab = poor(opportunistic=True)
    lab.world.advance_clock(T0 + MINUTE)
    lab.put(budget("org", 8))
    lab.settle()
    assert (lab.paid("r"), lab.endings("r")) == ({"Owned org/main": 8}, [("Repaid", MINUTE)])


def test_on_a_spares_slots_it_is_not_repaid_in_place() -> None:
    lab = spare_holder()
    lab.submit(run("r", "lab", 8, opportunistic=True, at=1))
    lab.put(budget("lab", 8))
    lab.settle()
    assert lab.paid("r") == {"Opportunistic lab/main": 8}


def test_a_long_name_with_dots_gives_its_leases_names_that_kubernetes_takes() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", 8))
    long = f"{'a' * 199}.b"  # cut where its dot is
    lab.submit(run(long, "org", 8))
    (lease,) = lab.leases(long)
    assert ".-" not in lease.name


def test_runs_with_thousands_of_widths_are_planned_like_others() -> None:
    """H2: each takes what is left, provisionally too."""
    lab = Lab(nodes("nv-a", 64), budget("org", envelope(10_000)))
    lab.submit(run("base", "org", 500, max_duration="3h"))
    lab.submit(run("big", "org", 512, at=1, max_duration="3h"))
    elastic = [
        run(f"r{number}", "org", 4096, at=2 + number, malleable=(1, 4096, 1), checkpoint="10m")
        for number in range(20)
    ]
    lab.submit(*elastic)
    assert [lab[f"r{number}"].width for number in range(3)] == [12, 0, 0]
