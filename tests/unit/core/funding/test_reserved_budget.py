"""What promises reserve of a budget (R2): a start is paid for as it was promised."""

from jobtree.api.kinds.budget import Budget
from jobtree.api.schema.quantities import HOUR
from jobtree.core.funding.reserved_budget import available_beside_promises
from tests.unit.core.build import budget, nodes, run
from tests.unit.core.lab import Lab


def siblings(**gpus: int) -> list[Budget]:
    return [budget("org"), *(budget(f"org:{name}", *([most] if most else [])) for name, most in gpus.items())]


def test_start_is_paid_by_the_promised_payers_when_nearer_ones_are_free() -> None:
    lab = Lab(nodes("nv-a", 3), *siblings(a=8, b=8, y=8, z=0), budget("other", 8))
    lab.submit(run("on-a", "org:a", 8, max_duration="4h"))
    lab.submit(run("on-b", "org:b", 8, max_duration="2h"))
    lab.submit(run("apart", "other", 8, max_duration="3h"))
    lab.submit(run("older", "org:z", 8, at=1, max_duration="10h"))
    assert (lab.promised_at("older"), lab.promise("older").funding) == (2 * HOUR, ((("org-b", "main"), 8),))
    lab.submit(run("younger", "org:y", 16, at=2, max_duration="10h"))
    funding = ((("org-y", "main"), 8), (("org-a", "main"), 8))
    assert (lab.promised_at("younger"), lab.promise("younger").funding) == (4 * HOUR, funding)
    lab.advance(HOUR)
    lab.finish("on-a")
    lab.live(2 * HOUR)
    assert [lease.payer[0] for lease in lab["older"].leases.values()] == ["org-b"], lab.story
    lab.live(4 * HOUR)
    assert lab["younger"].phase == "Running", lab.story
    assert not [line for line in lab.story if "FundingLost" in line]


def test_provisional_run_gets_no_budget_that_was_promised_after_its_start() -> None:
    lab = Lab(nodes("nv-a", 2), *siblings(a=8, b=8, c=16))
    lab.submit(run("first", "org:c", 8, max_duration="2h"))
    lab.submit(run("gang", "org:c", 16, at=1, max_duration="2h"))
    lab.submit(run("provisional", "org:a", 8, at=2, checkpoint="30m", max_duration="9h"))
    assert (lab["provisional"].phase, lab["provisional"].provisional) == ("Running", True)
    lab.advance(1)
    lab.submit(run("later", "org:b", 8, at=3, max_duration="5h"))
    payer = lab.world.budgets.envelopes["org-b", "main"]
    assert lab.promise("later").funding == ((payer.key, 8),)
    assert available_beside_promises(lab.world, lab["provisional"], payer, lab.world.now) == 0


def test_promised_start_is_recalled_only_after_the_instant_of_its_start() -> None:
    lab = Lab(nodes("nv-a", 2), *siblings(a=8, z=0), budget("other", 8))
    lab.submit(run("on-a", "org:a", 8, max_duration="2h"), run("apart", "other", 8, max_duration="9h"))
    lab.submit(run("older", "org:z", 8, at=1, max_duration="10h"))
    lab.live(2 * HOUR)
    lab.submit(run("younger", "org:a", 8, at=2 * HOUR, max_duration="10h"))
    assert (lab["older"].phase, lab["older"].opportunistic_gpus, lab["younger"].phase) == (
        "Running",
        0,
        "Reserved",
    )
    lab.advance(3 * HOUR)
    assert (lab["older"].phase, lab["younger"].phase) == ("Reserved", "Running"), lab.story


def test_promise_moves_its_charge_to_another_payer_when_one_is_cut() -> None:
    lab = Lab(nodes("nv-a", 4), *siblings(a=8, b=16, z=0), budget("other", 8))
    lab.submit(run("on-b", "org:b", 16, max_duration="2h"), run("apart", "other", 8, max_duration="2h"))
    lab.submit(run("gang", "org:z", 16, at=1, max_duration="9h"))
    assert lab.promise("gang").funding == ((("org-a", "main"), 8), (("org-b", "main"), 8))
    lab.put(budget("org:a", 1))
    lab.settle()
    assert (lab.promised_at("gang"), lab.promise("gang").funding) == (2 * HOUR, ((("org-b", "main"), 16),))
    assert lab.promise("gang").slips == ()
