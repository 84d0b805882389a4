"""A promise is made in domains where the payers of the Run pay (C3, R2)."""

from jobtree.api.schema.quantities import HOUR
from tests.unit.core.build import budget, envelope, node, nodes, run
from tests.unit.core.lab import Lab


def envelope_in(domain: str, gpus: int, name: str = "main") -> dict[str, object]:
    return envelope(gpus, name, selector={"fabric.domain": domain})


def lab_with_two_domains(*envelopes: dict[str, object]) -> Lab:
    """Two domains of one node: nv-a is free in an hour, nv-b in two hours."""
    lab = Lab(nodes("nv-a", 1), nodes("nv-b", 1), budget("rich", 64), budget("org", *envelopes))
    lab.submit(run("short", "rich", 8, max_duration="1h"), run("long", "rich", 8, at=1, max_duration="2h"))
    assert (lab.on("short"), lab.on("long")) == ({"nv-a-00": 8}, {"nv-b-00": 8})
    return lab


def test_promise_waits_for_the_domain_where_its_payer_pays() -> None:
    lab = lab_with_two_domains(envelope_in("nv-b", 8), envelope_in("nv-a", 2, "small"))
    lab.submit(run("r", "org", 8, at=2))
    assert (lab.promised_at("r"), lab.promise("r").domain_gpus) == (2 * HOUR, (("us/a/nv-b", 8),))
    lab.live(2 * HOUR)
    assert (lab.paid("r"), lab.on("r")) == ({"Owned org/main": 8}, {"nv-b-00": 8})


def test_promise_combines_a_payer_of_one_domain_with_one_that_pays_anywhere() -> None:
    lab = lab_with_two_domains(envelope_in("nv-a", 4), envelope(4, "any"))
    lab.submit(run("r", "org", 8, at=2, per_pod=4))
    assert (lab.promised_at("r"), lab.promise("r").domain_gpus) == (HOUR, (("us/a/nv-a", 8),))
    lab.live(HOUR)
    assert lab.paid("r") == {"Owned org/main": 4, "Owned org/any": 4}


def test_promise_has_no_date_and_reserves_no_budget_when_no_domain_has_a_payer() -> None:
    lab = lab_with_two_domains(envelope_in("nv-c", 8), envelope_in("nv-a", 2, "small"))
    lab.submit(run("r", "org", 8, at=2))
    assert (lab.promised_at("r"), lab.promise("r").funding) == (None, ())
    assert lab.forecast("r").remedies[0].message == "raise envelope org/small by 6 GPUs"
    lab.put(node("nv-c-00", "nv-c"))
    lab.settle()
    assert lab.paid("r") == {"Owned org/main": 8}


def test_groups_are_promised_in_different_domains_when_each_has_its_own_payer() -> None:
    lab = lab_with_two_domains(envelope_in("nv-a", 8), envelope_in("nv-b", 8, "other"))
    lab.submit(run("r", "org", 16, at=2, group=8))
    assert lab.promised_at("r") == 2 * HOUR
    lab.live(2 * HOUR)
    assert lab.paid("r") == {"Owned org/main": 8, "Owned org/other": 8}


def test_promise_moves_when_its_payer_moves_to_another_domain() -> None:
    lab = lab_with_two_domains(envelope_in("nv-a", 8))
    lab.submit(run("r", "org", 8, at=2))
    assert lab.promised_at("r") == HOUR
    lab.put(budget("org", envelope_in("nv-b", 8)))
    lab.settle()
    assert (lab.promised_at("r"), lab.promise("r").domain_gpus) == (2 * HOUR, (("us/a/nv-b", 8),))
    assert [slip.reason for slip in lab.promise("r").slips] == ["FundingLost"]


def test_payer_that_pays_anywhere_pays_for_the_group_whose_domain_has_no_other_payer() -> None:
    lab = lab_with_two_domains(envelope(8, "any"), envelope_in("nv-b", 8))
    lab.submit(run("r", "org", 16, at=2, group=8))
    assert lab.promised_at("r") == 2 * HOUR
    lab.live(2 * HOUR)
    assert lab.paid("r") == {"Owned org/any": 8, "Owned org/main": 8}
