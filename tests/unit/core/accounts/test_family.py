"""The siblings, parents and further ancestors of an owner (C1), and the order of payers (C2)."""

import pytest

from jobtree.core.accounts.family import Family
from tests.unit.core.build import budget

Parents = dict[str, list[str] | None]  # owner: what its Budget says of its parents


def family(owners: Parents) -> Family:
    return Family(budget(owner, parents=parents).spec for owner, parents in owners.items())


def by_path(*owners: str) -> Parents:
    return dict.fromkeys(owners)


TIERS = [
    pytest.param(by_path("org"), "org", [["org"], [], []], id="alone"),
    pytest.param(
        by_path("org", "org:ai", "org:ai:rai", "org:ai:mm"),
        "org:ai:rai",
        [["org:ai:rai"], ["org:ai:mm"], ["org:ai"], ["org"]],
        id="itself, siblings, parent, grandparent",
    ),
    pytest.param(
        by_path("org", "org:ai:rai"),
        "org:ai:rai",
        [["org:ai:rai"], [], ["org"]],
        id="the longest prefix that has a Budget is the parent",
    ),
    pytest.param(
        by_path("org", "org:ai:rai", "org:hw"),
        "org:ai:rai",
        [["org:ai:rai"], ["org:hw"], ["org"]],
        id="siblings are whoever shares that parent, however deep",
    ),
    pytest.param(
        by_path("org:ai", "org:air"),
        "org:air",
        [["org:air"], [], []],
        id="a prefix ends at a colon",
    ),
    pytest.param(
        by_path("org:ai:rai", "org:ai:mm"),
        "org:ai:rai",
        [["org:ai:rai"], [], []],
        id="without a common parent there are no siblings",
    ),
    pytest.param(
        by_path("org:ai:rai", "org:ai:rai:sys"),
        "org:ai:rai",
        [["org:ai:rai"], [], []],
        id="children are no payers",
    ),
    pytest.param(
        {"org": None, "lab": None, "org:ai": ["lab"]},
        "org:ai",
        [["org:ai"], [], ["lab"]],
        id="declared parents replace the path",
    ),
    pytest.param(
        {"org": None, "lab": None, "org:ai": ["org", "lab"], "lab:x": None, "org:y": None},
        "org:ai",
        [["org:ai"], ["lab:x", "org:y"], ["lab", "org"]],
        id="with two parents there are siblings on both sides",
    ),
    pytest.param(
        {"org": None, "org:ai": []},
        "org:ai",
        [["org:ai"], [], []],
        id="an empty list means no parents",
    ),
    pytest.param(
        {"org": None, "org:ai": ["gone"]},
        "org:ai",
        [["org:ai"], [], []],
        id="an edge needs a Budget at both ends",
    ),
    pytest.param(
        by_path("org", "org:ai", "org:ai:rai"),
        "org:ai:new",
        [["org:ai:new"], [], ["org:ai"]],
        id="an owner without a Budget has its parent and nobody else",
    ),
    pytest.param(by_path("org:ai"), "lab", [["lab"], [], []], id="nor a parent where no prefix has a Budget"),
    pytest.param(
        {"a": [], "b": ["a"], "c": ["b"], "d": ["c", "a"]},
        "d",
        [["d"], ["b"], ["a", "c"]],
        id="who is near on one side is not asked again further off",
    ),
]


@pytest.mark.parametrize(("owners", "owner", "tiers"), TIERS)
def test_payers_come_by_tier_nearest_first(owners: Parents, owner: str, tiers: list[list[str]]) -> None:
    assert family(owners).tiers(owner) == tiers


@pytest.mark.parametrize(("owners", "owner", "tiers"), TIERS)
def test_the_order_of_budgets_does_not_matter(owners: Parents, owner: str, tiers: list[list[str]]) -> None:
    assert family(dict(reversed(owners.items()))).tiers(owner) == tiers


def test_parents_of_an_owner_are_those_of_all_its_budgets() -> None:
    specs = [budget("x", name="one", parents=["a"]), budget("x", name="two", parents=["b"])]
    found = Family(one.spec for one in [*specs, budget("a"), budget("b")])
    assert found.parents["x"] == ("a", "b")


@pytest.mark.parametrize(
    ("owners", "cycle"),
    [
        pytest.param({"a": ["b"], "b": ["a"]}, ["a", "b", "a"], id="of two"),
        pytest.param({"a": ["b"], "b": ["c"], "c": ["a"]}, ["a", "b", "c", "a"], id="of three"),
        pytest.param({"org": ["org:ai"], "org:ai": None}, ["org", "org:ai", "org"], id="with a path in it"),
        pytest.param({"x": ["a"], "a": ["b"], "b": ["a"]}, ["a", "b", "a"], id="with a tail"),
        pytest.param({"a": [], "b": ["a"], "c": ["a", "b"]}, None, id="two ways up are no cycle"),
        pytest.param(by_path("org", "org:ai", "org:ai:rai"), None, id="paths are no cycle"),
    ],
)
def test_a_cycle_of_parents_is_found(owners: Parents, cycle: list[str] | None) -> None:
    assert family(owners).cycle() == cycle
