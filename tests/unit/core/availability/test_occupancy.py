"""Which leases use the nodes of a domain, and when each can release its GPUs (R2–R4, R6)."""

from jobtree.api.schema.quantities import HOUR, MINUTE
from jobtree.core.availability.occupancy import (
    ALWAYS,
    ALWAYS_FREE,
    LeaseOccupancy,
    OccupancyView,
    OccupiedGpus,
    domain_occupancy,
    occupancy_view,
    occupancy_view_without,
)
from jobtree.core.model.promise import LOTTERY, NO_DISRUPTION
from jobtree.core.supply.domain import Domain
from tests.unit.core.build import H100, NAMESPACE, T0, budget, foreign_pod, nodes, run
from tests.unit.core.lab import Lab

FIRST, SECOND = "nv-a-00", "nv-a-01"


def domain_of(lab: Lab, name: str = "nv-a") -> Domain:
    return lab.world.fleet.flavor(H100).domains[f"us/a/{name}"]


def leases_in(lab: Lab, domain: str = "nv-a") -> dict[str, LeaseOccupancy]:
    """The leases in a domain by the name of their Run; each of these Runs has one lease."""
    leases = domain_occupancy(lab.world, domain_of(lab, domain)).leases
    return {lease.posted.lease.run_key[1]: lease for lease in leases}


def view_of(lab: Lab, *usable: str, provisional_from: int | None = None) -> OccupancyView:
    return occupancy_view(lab.world, domain_of(lab), usable, provisional_from)


def lab_with_provisional_run() -> Lab:
    """One node: ``long`` uses half of it for two hours, then all of it is promised to ``old``.

    An hour after that promise was made, ``young`` starts provisionally on the other half.
    """
    lab = Lab(nodes("nv-a", 1), budget("org", 100))
    lab.submit(run("long", "org", 4, max_duration="2h"))
    lab.submit(run("old", "org", 8, at=1, max_duration="10h"))
    lab.advance(HOUR)
    lab.submit(run("young", "org", 4, at=HOUR, checkpoint="30m"))
    assert (lab["young"].provisional, lab.promised_at("old")) == (True, 2 * HOUR)
    return lab


def test_active_lease_is_released_at_its_end_or_by_lottery_after_its_immunity() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", 8))
    lab.submit(run("r", "org", 8, max_duration="10h"))
    end, immune_until = T0 + 10 * HOUR, T0 + 2 * HOUR
    assert leases_in(lab)["r"].parts == (OccupiedGpus(FIRST, 8, (end, end, immune_until, end)),)


def test_active_lease_is_released_at_its_end_when_that_comes_before_its_immunity_ends() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", 8))
    lab.submit(run("r", "org", 8, max_duration="1h"))
    assert leases_in(lab)["r"].parts[0].releases[LOTTERY] == T0 + HOUR


def test_lost_lottery_lengthens_the_immunity_of_a_cached_lease() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org", 16))
    lab.submit(run("r", "org", 8))
    assert leases_in(lab)["r"].parts[0].releases[LOTTERY] == T0 + 2 * HOUR
    lab["r"].lotteries_lost = 1
    lab.submit(run("other", "org", 8, at=1))
    assert leases_in(lab)["r"].parts[0].releases[LOTTERY] == T0 + 4 * HOUR


def test_lease_is_not_split_again_when_another_lease_opens() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org", 16))
    lab.submit(run("r", "org", 8))
    before = leases_in(lab)["r"]
    lab.submit(run("other", "org", 8, at=1))
    assert leases_in(lab)["r"] is before


def test_lease_has_no_part_on_a_node_that_was_deleted() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org", 16))
    lab.submit(run("r", "org", 16, max_duration="1h"))
    lab.world.drop_node(FIRST)
    assert [(part.node, part.gpus) for part in leases_in(lab)["r"].parts] == [(SECOND, 8)]


def test_spare_is_free_at_its_end_and_can_be_dropped_at_any_time() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org", 16))
    lab.submit(run("r", "org", 8, spares=1, max_duration="10h"))
    leases = domain_occupancy(lab.world, domain_of(lab)).leases
    (spare,) = [lease for lease in leases if lease.posted.lease.role == "Spare"]
    assert spare.parts == (OccupiedGpus(SECOND, 8, (T0 + 10 * HOUR, ALWAYS, ALWAYS, ALWAYS)),)


def test_opportunistic_lease_is_free_at_any_time() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", 1))
    lab.submit(run("unpaid", "org", 4, opportunistic=True))
    assert leases_in(lab)["unpaid"].parts == (OccupiedGpus(FIRST, 4, ALWAYS_FREE),)


def test_opportunistic_gpus_on_the_slots_of_a_spare_count_only_for_the_spare() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org", 16), budget("lab", 1))
    lab.submit(run("holder", "org", 8, spares=1), run("guest", "lab", 8, at=1, opportunistic=True))
    assert lab.on("holder", "Spare") == lab.on("guest", "Opportunistic") == {SECOND: 8}
    assert [part.gpus for part in leases_in(lab)["guest"].parts] == [0]


