"""Which answers about a domain a change makes wrong, and which it does not."""

from jobtree.core.model.promise import NO_DISRUPTION, Promise
from jobtree.core.supply.domain import Domain
from jobtree.core.supply.node_slots import PodDemand
from tests.unit.core.build import H100, NAMESPACE, budget as budget_of, nodes, run
from tests.unit.core.lab import Lab

DOMAIN = "us/a/nv-a"


def domain_with_a_run() -> tuple[Lab, Domain]:
    lab = Lab(nodes("nv-a", 2), budget_of("org:a", 16))
    lab.submit(run("r", "org:a", 4))
    return lab, lab.world.fleet.flavor(H100).domains[DOMAIN]


def promise(number: int) -> Promise:
    return Promise(
        run_key=(NAMESPACE, f"r{number}"),
        flavor=H100,
        number=1,
        made_at=number,
        creation_order=(0, NAMESPACE, f"r{number}"),
        commitment="",
        at=None,
        disruption=NO_DISRUPTION,
        width=8,
        pod_size=8,
        domain_gpus=((DOMAIN, 8),),
        funding=(),
        end=None,
        immune_until=0,
    )


def test_placeable_pods_are_counted_again_when_a_slot_changes_hands() -> None:
    lab, domain = domain_with_a_run()
    assert domain.placeable(PodDemand(size=4)) == 3
    lab.submit(run("another", "org:a", 8))
    assert domain.placeable(PodDemand(size=4)) == 1
    assert domain.gpu_counts().leased == 12


def test_slots_that_change_hands_leave_the_release_times_of_other_leases_valid() -> None:
    lab, domain = domain_with_a_run()
    slots, occupancy, releases = domain.slots_version, domain.occupancy_version, domain.release_version
    lab.submit(run("another", "org:a", 8))
    assert domain.slots_version is not slots
    assert domain.occupancy_version is not occupancy
    assert domain.release_version is releases


def test_an_edited_budget_changes_release_times_but_no_free_slots() -> None:
    lab, domain = domain_with_a_run()
    slots, releases = domain.slots_version, domain.release_version
    lab.world.fleet.invalidate_profiles()
    assert domain.slots_version is slots
    assert domain.release_version is not releases


def test_saved_versions_bring_back_the_answers_of_before() -> None:
    _, domain = domain_with_a_run()
    choices, saved = domain.node_choices(PodDemand(size=1)), domain.save_versions()
    domain.invalidate_free_slots()
    assert domain.node_choices(PodDemand(size=1)) is not choices
    domain.restore_versions(saved)
    assert domain.node_choices(PodDemand(size=1)) is choices


def test_a_promise_that_is_tried_taken_back_and_made_has_one_version() -> None:
    _, domain = domain_with_a_run()
    first, second = promise(1), promise(2)
    without = domain.promise_version
    domain.set_promise(first.run_key, first)
    tried = domain.promise_version
    domain.set_promise(first.run_key, None)
    assert domain.promise_version == without
    domain.set_promise(first.run_key, first)
    assert domain.promise_version == tried
    domain.set_promise(second.run_key, second)
    assert domain.promise_version not in {without, tried}
