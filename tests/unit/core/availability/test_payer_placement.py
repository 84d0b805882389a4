"""A promise is made where those who will pay for it pay (C3, R2)."""

from jobtree.api.schema.quantities import HOUR
from tests.unit.core.build import budget, envelope, node, nodes, run
from tests.unit.core.lab import Lab


def only(domain: str, gpus: int, name: str = "main") -> dict[str, object]:
    return envelope(gpus, name, selector={"fabric.domain": domain})


def islands(*envelopes: dict[str, object]) -> Lab:
    """One island is free in an hour, the other in two."""
    lab = Lab(nodes("nv-a", 1), nodes("nv-b", 1), budget("rich", 64), budget("org", *envelopes))
    lab.submit(run("short", "rich", 8, max_duration="1h"), run("long", "rich", 8, at=1, max_duration="2h"))
    assert (lab.on("short"), lab.on("long")) == ({"nv-a-00": 8}, {"nv-b-00": 8})
    return lab


def test_the_slice_is_where_the_money_is_even_if_that_is_later() -> None:
    lab = islands(only("nv-b", 8), only("nv-a", 2, "small"))
    lab.submit(run("r", "org", 8, at=2))
    assert (lab.promised_at("r"), lab.promise("r").domain_gpus) == (2 * HOUR, (("us/a/nv-b", 8),))
    lab.live(2 * HOUR)
    assert (lab.paid("r"), lab.on("r")) == ({"Owned org/main": 8}, {"nv-b-00": 8})


def test_money_that_pays_anywhere_adds_to_money_that_pays_here() -> None:
    lab = islands(only("nv-a", 4), envelope(4, "any"))
    lab.submit(run("r", "org", 8, at=2, per_pod=4))
    assert (lab.promised_at("r"), lab.promise("r").domain_gpus) == (HOUR, (("us/a/nv-a", 8),))
    lab.live(HOUR)
    assert lab.paid("r") == {"Owned org/main": 4, "Owned org/any": 4}


def test_where_nobody_pays_there_is_no_date_and_no_money_is_kept() -> None:
    lab = islands(only("nv-c", 8), only("nv-a", 2, "small"))
    lab.submit(run("r", "org", 8, at=2))
    assert (lab.promised_at("r"), lab.promise("r").funding) == (None, ())
    assert lab.forecast("r").remedies[0].message == "raise envelope org/small by 6 GPUs"
    lab.put(node("nv-c-00", "nv-c"))
    lab.settle()
    assert lab.paid("r") == {"Owned org/main": 8}


def test_groups_are_promised_each_where_another_envelope_pays() -> None:
    lab = islands(only("nv-a", 8), only("nv-b", 8, "other"))
    lab.submit(run("r", "org", 16, at=2, group=8))
    assert lab.promised_at("r") == 2 * HOUR
    lab.live(2 * HOUR)
    assert lab.paid("r") == {"Owned org/main": 8, "Owned org/other": 8}


def test_a_promise_whose_payer_moves_to_another_island_moves_too() -> None:
    lab = islands(only("nv-a", 8))
    lab.submit(run("r", "org", 8, at=2))
    assert lab.promised_at("r") == HOUR
    lab.put(budget("org", only("nv-b", 8)))
    lab.settle()
    assert (lab.promised_at("r"), lab.promise("r").domain_gpus) == (2 * HOUR, (("us/a/nv-b", 8),))
    assert [slip.reason for slip in lab.promise("r").slips] == ["FundingLost"]


def test_money_that_pays_anywhere_pays_for_the_part_where_other_money_does_not() -> None:
    lab = islands(envelope(8, "any"), only("nv-b", 8))
    lab.submit(run("r", "org", 16, at=2, group=8))
    assert lab.promised_at("r") == 2 * HOUR
    lab.live(2 * HOUR)
    assert lab.paid("r") == {"Owned org/any": 8, "Owned org/main": 8}
