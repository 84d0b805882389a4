"""Outages are drawn with the requested rates, or read from a file."""

import gzip
from itertools import groupby, pairwise
from operator import attrgetter
from pathlib import Path

import pytest

from jobtree.api.schema.problems import InputError
from jobtree.api.schema.quantities import DAY, HOUR
from jobtree.simulation.cluster.node_faults import faults_between
from jobtree.simulation.inputs.outages import (
    NEVER,
    Outage,
    OutageRates,
    cluster_outages,
    draw_cluster_outages,
    draw_replay_outages,
    joined,
    parse_rates,
    read_outages,
    replay_outages,
)

FLEET = {f"n{number:03d}": f"d{number // 8}" for number in range(200)}
YEARS = 20 * 365 * DAY
NODES_ONLY = OutageRates(flapping=0.0, domain_interval=None)


def by_node(outages: list[Outage[str]]) -> dict[str, list[Outage[str]]]:
    listed = groupby(sorted(outages), attrgetter("node"))
    return {node: list(group) for node, group in listed}


def gaps(outages: list[Outage[str]]) -> list[int]:
    """The times between the outages of each node."""
    return [
        later.start - earlier.end for own in by_node(outages).values() for earlier, later in pairwise(own)
    ]


# Drawn for a simulated cluster


