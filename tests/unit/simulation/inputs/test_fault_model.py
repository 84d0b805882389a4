"""Faults: drawn outages have the rates they claim, replayed ones are those of the file, and both happen."""

import gzip
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest

from jobtree.api.schema.quantities import HOUR, SECOND
from jobtree.simulation.inputs.fault_model import (
    DAY,
    NEVER,
    Fault,
    FaultFileError,
    FaultRates,
    NodeDowntime,
    draw_downtimes,
    faults,
    inject,
    merge_downtimes,
    recorded,
)

FLEET = {f"n{number:03d}": f"d{number // 8}" for number in range(400)}
YEARS = 20 * 365 * DAY
ALONE = FaultRates(flapping=0.0, domain_days=1e12)


def test_a_node_fails_once_in_239_days_for_hours_whose_median_and_tenth_are_those_of_the_record() -> None:
    down = draw_downtimes(7, FLEET, YEARS, ALONE)
    outages = [outage for listed in down.values() for outage in listed if outage.end < YEARS]
    hours = sorted((end - start) / HOUR for start, end in outages)
    up = sum(later.start - earlier.end for listed in down.values() for earlier, later in pairwise(listed))
    gaps = sum(len(listed) - 1 for listed in down.values())
    assert up / gaps / DAY == pytest.approx(239, rel=0.05)
    assert hours[len(hours) // 2] == pytest.approx(20, rel=0.1)
    assert hours[len(hours) * 9 // 10] == pytest.approx(312, rel=0.15)


def test_the_same_seed_gives_the_same_outages_and_another_gives_others() -> None:
    assert draw_downtimes(7, FLEET, YEARS) == draw_downtimes(7, FLEET, YEARS)
    assert draw_downtimes(7, FLEET, YEARS) != draw_downtimes(8, FLEET, YEARS)


def test_a_nodes_outages_do_not_depend_on_who_else_is_there() -> None:
    few = {"n005": "d0", "n001": "d0"}
    whole = draw_downtimes(7, FLEET, YEARS)
    assert draw_downtimes(7, few, YEARS) == {node: whole[node] for node in few}


def test_two_steps_see_what_one_step_sees() -> None:
    middle, end = 2 * 365 * DAY, 4 * 365 * DAY
    down = draw_downtimes(7, FLEET, end)
    whole = faults(down, 365 * DAY, end)
    first = faults(draw_downtimes(7, FLEET, middle), 365 * DAY, middle)
    second = [one for one in faults(down, middle, end) if one.at > middle]
    assert [*first, *second] == whole


def test_a_faster_rate_gives_more_outages_as_long_as_before() -> None:
    calm, wild = (draw_downtimes(3, FLEET, YEARS, rates) for rates in (ALONE, ALONE.faster(5)))
    count = [sum(map(len, down.values())) for down in (calm, wild)]
    assert 3.5 < count[1] / count[0] < 6


def test_nodes_flap_as_often_as_asked() -> None:
    down = draw_downtimes(1, FLEET, YEARS, FaultRates(flapping=0.5, domain_days=1e12))
    gaps = [later.start - earlier.end for listed in down.values() for earlier, later in pairwise(listed)]
    assert 0.4 < sum(gap < HOUR for gap in gaps) / len(gaps) < 0.6


def test_all_nodes_of_a_domain_fail_at_one_instant() -> None:
    down = draw_downtimes(1, FLEET, YEARS, FaultRates(node_days=1e12, domain_days=1000, flapping=0.0))
    starts = {outage.start: set[str]() for listed in down.values() for outage in listed}
    for node, listed in down.items():
        for outage in listed:
            starts[outage.start].add(node)
    assert starts
    assert all(
        nodes == {n for n, d in FLEET.items() if d in {FLEET[m] for m in nodes}} for nodes in starts.values()
    )


def test_outages_that_touch_are_one() -> None:
    assert merge_downtimes(
        [NodeDowntime(5, 9), NodeDowntime(1, 3), NodeDowntime(3, 4), NodeDowntime(8, 12)]
    ) == [NodeDowntime(1, 4), NodeDowntime(5, 12)]


def test_who_is_down_when_a_step_begins_fails_then_and_who_stays_down_does_not_heal() -> None:
    down = {
        "a": [NodeDowntime(5, 20)],
        "b": [NodeDowntime(12, 100)],
        "c": [NodeDowntime(1, 10)],
        "d": [NodeDowntime(31, 40)],
    }
    assert faults(down, 10, 30) == [Fault(10, "fail", "a"), Fault(12, "fail", "b"), Fault(20, "heal", "a")]


# Replayed


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(["node,start_s,end_s,desc", *lines]) + "\n")
    return path


def test_a_file_is_replayed_by_name_from_its_zero(tmp_path: Path) -> None:
    path = write(tmp_path / "o.csv", "b,10,20,fan", "a,5,7.5,", "z,1,2,not ours")
    assert recorded(path, ["a", "b", "c"], 1000) == {
        "a": [NodeDowntime(6000, 8500)],
        "b": [NodeDowntime(11_000, 21_000)],
    }


def test_nodes_of_other_names_are_replayed_in_their_order(tmp_path: Path) -> None:
    path = write(tmp_path / "o.csv", "n07,10,20,", "n03,5,7,", "n09,1,2,")
    assert list(recorded(path, ["gpu-b", "gpu-a"], 0)) == ["gpu-a", "gpu-b"]
    assert recorded(path, ["gpu-a", "gpu-b"], 0)["gpu-a"] == [NodeDowntime(5 * SECOND, 7 * SECOND)]


def test_a_file_may_be_compressed_and_an_outage_without_an_end_never_ends(tmp_path: Path) -> None:
    path = tmp_path / "o.csv.gz"
    path.write_bytes(gzip.compress(b"node,start_s,end_s\na,5,\n"))
    assert recorded(path, ["a"], 0) == {"a": [NodeDowntime(5 * SECOND, NEVER)]}
    assert faults(recorded(path, ["a"], 0), 0, DAY) == [Fault(5 * SECOND, "fail", "a")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no column end_s, node, start_s"),
        ("node,start_s\na,5\n", "has no column end_s"),
        ("node,start_s,end_s\na,5,9\nb,soon,9\n", "line 3: start_s 'soon'"),
        ("node,start_s,end_s\na,inf,9\n", "line 2"),
        ("node,start_s,end_s\na,9,5\n", "line 2: end_s 5 is before start_s 9"),
    ],
)
def test_a_file_that_is_wrong_says_where(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "o.csv"
    path.write_text(text)
    with pytest.raises(FaultFileError, match=r"o\.csv") as broken:
        recorded(path, ["a"], 0)
    assert said in str(broken.value)


def test_a_file_that_is_no_archive_says_so(tmp_path: Path) -> None:
    path = tmp_path / "o.csv.gz"
    path.write_text("plain")
    with pytest.raises(FaultFileError, match="cannot read"):
        recorded(path, ["a"], 0)


# Let loose


class Puppet:
    """A fleet that writes down what is done to it."""

    def __init__(self) -> None:
        self.now = 0
        self.down: set[str] = set()
        self.log: list[tuple[int, str, list[str]]] = []

    def advance(self, until: int) -> None:
        assert until >= self.now
        self.now = until

    def fail(self, nodes: Iterable[str]) -> None:
        self.log.append((self.now, "fail", list(nodes)))
        self.down |= set(nodes)

    def heal(self, nodes: Iterable[str]) -> None:
        self.log.append((self.now, "heal", list(nodes)))
        self.down -= set(nodes)

    def is_failed(self, node: str) -> bool:
        return node in self.down


def test_faults_of_one_instant_happen_at_once_and_time_passes_between_and_after() -> None:
    puppet = Puppet()
    told = inject(puppet, [Fault(5, "fail", "a"), Fault(5, "fail", "b"), Fault(9, "heal", "a")], 20)
    assert puppet.log == [(5, "fail", ["a", "b"]), (9, "heal", ["a"])]
    assert (len(told), puppet.now) == (3, 20)


def test_a_node_that_is_down_already_does_not_fail_and_one_that_is_up_does_not_heal() -> None:
    puppet = Puppet()
    puppet.down = {"a"}
    assert inject(puppet, [Fault(5, "fail", "a"), Fault(6, "heal", "b")], 9) == []
    assert puppet.log == []
