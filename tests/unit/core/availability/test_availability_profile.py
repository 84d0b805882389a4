"""How many pods of a kind a domain can hold at any future instant (R2–R4, R6, R7)."""

import msgspec

from jobtree.api.schema.quantities import HOUR, MINUTE
from jobtree.core.accounts.envelope_accounts import FOREVER
from jobtree.core.availability.availability_profile import (
    AvailabilityProfile,
    availability_profile,
    availability_profile_without,
    keeps_promise,
    placement_demand,
)
from jobtree.core.availability.occupancy import ALWAYS
from jobtree.core.model.promise import LOTTERY, NO_DISRUPTION, STRUCTURAL, Precedence, Promise
from jobtree.core.supply.domain import Domain
from jobtree.core.supply.node_slots import PodDemand
from tests.unit.core.build import H100, NAMESPACE, T0, budget, foreign_pod, node, nodes, run, template
from tests.unit.core.lab import Lab

NOW = T0
IN_1H, IN_2H, IN_3H, IN_5H, IN_9H = (T0 + hours * HOUR for hours in (1, 2, 3, 5, 9))


def empty_lab(count: int = 1) -> Lab:
    """So many nodes of eight GPUs in one domain, and a budget that pays for anything."""
    return Lab(nodes("nv-a", count), budget("org", 1_000))


def domain_of(lab: Lab) -> Domain:
    return lab.world.fleet.flavor(H100).domains["us/a/nv-a"]


def profile_of(lab: Lab, pod_size: int = 1, precedence: Precedence | None = None) -> AvailabilityProfile:
    return availability_profile(lab.world, domain_of(lab), PodDemand(size=pod_size), precedence)


def promise(
    lab: Lab,
    name: str,
    gpus: int,
    at: int | None,
    end: int | None,
    *,
    immune_until: int = FOREVER,
    pod_size: int = 1,
    made_at: int = T0,
) -> Promise:
    """Promises GPUs of the domain to a Run, as planning would."""
    made = Promise(
        run_key=(NAMESPACE, name),
        flavor=H100,
        number=1,
        made_at=made_at,
        creation_order=(made_at, NAMESPACE, name),
        commitment="",
        at=at,
        disruption=NO_DISRUPTION,
        width=gpus,
        pod_size=pod_size,
        domain_gpus=(("us/a/nv-a", gpus),),
        funding=(),
        end=end,
        immune_until=immune_until,
    )
    domain_of(lab).set_promise(made.run_key, made)
    return made


# Without promises


def test_pods_fit_when_the_leases_in_their_way_have_ended() -> None:
    lab = empty_lab()
    lab.submit(run("r", "org", 6, max_duration="1h"))
    profile = profile_of(lab)
    assert profile.max_pods(NO_DISRUPTION, IN_1H - 1) == 2
    assert profile.max_pods(NO_DISRUPTION, IN_1H) == 8


def test_pods_fit_only_into_the_free_gpus_of_one_node() -> None:
    lab = empty_lab(2)
    lab.submit(run("x", "org", 5), run("y", "org", 5, at=1))
    assert profile_of(lab, pod_size=3).max_pods(NO_DISRUPTION, NOW) == 2
    assert profile_of(lab, pod_size=4).max_pods(NO_DISRUPTION, NOW) == 0


def test_more_pods_fit_when_spares_and_steps_may_be_taken() -> None:
    lab = empty_lab()
    lab.submit(run("r", "org", 8, per_pod=2, malleable=(4, 8, 2)))
    profile = profile_of(lab, pod_size=2)
    assert (profile.max_pods(NO_DISRUPTION, NOW), profile.max_pods(STRUCTURAL, NOW)) == (0, 2)


def test_more_pods_fit_by_lottery_when_runs_are_no_longer_immune() -> None:
    lab = empty_lab()
    lab.submit(run("r", "org", 8))
    profile = profile_of(lab)
    assert (profile.max_pods(LOTTERY, IN_2H - 1), profile.max_pods(LOTTERY, IN_2H)) == (0, 8)
    assert profile.max_pods(STRUCTURAL, IN_2H) == 0


def test_capacity_is_reduced_by_foreign_pods_but_not_by_leases() -> None:
    lab = empty_lab()
    lab.put(foreign_pod("nv-a-00", 3))
    lab.submit(run("r", "org", 4))
    assert profile_of(lab, pod_size=2).capacity_pods == 2


def test_first_fit_is_the_first_instant_with_enough_pods() -> None:
    lab = empty_lab()
    lab.submit(run("x", "org", 4, max_duration="1h"), run("y", "org", 4, at=1, max_duration="3h"))
    profile = profile_of(lab)
    assert [profile.first_fit(NO_DISRUPTION, pods) for pods in (4, 5, 9)] == [IN_1H, IN_3H, None]