def test_default_rates_are_those_of_the_recorded_fleet() -> None:
    """A node fails once in 239 days, for a median of 20 hours and a p90 of 312."""
    outages = draw_cluster_outages(7, FLEET, YEARS, NODES_ONLY)
    hours = sorted((end - start) / HOUR for _, start, end in outages if end < YEARS)
    times_up = gaps(outages)
    assert sum(times_up) / len(times_up) / DAY == pytest.approx(239, rel=0.05)
    assert hours[len(hours) // 2] == pytest.approx(20, rel=0.1)
    assert hours[len(hours) * 9 // 10] == pytest.approx(312, rel=0.15)


def test_same_seed_draws_the_same_outages() -> None:
    first = draw_cluster_outages(7, FLEET, YEARS // 10)
    assert first == draw_cluster_outages(7, FLEET, YEARS // 10)
    assert first != draw_cluster_outages(8, FLEET, YEARS // 10)


def test_draws_are_the_same_in_every_version() -> None:
    """A seed draws the same outages in every version of Jobtree."""
    assert draw_cluster_outages(7, {"a": "d"}, 2 * 365 * DAY)[:2] == [
        Outage("a", 20_007_709_239, 21_535_697_153),
        Outage("a", 21_535_832_806, 41_124_663_711),
    ]
    rates = parse_rates("239d/20h/312h")
    assert rates is not None
    assert draw_replay_outages(rates, 2, 0, 365 * DAY, seed=1)[:2] == [
        Outage(0, 24_837_674_867, 24_847_064_009),
        Outage(1, 25_430_039_310, 25_460_528_211),
    ]


def test_outages_of_a_node_do_not_depend_on_other_nodes() -> None:
    few = {"n005": "d0", "n001": "d0"}
    whole = by_node(draw_cluster_outages(7, FLEET, YEARS))
    assert by_node(draw_cluster_outages(7, few, YEARS)) == {node: whole[node] for node in sorted(few)}


def test_two_steps_have_the_faults_of_one_step() -> None:
    middle, end = 2 * 365 * DAY, 4 * 365 * DAY
    outages = draw_cluster_outages(7, FLEET, end)
    first = faults_between(draw_cluster_outages(7, FLEET, middle), 365 * DAY, middle)
    second = [fault for fault in faults_between(outages, middle, end) if fault.at > middle]
    assert [*first, *second] == faults_between(outages, 365 * DAY, end)


def test_faster_rates_give_more_outages() -> None:
    few, many = (
        draw_cluster_outages(3, FLEET, YEARS // 4, rates) for rates in (NODES_ONLY, NODES_ONLY.faster(5))
    )
    assert 3.5 < len(many) / len(few) < 6


def test_nodes_flap_with_the_requested_probability() -> None:
    outages = draw_cluster_outages(1, FLEET, YEARS // 2, OutageRates(flapping=0.5, domain_interval=None))
    times_up = gaps(outages)
    assert 0.4 < sum(gap < HOUR for gap in times_up) / len(times_up) < 0.6


def test_all_nodes_of_a_domain_fail_at_one_instant() -> None:
    rates = OutageRates(interval=1e12 * DAY, domain_interval=1000 * DAY, flapping=0.0)
    outages = draw_cluster_outages(1, FLEET, YEARS, rates)
    assert outages
    for _, group in groupby(outages, attrgetter("start")):
        nodes = {outage.node for outage in group}
        domains = {FLEET[node] for node in nodes}
        assert nodes == {node for node, domain in FLEET.items() if domain in domains}


# Drawn for a replay


def test_outages_of_a_replay_have_the_requested_rates() -> None:
    rates = parse_rates("239d/20h/312h")
    assert rates is not None
    outages = draw_replay_outages(rates, 2_000, 0, 239 * DAY, seed=1)
    assert 1_600 < len(outages) < 2_100
    downs = sorted(outage.end - outage.start for outage in outages)
    assert 15 * HOUR < downs[len(downs) // 2] < 25 * HOUR
    assert 250 * HOUR < downs[len(downs) * 9 // 10] < 380 * HOUR
    assert outages != draw_replay_outages(rates, 2_000, 0, 239 * DAY, seed=2)


@pytest.mark.parametrize("text", ["outages.csv", "a/b/c.csv", "2024/jobs", "1d/2h"])
def test_text_without_rates_is_a_file(text: str) -> None:
    assert parse_rates(text) is None


@pytest.mark.parametrize("text", ["1d/2h/1h", "1d/2h/2h", "0s/2h/3h", "1d/0s/1h", "1d/2h/soon"])
def test_rates_that_cannot_be_drawn_from_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="--faults"):
        parse_rates(text)


def test_outages_of_one_node_that_touch_are_joined() -> None:
    outages = [Outage(0, 5, 9), Outage(1, 6, 7), Outage(0, 1, 6), Outage(2, 3, 3), Outage(1, 7, 8)]
    assert joined(outages) == [Outage(0, 1, 9), Outage(1, 6, 8)]


# Read from a file


def write(path: Path, *lines: str) -> str:
    path.write_text("\n".join(["node,start_s,end_s,desc", *lines]) + "\n")
    return str(path)


def test_outages_of_a_file_are_taken_by_the_name_of_the_node(tmp_path: Path) -> None:
    path = write(tmp_path / "o.csv", "b,10,20,fan", "a,5,7.5,", "z,1,2,another node")
    assert cluster_outages(path, ["a", "b", "c"], 1000) == [
        Outage("a", 6000, 8500),
        Outage("b", 11_000, 21_000),
    ]


def test_nodes_of_other_names_are_taken_in_their_order(tmp_path: Path) -> None:
    path = write(tmp_path / "o.csv", "n07,10,20,", "n03,5,7,", "n09,1,2,")
    assert cluster_outages(path, ["gpu-b", "gpu-a"], 0) == [
        Outage("gpu-a", 5_000, 7_000),
        Outage("gpu-b", 10_000, 20_000),
    ]


def test_replay_takes_as_many_nodes_of_a_file_as_it_has(tmp_path: Path) -> None:
    path = write(tmp_path / "o.csv", "a,1,2,x", "b,3,4,x", "c,5,6,x")
    assert len(replay_outages(path, 10)) == 3
    assert {outage.node for outage in replay_outages(path, 2)} == {0, 1}


def test_outage_without_an_end_never_ends(tmp_path: Path) -> None:
    path = write(tmp_path / "o.csv", "a,5,,")
    assert cluster_outages(path, ["a"], 0) == [Outage("a", 5_000, NEVER)]
    assert replay_outages(path, 1) == [Outage(0, 5_000, NEVER)]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "these are missing: node, start_s, end_s"),
        ("node,start_s\na,1\n", "names its columns; these are missing: end_s"),
        ("node,start_s,end_s\n", "there are no rows with outages"),
        ("node,start_s,end_s\na,x,2\n", 'line 2: start_s: "x" is not allowed: must be a number of seconds'),
        ("node,start_s,end_s\na,inf,9\n", "line 2: start_s"),
        ("node,start_s,end_s\na,5,2\n", 'end_s: "2" is not allowed: must not be before start_s 5'),
        ("node,start_s,end_s\na,-5,2\n", 'start_s: "-5" is not allowed: must not be negative'),
        (f"node,start_s,end_s\na,5,{'9' * 5_000}\n", "must be less than 1000000000"),
        (f"node,start_s,end_s\n{'a' * 200_000},5,6\n", "is not CSV"),
    ],
)
def test_bad_files_are_refused_with_their_line(tmp_path: Path, text: str, rule: str) -> None:
    path = tmp_path / "faults.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=rule):
        read_outages(str(path))


def test_file_may_be_compressed(tmp_path: Path) -> None:
    path = tmp_path / "faults.csv.gz"
    whole = gzip.compress(b"\xef\xbb\xbfnode,start_s,end_s\n" + b"a,1,2.5\n" * 500)
    path.write_bytes(whole)
    assert replay_outages(str(path), 1) == [Outage(0, 1_000, 2_500)]
    for broken in (whole[:30], whole[:20] + bytes(9) + whole[29:], b"\x1f\x8b no more"):
        path.write_bytes(broken)
        with pytest.raises(InputError, match="cannot be read"):
            read_outages(str(path))
    with pytest.raises(InputError, match="there is no such file"):
        read_outages(str(tmp_path / "missing"))
