"""Of slices that are equally early, the one that takes least from others is promised (R1)."""

from itertools import combinations
from random import Random

from jobtree.api.schema.quantities import HOUR, MINUTE
from jobtree.core.availability.slice_cost import fewest_stopped
from tests.unit.core.build import budget, nodes, run
from tests.unit.core.lab import Lab


def slice_of(lab: Lab, name: str) -> dict[str, int]:
    """Returns the GPUs promised in each domain, by the last part of its name."""
    return {domain.rpartition("/")[2]: gpus for domain, gpus in lab.promise(name).domain_gpus}


def two_domains(*runs_in_order: int) -> Lab:
    """Two domains of 16 nodes with Runs of team a, oldest first; two hours later they can be drawn."""
    lab = Lab(nodes("nv-a", 16), nodes("nv-b", 16), budget("org:a", 256), budget("org:b", 256))
    for number, gpus in enumerate(runs_in_order):
        lab.submit(run(f"old-{number}", "org:a", gpus, at=number))
    lab.advance(2 * HOUR)
    return lab


def test_grouped_run_is_promised_the_one_domain_whose_lottery_stops_fewer_gpus() -> None:
    """Scenario 21: a lottery in the first domain would stop a Run of 128 GPUs."""
    lab = two_domains(128, 64)
    lab.submit(run("gang", "org:b", 96, group=32, at=2 * HOUR))
    assert slice_of(lab, "gang") == {"nv-b": 96}
    assert lab.forecast("gang").conflict_set() == [lab["old-1"]]


def test_ungrouped_run_is_promised_the_domain_whose_lottery_stops_fewer_gpus() -> None:
    """Both domains are full. The first one has a Run of 128; in the second one a Run of 64 is enough."""
    lab = two_domains(128, 64, 64)
    lab.submit(run("gang", "org:b", 64, at=2 * HOUR))
    assert slice_of(lab, "gang") == {"nv-b": 64}


def test_several_domains_are_promised_where_one_alone_would_stop_more() -> None:
    """64 GPUs are free in one domain and 32 in another. The rest costs a Run of 32 in the third one."""
    lab = Lab(
        nodes("nv-a", 16), nodes("nv-b", 16), nodes("nv-c", 16), budget("org:a", 512), budget("org:b", 512)
    )
    for name, gpus in (("wide", 96), ("fills-a", 32), ("mid", 64), ("fills-b", 64)):
        lab.submit(run(name, "org:a", gpus))
    for number in range(4):
        lab.submit(run(f"small-{number}", "org:a", 32, at=number))
    lab.advance(2 * HOUR)
    lab.finish("fills-a", "fills-b")
    lab.submit(run("gang", "org:b", 128, group=32, at=2 * HOUR))
    assert slice_of(lab, "gang") == {"nv-a": 32, "nv-b": 64, "nv-c": 32}


def test_one_domain_is_promised_before_several_that_cost_as_much() -> None:
    lab = Lab(nodes("nv-a", 4), nodes("nv-b", 8), budget("org", 1_000))
    lab.submit(run("first", "org", 32, max_duration="1h"))
    lab.submit(run("second", "org", 64, max_duration="1h"))
    lab.submit(run("gang", "org", 64, group=16, at=1))
    assert (lab.promised_at("gang"), slice_of(lab, "gang")) == (HOUR, {"nv-b": 64})


def test_groups_that_no_domain_holds_are_promised_few_domains_the_fullest_first() -> None:
    lab = Lab(nodes("nv-a", 6), nodes("nv-b", 12), nodes("nv-c", 8), budget("org", 1_000))
    for name, gpus in (("first", 48), ("second", 96), ("third", 64)):
        lab.submit(run(name, "org", gpus, max_duration="1h"))
    lab.submit(run("gang", "org", 128, group=32, at=1))
    assert (lab.promised_at("gang"), len(slice_of(lab, "gang"))) == (HOUR, 2)


def test_spares_are_taken_before_a_run_shrinks() -> None:
    """One domain has a malleable Run, the other one a Run with as many spare GPUs."""
    lab = Lab(nodes("nv-a", 8), nodes("nv-b", 8), budget("org:a", 256), budget("org:b", 256))
    lab.submit(run("shrinks", "org:a", 64, malleable=(32, 64, 16), checkpoint="30m"))
    lab.submit(run("spares", "org:a", 32, per_pod=8, spares=4, at=1))
    assert (lab["shrinks"].width, lab.spares("spares")) == (64, 32)
    lab.advance(MINUTE)
    lab.submit(run("small", "org:b", 16, at=MINUTE))
    assert [kind for kind, _, _ in lab.remedies("small")] == ["DropSpares"]


def test_fewest_stopped_is_a_choice_of_runs_that_suffices_and_is_near_the_best() -> None:
    dice = Random(21)
    exact, tries = 0, 1_000
    for _ in range(tries):
        gives = [dice.choice((1, 2, 4, 8, 16, 32, 64, 128)) for _ in range(dice.randint(1, 6))]
        runs = [(gpus, gpus + dice.choice((0, 0, 8, 64))) for gpus in gives]
        need = dice.randint(1, sum(gives))
        best = min(
            sum(stops for _, stops in some)
            for count in range(1, len(runs) + 1)
            for some in combinations(runs, count)
            if sum(gpus for gpus, _ in some) >= need
        )
        stopped = fewest_stopped(runs, need)
        assert best <= stopped <= 2 * best, (runs, need)
        exact += stopped == best
    assert exact > 3 * tries // 4