def test_pods_are_listed_from_an_instant_on_at_each_increase() -> None:
    lab = empty_lab()
    lab.submit(run("x", "org", 4, max_duration="1h"), run("y", "org", 4, at=1, max_duration="3h"))
    assert list(profile_of(lab).pods_from(NO_DISRUPTION, IN_2H)) == [(IN_2H, 4), (IN_3H, 8)]


# Beside promises


def test_promise_takes_pods_from_its_start_to_its_end() -> None:
    lab = empty_lab()
    promise(lab, "other", 6, IN_1H, IN_3H)
    profile = profile_of(lab)
    fitting = [profile.pods(NO_DISRUPTION, at, at + 1, None, None) for at in (IN_1H, IN_3H - 1, IN_3H)]
    assert fitting == [2, 2, 8]


def test_promised_gpus_count_as_whole_pods() -> None:
    lab = empty_lab()
    promise(lab, "other", 3, NOW, None)
    assert profile_of(lab, pod_size=2).pods(NO_DISRUPTION, NOW, FOREVER, None, None) == 2


def test_run_that_ends_before_a_promise_begins_is_not_limited_by_it() -> None:
    """R6."""
    lab = empty_lab()
    promise(lab, "other", 6, IN_1H, IN_3H)
    profile = profile_of(lab)
    assert profile.pods(NO_DISRUPTION, NOW, IN_1H, None, None) == 8
    assert profile.pods(NO_DISRUPTION, NOW, IN_1H + 1, None, None) == 2


def test_promise_without_a_date_takes_no_pods() -> None:
    lab = empty_lab()
    promise(lab, "other", 6, None, None)
    assert profile_of(lab).pods(NO_DISRUPTION, NOW, FOREVER, None, None) == 8


def test_promise_limits_only_promises_that_were_made_later() -> None:
    """R5."""
    lab = empty_lab()
    promise(lab, "other", 6, IN_1H, None, made_at=T0 + 5)
    profile, creation_order = profile_of(lab), (T0, NAMESPACE, "r")
    assert profile.pods(NO_DISRUPTION, IN_1H, FOREVER, None, (T0 + 4, 0, creation_order)) == 8
    assert profile.pods(NO_DISRUPTION, IN_1H, FOREVER, None, (T0 + 6, 0, creation_order)) == 2


def test_promise_of_the_run_itself_does_not_limit_an_earlier_start() -> None:
    """R7."""
    lab = empty_lab()
    own = promise(lab, "r", 6, IN_1H, None)
    promise(lab, "other", 2, IN_1H, None)
    profile = profile_of(lab)
    assert profile.pods(NO_DISRUPTION, NOW, FOREVER, own.run_key, None) == 6
    assert profile.pods(NO_DISRUPTION, NOW, FOREVER, None, None) == 0


def test_promise_of_the_run_itself_takes_no_pods_from_it() -> None:
    """R7."""
    lab = empty_lab()
    own = promise(lab, "r", 6, IN_1H, IN_3H, immune_until=IN_2H)
    profile = profile_of(lab)
    assert profile.pods(NO_DISRUPTION, IN_2H, FOREVER, own.run_key, None) == 8
    assert profile.pods(LOTTERY, IN_2H, FOREVER, own.run_key, None) == 8


def test_earlier_start_of_a_run_is_limited_by_promises_that_begin_before_its_own() -> None:
    """R6."""
    lab = empty_lab()
    own = promise(lab, "r", 6, IN_3H, None)
    promise(lab, "other", 7, IN_1H, IN_2H)
    assert profile_of(lab).pods(NO_DISRUPTION, NOW, FOREVER, own.run_key, None) == 1


def test_run_has_at_least_its_promised_pods_while_its_promise_lasts() -> None:
    """R5: a promise beside it that can no longer be kept does not reduce what the Run was promised."""
    lab = empty_lab()
    own = promise(lab, "r", 4, IN_1H, IN_5H)
    promise(lab, "other", 9, IN_2H, IN_3H)
    assert profile_of(lab).pods(NO_DISRUPTION, IN_1H, IN_5H, own.run_key, None) == 4


def test_run_that_stays_after_its_promise_is_limited_by_later_starts() -> None:
    lab = empty_lab()
    own = promise(lab, "r", 4, IN_1H, IN_2H)
    promise(lab, "other", 7, IN_3H, IN_5H)
    profile = profile_of(lab)
    assert profile.pods(NO_DISRUPTION, IN_1H, IN_9H, own.run_key, None) == 1


def test_lottery_may_draw_promised_pods_after_their_immunity() -> None:
    lab = empty_lab()
    promise(lab, "other", 8, IN_1H, None, immune_until=IN_3H)
    profile = profile_of(lab)
    fitting = [profile.pods(LOTTERY, at, FOREVER, None, None) for at in (IN_3H - 1, IN_3H)]
    assert fitting == [0, 8]
    assert profile.pods(STRUCTURAL, IN_3H, FOREVER, None, None) == 0


