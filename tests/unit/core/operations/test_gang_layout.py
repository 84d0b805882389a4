"""Where the groups of a gang go: one domain if one holds and pays all, else few (C2, P3, P4, P5)."""

from jobtree.api.schema.quantities import HOUR
from tests.unit.core.build import budget, envelope, node, nodes, run
from tests.unit.core.lab import Lab


def domains_of(lab: Lab, name: str) -> list[str]:
    """Returns the domain of each group, in order."""
    return [where for _, (where,) in sorted(lab.domains(name).items())]


def test_gang_goes_to_the_one_domain_that_holds_all_its_groups() -> None:
    lab = Lab(nodes("nv-a", 16), nodes("nv-b", 16), budget("org", 1_000))
    lab.submit(run("first", "org", 80))
    assert lab.domains("first") == {0: {"nv-a"}}
    lab.submit(run("gang", "org", 128, group=32, at=1))
    assert domains_of(lab, "gang") == ["nv-b"] * 4


def test_gang_that_one_domain_in_use_holds_leaves_the_fresh_ones_whole() -> None:
    lab = Lab(nodes("nv-a", 16), nodes("nv-b", 16), budget("org", 1_000))
    lab.submit(run("first", "org", 8))
    lab.submit(run("gang", "org", 96, group=32, at=1))
    assert domains_of(lab, "gang") == ["nv-a"] * 3


def test_gang_that_no_domain_holds_goes_to_as_few_as_possible_the_fullest_first() -> None:
    lab = Lab(nodes("nv-a", 6), nodes("nv-b", 12), nodes("nv-c", 8), budget("org", 1_000))
    lab.submit(run("gang", "org", 128, group=32))
    assert domains_of(lab, "gang") == ["nv-a", "nv-b", "nv-b", "nv-b"]


def test_gang_is_split_where_one_domain_holds_it_only_without_its_spares() -> None:
    lab = Lab(nodes("nv-a", 8), nodes("nv-b", 8), budget("org", 1_000))
    lab.submit(run("gang", "org", 64, group=32, spares=1))
    assert (domains_of(lab, "gang"), lab.spares("gang")) == (["nv-a", "nv-b"], 16)


def test_gang_is_split_where_its_own_team_can_pay_only_in_both_domains() -> None:
    """In one domain a sponsor would have to pay for the second group."""
    lab = Lab(
        [node(f"a{n}", "nv-a", labels={"zone": "a"}) for n in range(8)],
        [node(f"b{n}", "nv-b", labels={"zone": "b"}) for n in range(8)],
        budget(
            "org",
            envelope(32, "in-a", selector={"zone": "a"}),
            envelope(32, "in-b", selector={"zone": "b"}),
        ),
        budget("lender", envelope(64, lending={"allow": True, "to": ["*"]})),
    )
    lab.submit(run("gang", "org", 64, group=32, sponsors=["lender"]))
    assert domains_of(lab, "gang") == ["nv-a", "nv-b"]
    assert lab.paid("gang") == {"Owned org/in-a": 32, "Owned org/in-b": 32}


def test_gang_goes_to_the_one_domain_where_its_own_team_pays_for_all() -> None:
    lab = Lab(
        [node(f"a{n}", "nv-a") for n in range(8)],
        [node(f"b{n}", "nv-b", labels={"zone": "b"}) for n in range(8)],
        budget("org", envelope(64, selector={"zone": "b"})),
        budget("lender", envelope(64, lending={"allow": True, "to": ["*"]})),
    )
    lab.submit(run("gang", "org", 64, group=32, sponsors=["lender"]))
    assert (domains_of(lab, "gang"), lab.paid("gang")) == (["nv-b"] * 2, {"Owned org/main": 64})


def test_run_that_starts_as_promised_leaves_the_node_that_a_later_promise_needs_whole() -> None:
    """The best packing of ``ones`` is beside ``twos``, but that node is promised whole to ``eight``."""
    lab = Lab(nodes("nv-a", 3), budget("org", 1_000))
    lab.submit(run("full", "org", 24, max_duration="1h"))
    lab.submit(run("twos", "org", 6, at=1, per_pod=2, max_duration="1h"))
    lab.submit(run("ones", "org", 15, at=2, per_pod=1, max_duration="16h"))
    lab.submit(run("eight", "org", 8, at=3, max_duration="16h"))
    assert [lab.promised_at(name) for name in ("twos", "ones", "eight")] == [HOUR, HOUR, 2 * HOUR]
    lab.live(2 * HOUR)
    assert lab["eight"].phase == "Running", lab.story
    assert not [line for line in lab.story if "CrowdedOut" in line]