def test_step_of_a_malleable_run_can_be_taken_at_any_time() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", 8))
    lab.submit(run("r", "org", 8, per_pod=2, malleable=(6, 8, 2), max_duration="1h"))
    end = T0 + HOUR
    assert leases_in(lab)["r"].parts == (
        OccupiedGpus(FIRST, 2, (end, ALWAYS, ALWAYS, ALWAYS)),
        OccupiedGpus(FIRST, 6, (end, end, end, end)),
    )


def test_step_that_extends_into_another_domain_does_not_count() -> None:
    lab = Lab(nodes("nv-a", 1), nodes("nv-b", 1), budget("org", 16))
    lab.submit(run("r", "org", 16, per_pod=4, malleable=(4, 16, 12), max_duration="1h"))
    end = T0 + HOUR
    parts = [part for name in ("nv-a", "nv-b") for part in leases_in(lab, name)["r"].parts]
    assert {part.releases for part in parts} == {(end, end, end, end)}


def test_interim_lease_is_released_when_the_promise_of_its_run_is_due() -> None:
    lab = lab_with_provisional_run()
    assert leases_in(lab)["young"].parts[0].releases[NO_DISRUPTION] == lab.promise("young").at


def test_first_provisional_start_is_that_of_work_which_began_after_the_promise() -> None:
    lab = lab_with_provisional_run()
    occupancy = domain_occupancy(lab.world, domain_of(lab))
    assert occupancy.first_provisional_after(lab.promise("old").precedence) == T0 + HOUR
    later = (T0 + HOUR + 1, 0, lab["old"].creation_order)
    assert occupancy.first_provisional_after(later) is None


def test_view_shows_provisional_work_as_free_and_needs_no_notice_for_it() -> None:
    lab = lab_with_provisional_run()
    with_young, without_young = view_of(lab, FIRST), view_of(lab, FIRST, provisional_from=T0 + HOUR)
    assert (ALWAYS, 0, 4) not in with_young.releases(NO_DISRUPTION)
    assert (ALWAYS, 0, 4) in without_young.releases(NO_DISRUPTION)
    assert (len(with_young.draw_notices), len(without_young.draw_notices)) == (2, 1)


def test_view_leaves_out_leases_on_other_nodes() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org", 16))
    lab.submit(run("x", "org", 8, max_duration="1h"), run("y", "org", 4, at=1, max_duration="2h"))
    view = view_of(lab, SECOND)
    assert view.free == [4]
    assert view.releases(NO_DISRUPTION) == [(T0 + 2 * HOUR, 0, 4)]
    assert len(view.draw_notices) == 1


def test_view_lists_releases_by_instant_without_those_that_never_come() -> None:
    lab = Lab(nodes("nv-a", 3), budget("org", 24))
    lab.submit(run("late", "org", 8, max_duration="9h"), run("soon", "org", 8, at=1, max_duration="1h"))
    lab.submit(run("never", "org", 8, at=2))
    releases = view_of(lab, FIRST, SECOND, "nv-a-02").releases(NO_DISRUPTION)
    assert releases == [(T0 + HOUR, 1, 8), (T0 + 9 * HOUR, 0, 8)]


def test_gpus_of_foreign_pods_are_not_free() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", 8), foreign_pod(FIRST, 3))
    lab.submit(run("r", "org", 2))
    assert view_of(lab, FIRST).free == [3]


def test_longest_notice_is_the_checkpoint_of_a_run_that_could_be_drawn() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", 8))
    assert view_of(lab, FIRST).longest_notice == 0
    lab.submit(run("x", "org", 4), run("y", "org", 4, at=1, checkpoint="20m"))
    assert view_of(lab, FIRST).longest_notice == 20 * MINUTE


def test_node_availability_has_the_free_gpus_of_each_node_over_time() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org", 16))
    lab.submit(run("x", "org", 6, max_duration="1h"))
    availability = view_of(lab, FIRST, SECOND).node_availability
    assert availability.free_gpus(NO_DISRUPTION, T0) == [2, 8]
    assert availability.free_gpus(NO_DISRUPTION, T0 + HOUR) == [8, 8]


def test_view_without_a_run_shows_its_gpus_as_free() -> None:
    lab = Lab(nodes("nv-a", 1), budget("org", 8))
    lab.submit(run("x", "org", 6), run("y", "org", 2, at=1))
    view = occupancy_view_without(lab.world, domain_of(lab), (FIRST,), frozenset({(NAMESPACE, "x")}))
    assert view.free == [6]


def test_view_is_cached_until_a_lease_in_the_domain_changes() -> None:
    lab = Lab(nodes("nv-a", 1), nodes("nv-b", 1), budget("org", 16))
    lab.submit(run("x", "org", 4))
    before = view_of(lab, FIRST)
    lab.submit(run("elsewhere", "org", 8, at=1))
    assert view_of(lab, FIRST) is before
    lab.finish("x")
    assert view_of(lab, FIRST).free == [8]