def lab_with_promised_node() -> Lab:
    """Two nodes with one free GPU, on the node that becomes free as a whole in an hour.

    That node is then promised to a pod of eight GPUs. The other one has one free GPU from then on.
    """
    lab = Lab(nodes("nv-a", 2, labels={"zone": "1"}), budget("org", 1_000))
    lab.submit(run("stays", "org", 7), run("x", "org", 7, at=1, max_duration="1h"))
    lab.submit(run("y", "org", 1, at=2, max_duration="1h"))
    assert (lab.on("stays"), lab.on("x"), lab.on("y")) == ({"nv-a-00": 7}, {"nv-a-01": 7}, {"nv-a-00": 1})
    promise(lab, "gang", 8, IN_1H, None, pod_size=8)
    return lab


def test_small_pod_does_not_break_up_a_node_that_is_promised_to_a_larger_pod() -> None:
    profile = profile_of(lab_with_promised_node())
    assert profile.pods(NO_DISRUPTION, NOW, FOREVER, None, None) == 0
    assert profile.pods(NO_DISRUPTION, NOW, IN_1H, None, None) == 1, "it ends before the larger pod starts"


def test_counted_pods_are_an_upper_bound_that_ignores_larger_pods() -> None:
    assert profile_of(lab_with_promised_node()).counted_pods(NOW, FOREVER, None) == 1


def test_larger_promised_pod_does_not_matter_when_it_may_use_a_node_that_the_small_pods_may_not() -> None:
    lab = lab_with_promised_node()
    lab.put(node("nv-a-02"))
    demand = PodDemand(size=1, node_selector=(("zone", "1"),))
    profile = availability_profile(lab.world, domain_of(lab), demand, None)
    assert profile.pods(NO_DISRUPTION, NOW, FOREVER, None, None) == 1


# Behind all promises


def test_open_ended_run_behind_all_promises_fits_when_no_promise_begins_later() -> None:
    lab = empty_lab()
    promise(lab, "other", 6, IN_1H, IN_3H)
    behind = profile_of(lab).behind_promises(NO_DISRUPTION)
    assert [behind.open_ended_pods(at) for at in (NOW, IN_2H, IN_3H)] == [2, 2, 8]


def test_run_behind_all_promises_fits_sooner_when_it_need_not_stay() -> None:
    lab = empty_lab()
    promise(lab, "other", 6, IN_1H, IN_3H)
    behind = profile_of(lab).behind_promises(NO_DISRUPTION)
    assert behind.first_fit(8, open_ended=False) == ALWAYS
    assert behind.first_fit(8, open_ended=True) == IN_3H
    assert behind.first_fit(9, open_ended=True) is None


def test_intervals_with_enough_pods_begin_with_that_of_the_instant() -> None:
    lab = empty_lab()
    promise(lab, "x", 6, NOW, IN_1H)
    promise(lab, "y", 2, NOW, IN_3H)
    behind = profile_of(lab).behind_promises(NO_DISRUPTION)
    assert list(behind.intervals_with(6, NOW)) == [(IN_1H, IN_3H, 6), (IN_3H, FOREVER, 8)]
    assert list(behind.intervals_with(6, IN_5H)) == [(IN_3H, FOREVER, 8)]


def test_open_ended_run_behind_all_promises_does_not_break_up_a_node() -> None:
    behind = profile_of(lab_with_promised_node()).behind_promises(NO_DISRUPTION)
    assert behind.open_ended_pods(NOW) == 0
    assert behind.first_fit(1, open_ended=True) == IN_1H


def test_pods_may_increase_when_leases_end_and_when_promises_begin_or_end() -> None:
    lab = empty_lab()
    lab.submit(run("r", "org", 4, max_duration="9h"))
    promise(lab, "other", 2, IN_1H, IN_3H, immune_until=IN_2H)
    promise(lab, "endless", 2, IN_5H, None)
    profile = profile_of(lab)
    assert profile.increase_instants(NO_DISRUPTION, None, None) == [ALWAYS, IN_1H, IN_3H, IN_5H, IN_9H]
    assert profile.increase_instants(LOTTERY, None, None) == [ALWAYS, IN_1H, IN_2H, IN_5H]


# Notice


def test_longest_notice_is_that_of_the_runs_that_could_be_drawn_at_an_instant() -> None:
    """R3."""
    lab = empty_lab()
    lab.submit(run("x", "org", 4))
    lab.advance(HOUR)
    lab.submit(run("y", "org", 4, at=HOUR, checkpoint="20m", max_duration="4h"))
    profile = profile_of(lab)
    minutes = [profile.longest_draw_notice(at) // MINUTE for at in (IN_1H, IN_2H, IN_3H, IN_5H)]
    assert minutes == [0, 5, 20, 5], "at 2 h y is immune, at 5 h it has ended"


def test_draw_is_possible_only_after_all_had_notice() -> None:
    lab = empty_lab()
    lab.submit(run("x", "org", 8, checkpoint="20m"))
    profile = profile_of(lab)
    assert not profile.all_had_notice(IN_2H, IN_2H + 20 * MINUTE - 1)
    assert profile.all_had_notice(IN_2H, IN_2H + 20 * MINUTE)
    assert profile.all_had_notice(NOW, NOW + MINUTE), "nobody can be drawn so soon"


# Which profile holds


def test_provisional_work_is_free_only_for_promises_made_before_it_started() -> None:
    """R6."""
    lab = empty_lab()
    lab.submit(run("long", "org", 4, max_duration="2h"))
    lab.submit(run("old", "org", 8, at=1, max_duration="10h"))
    lab.advance(HOUR)
    lab.submit(run("young", "org", 4, at=HOUR, checkpoint="30m"))
    assert lab["young"].provisional
    assert profile_of(lab, precedence=lab.promise("old").precedence).max_pods(NO_DISRUPTION, IN_1H) == 4
    assert profile_of(lab, precedence=lab.promise("young").precedence).max_pods(NO_DISRUPTION, IN_1H) == 4
    later = (IN_1H + 1, 0, lab["young"].creation_order)
    assert profile_of(lab, precedence=later).max_pods(NO_DISRUPTION, IN_1H) == 0
    assert profile_of(lab).max_pods(NO_DISRUPTION, IN_1H) == 0


def test_profile_without_a_run_counts_its_gpus_as_free() -> None:
    lab = empty_lab()
    lab.submit(run("x", "org", 6), run("y", "org", 2, at=1))
    excluded = frozenset({(NAMESPACE, "x")})
    profile = availability_profile_without(lab.world, domain_of(lab), PodDemand(size=1), excluded)
    assert profile.max_pods(NO_DISRUPTION, NOW) == 6


def test_answers_about_promises_are_valid_again_when_a_trial_is_rolled_back() -> None:
    lab = empty_lab()
    other = promise(lab, "other", 6, IN_1H, None)
    profile = profile_of(lab)
    before = profile.behind_promises(NO_DISRUPTION)
    promise(lab, "tried", 2, IN_1H, None)
    assert profile.behind_promises(NO_DISRUPTION).open_ended_pods(NOW) == 0
    domain_of(lab).set_promise((NAMESPACE, "tried"), None)
    assert profile.behind_promises(NO_DISRUPTION) is before
    assert domain_of(lab).promises == {other.run_key: other}


def test_profile_does_not_count_the_cpu_and_memory_of_a_pod() -> None:
    lab = Lab(node("n", cpu="1"), budget("org", 8))
    lab.submit(run("r", "org", 8, template=template(cpu="2", selector={"gpu.flavor": H100})))
    demand = placement_demand(lab["r"], 8)
    assert (demand.cpu_milli, demand.node_selector) == (0, (("gpu.flavor", H100),))


# Whether a promise can be kept


def test_domain_keeps_a_promise_until_a_node_is_cordoned() -> None:
    """R2."""
    lab = empty_lab(2)
    lab.put(run("r", "org", 16))
    kept = promise(lab, "r", 16, IN_1H, None)
    assert keeps_promise(lab.world, domain_of(lab), kept)
    lab.put(node("nv-a-00", cordoned=True))
    assert not keeps_promise(lab.world, domain_of(lab), kept)


def test_domain_keeps_a_promise_by_lottery_only_after_the_immunity_of_its_runs() -> None:
    lab = empty_lab()
    lab.submit(run("x", "org", 8))
    lab.put(run("r", "org", 8, at=1))
    kept = msgspec.structs.replace(promise(lab, "r", 8, IN_2H, None), disruption=LOTTERY)
    assert keeps_promise(lab.world, domain_of(lab), kept)
    assert not keeps_promise(lab.world, domain_of(lab), msgspec.structs.replace(kept, at=IN_2H - 1))


def test_overdue_promise_is_checked_at_the_present_instant() -> None:
    lab = empty_lab()
    lab.submit(run("x", "org", 8, max_duration="3h"))
    lab.put(run("r", "org", 8, at=1))
    overdue = promise(lab, "r", 8, IN_2H, None)
    assert not keeps_promise(lab.world, domain_of(lab), overdue)
    lab.world.advance_clock(IN_3H)
    assert keeps_promise(lab.world, domain_of(lab), overdue)


def test_promise_without_a_date_is_always_kept() -> None:
    lab = Lab(node("nv-a-00", cordoned=True))
    lab.put(run("r", "org", 8))
    assert keeps_promise(lab.world, domain_of(lab), promise(lab, "r", 8, None, None))
