"""Stories of payers: deleted and edited Budgets, recalls, credits, and promises that count on them."""

from jobtree.api.schema.quantities import HOUR, MINUTE
from tests.property.random_histories import A100, FleetNode
from tests.property.story_cluster import StoryCluster, stage
from tests.unit.core.build import budget, cap, envelope, run, tree


def test_opportunistic_lease_keeps_its_payer_when_the_budget_is_deleted() -> None:
    """C8: the usage of opportunistic work is still listed with an envelope that no Budget has any more."""
    cluster = StoryCluster([FleetNode("a0", "nv-a", 1)], [budget("org:a", envelope(1, end=6 * HOUR))])
    cluster.advance(7 * HOUR)
    cluster.submit(run("train", "org:a", 1, opportunistic=True))
    cluster.drop_budget("org-a")
    assert cluster.lab.paid("train") == {"Opportunistic org-a/main": 1}
    assert cluster.lab.envelope("org-a").retired_at == cluster.now
    cluster.advance(HOUR)
    assert cluster.lab.envelope("org-a").by_class["opportunistic"].used(cluster.now) == 1000 * HOUR
    cluster.check_rebuilt_worlds()


def test_promise_of_a_partly_opportunistic_run_loses_its_date_when_its_budget_is_deleted() -> None:
    """R6, C11: a provisional Run with two payers loses one, then the other recalls its part, too."""
    cluster = StoryCluster(
        [FleetNode("a0", "nv-a", 1), FleetNode("b0", "nv-b", 8)],
        [budget("org:a"), budget("org:a:y", 8), budget("lab", 8, parents=["org:a"])],
        peace=False,
    )
    cluster.submit(run("first", "lab", 4))
    cluster.submit(run("second", "lab", 1))
    cluster.submit(run("promised", "lab", 4))
    cluster.submit(run("elastic", "lab", 4, malleable=(2, 4, 1), checkpoint="1h"))
    assert cluster.lab["elastic"].provisional
    assert cluster.lab.paid("elastic") == {"Owned lab/main": 3, "Shared org-a-y/main": 1}
    assert cluster.lab.promised_at("elastic") == 2 * HOUR

    cluster.drop_budget("lab")
    assert cluster.lab["elastic"].is_partly_opportunistic
    assert cluster.lab.paid("elastic") == {"Opportunistic lab/main": 3, "Shared org-a-y/main": 1}
    assert cluster.actions("elastic")[2:] == ["Demote (Demoted)", "Move (FundingLost)"]
    for name in ("promised", "elastic"):
        assert cluster.lab.promised_at(name) is None
        assert [slip.reason for slip in cluster.lab.promise(name).slips] == ["FundingLost"]

    cluster.submit(run("owner", "org:a:y", 8))
    assert "Recalled" in {reason for reason, _ in cluster.lab.endings("elastic")}
    assert cluster.lab.paid("owner") == {"Owned org-a-y/main": 8}
    cluster.check_rebuilt_worlds()


def test_group_of_an_opportunistic_run_finds_a_payer_at_the_instant_of_the_start() -> None:
    """C8: the start and the payer of one of two groups are decided in the same turn."""
    cluster = StoryCluster(
        [FleetNode("a0", "nv-a", 2, A100)], [budget("org:a", envelope(1, flavor=A100, name="main"))]
    )
    cluster.submit(run("train", "org:a:x", 2, flavor=A100, group=1, opportunistic=True))
    assert cluster.actions("train") == ["Reserve (Reserved)", "Start (Opportunistic)", "Repay (Admitted)"]
    assert cluster.lab.endings("train") == [("Repaid", 0)]
    assert cluster.lab.paid("train") == {"Opportunistic org-a/main": 1, "Shared org-a/main": 1}
    cluster.check_rebuilt_worlds(HOUR)


def test_opportunistic_run_is_paid_when_its_remaining_hours_are_few_enough() -> None:
    """C5, C8: two A100 cost five credits per hour. The four credits of a cap suffice for 48 minutes."""
    cluster = StoryCluster(
        [FleetNode("a0", "nv-a", 2, A100)],
        [
            budget("org:a"),
            budget("org:a:x", envelope(2, flavor=A100), caps=[cap("cap", "main", maxCredits=4)]),
            budget("org:a:y"),
        ],
    )
    cluster.submit(run("train", "org:a:y", 2, flavor=A100, max_duration="1h", opportunistic=True))
    assert cluster.lab.paid("train") == {"Opportunistic org-a-x/main": 2}
    assert cluster.lab["train"].payable_at == cluster.now + 12 * MINUTE
    cluster.check_rebuilt_worlds(20 * MINUTE)
    cluster.plan()
    assert cluster.lab.paid("train") == {"Shared org-a-x/main": 2}


def test_credits_of_a_cap_are_reserved_for_a_promise() -> None:
    """C4: two envelopes share two credits. A promise counts on both credits, so a later Run borrows."""
    cluster = StoryCluster(
        [FleetNode("b0", "nv-b", 4)],
        [
            budget(
                "org:a",
                envelope(1),
                envelope(2, "later", start=3 * HOUR),
                caps=[cap("cap", "main", "later", maxCredits=2)],
            ),
            budget("org:a:y", envelope(1, lending={"allow": True, "to": ["*"]})),
        ],
        calm=True,
    )
    cluster.submit(run("promised", "org:a:y", 2))
    assert cluster.lab.promise("promised").funding == ((("org-a", "later"), 2),)
    cluster.submit(run("second", "org:a", 1, sponsors=["org:a:y"]))
    assert cluster.lab.paid("second") == {"Borrowed org-a-y/main": 1}
    cluster.live(3 * HOUR)
    assert cluster.lab.paid("promised") == {"Shared org-a/later": 2}
    cluster.check_rebuilt_worlds()


def test_promise_changes_its_payer_when_a_new_budget_changes_the_family() -> None:
    """C1, R5: a nearer parent appears. The Run with a promise starts at once, the next Run gets a date."""
    cluster = StoryCluster(
        [FleetNode("a0", "nv-a", 1)], [budget("org", envelope(1, start=3 * HOUR, maxCredits=1))]
    )
    cluster.submit(
        run("first", "org:a:x", 1, max_duration="1h"), run("next", "org:a:x", 1, max_duration="1h")
    )
    assert cluster.lab.promise("first").funding == ((("org", "main"), 1),)
    assert cluster.lab.promised_at("first") == 3 * HOUR
    assert cluster.lab.promised_at("next") is None
    cluster.put_budget(budget("org:a", 1))
    assert cluster.actions("first")[1:] == [
        "Move (FundingLost)",
        "Start (Admitted)",
        "Supersede (Superseded)",
    ]
    assert cluster.lab.paid("first") == {"Shared org-a/main": 1}
    assert cluster.lab.promised_at("next") == HOUR
    assert cluster.lab.promise("next").funding == ((("org-a", "main"), 1),)
    cluster.check_rebuilt_worlds()


def test_promise_keeps_its_date_with_another_payer_when_an_edit_removes_its_envelope() -> None:
    """R5: the Budget of the owner renames the envelope that the promise counts on."""
    cluster = StoryCluster(
        [FleetNode("c1", "nv-c", 2)], [budget("org", 1), budget("org:a:x", envelope(2, "old"))]
    )
    cluster.submit(run("holder", "org", 1))
    cluster.submit(run("promised", "org:a:x", 2))
    assert cluster.lab.promise("promised").funding == ((("org-a-x", "old"), 2),)
    date = cluster.lab.promised_at("promised")
    assert date is not None
    cluster.put_budget(budget("org:a:x", envelope(2, "new")))
    assert cluster.lab.envelope("org-a-x", "old").retired_at == cluster.now
    assert cluster.actions("promised") == ["Reserve (Reserved)", "Move (FundingLost)"]
    assert cluster.lab.promise("promised").funding == ((("org-a-x", "new"), 2),)
    assert cluster.lab.promised_at("promised") == date
    cluster.check_rebuilt_worlds()


def test_swapped_rank_is_borrowed_when_its_payer_left_the_family() -> None:
    """C3, F1: the Budget that made the payer a relative is deleted. The payer lends to the swapped rank."""
    lender = budget("org:b", envelope(2, lending={"allow": True, "to": ["*"]}))
    cluster = StoryCluster(
        [FleetNode("b0", "nv-b", 1), FleetNode("b1", "nv-b", 1)],
        [budget("org"), lender, budget("lab", parents=["org"])],
    )
    cluster.submit(run("train", "lab", 1, spares=1, sponsors=["org:b"]))
    assert cluster.lab.paid("train") == {"Shared org-b/main": 1}
    assert cluster.lab.spares("train") == 1
    cluster.drop_budget("lab")
    assert cluster.lab.paid("train") == {"Shared org-b/main": 1}
    cluster.advance(MINUTE)
    (node,) = cluster.lab.on("train")
    cluster.fail_nodes(node)
    assert cluster.lab.endings("train") == [("NodeFailure", MINUTE), ("Swap", MINUTE)]
    assert cluster.lab.paid("train") == {"Borrowed org-b/main": 1}
    cluster.check_rebuilt_worlds()


def test_lease_changes_its_payer_twice_and_is_cancelled_in_one_plan() -> None:
    """C7: nothing was planned while a window closed and credits ran out; then the tree is deleted."""
    cluster = StoryCluster(
        [FleetNode("a0", "nv-a", 1)],
        [
            budget(
                "org",
                envelope(1, "credits", maxCredits=1),
                envelope(1, "window", end=4 * HOUR),
                envelope(1, "last"),
            )
        ],
    )
    cluster.submit(tree("flow", "org", [stage("train", 1)]))
    assert cluster.lab.paid("flow-train") == {"Owned org/window": 1}
    cluster.advance_unplanned(7 * HOUR)
    cluster.cancel("flow")
    assert [record.lease.payer[1] for record in cluster.lab.history("flow-train")] == [
        "window",
        "credits",
        "last",
    ]
    assert cluster.lab.endings("flow-train") == [
        ("WindowClosed", 4 * HOUR),
        ("BudgetExhausted", 5 * HOUR),
        ("Cancelled", 7 * HOUR),
    ]
    assert cluster.lab.world.runs == {}
    cluster.check_rebuilt_worlds()


def test_owner_that_waited_for_room_recalls_although_a_payer_of_other_nodes_has_budget() -> None:
    """C11: a new node has room. An older Run of the family takes the budget, and the owner recalls it."""
    cluster = StoryCluster([FleetNode("b0", "nv-b", 4)], [budget("org:a", 1), budget("org:a:x")])
    cluster.submit(run("big", "org:a:x", 6, checkpoint="1h"))
    cluster.submit(run("first", "org:a:y", 1), run("owner", "org:a:y", 4, max_duration="2h"))
    elsewhere = envelope(4, "elsewhere", selector={"fabric.domain": "nv-c"})
    cluster.put_budget(budget("org:a:y", envelope(6), elsewhere))
    assert [cluster.lab.phase(name) for name in ("big", "first", "owner")] == [
        "Pending",
        "Running",
        "Pending",
    ]
    assert cluster.lab.reasons("owner") == ["NoFreeSlots"]
    cluster.add_node(FleetNode("d0", "nv-d", 8))
    cluster.lab.sweep()
    assert cluster.lab.endings("big") == [("Recalled", 5 * MINUTE), ("Reclaimed", 5 * MINUTE)]
    assert cluster.lab.paid("owner") == {"Owned org-a-y/main": 4}
    cluster.check_rebuilt_worlds()


def test_owner_recalls_although_a_payer_of_other_nodes_has_budget() -> None:
    """C11: the Run could be paid in another domain, where there is no node."""
    elsewhere = envelope(1, "elsewhere", selector={"fabric.domain": "nv-b"})
    cluster = StoryCluster(
        [FleetNode("c0", "nv-c", 4)],
        [budget("org"), budget("org:a:x", elsewhere), budget("org:a:y", 4)],
        calm=True,
    )
    cluster.submit(run("guest", "org:a:x", 4))
    assert cluster.lab.paid("guest") == {"Shared org-a-y/main": 4}
    cluster.submit(run("owner", "org:a:y", 1))
    assert cluster.lab.promised_at("owner") == 5 * MINUTE
    cluster.advance(5 * MINUTE)
    assert cluster.lab.endings("guest") == [("Recalled", 5 * MINUTE)]
    assert cluster.lab.paid("owner") == {"Owned org-a-y/main": 1}
    cluster.check_rebuilt_worlds()


def test_promise_counts_on_another_payer_when_its_run_starts_provisionally_with_the_first() -> None:
    """R6: the provisional Run uses the credit that its promise counted on. Another envelope can pay then."""
    cluster = StoryCluster(
        [FleetNode("a0", "nv-a", 4)],
        [
            budget("org", envelope(4), envelope(2, "second")),
            budget("org:a:x", envelope(1, maxCredits=1)),
            budget("org:a:y"),
        ],
        peace=False,
    )
    cluster.submit(run("first", "org", 2))
    cluster.submit(run("other", "org:a", 1))
    cluster.submit(run("promised", "org:a", 2))
    assert cluster.lab.promise("promised").funding == ((("org", "second"), 2),)
    cluster.submit(run("train", "org:a:y", 1, checkpoint="1h"))
    assert cluster.actions("train") == ["Reserve (Reserved)", "Start (Provisional)", "Move (FundingLost)"]
    assert cluster.lab.paid("train") == {"Shared org-a-x/main": 1}
    assert cluster.lab.promise("train").funding == ((("org", "main"), 1),)
    assert cluster.lab.promised_at("train") == 2 * HOUR
    cluster.check_rebuilt_worlds(MINUTE)


def test_opportunistic_run_is_not_paid_with_the_credits_that_its_promise_counts_on() -> None:
    """R6: two credits are reserved for the date of the promise. Until then the Run stays opportunistic."""
    cluster = StoryCluster(
        [FleetNode("b0", "nv-b", 8)],
        [
            budget("org"),
            budget(
                "org:a:x", envelope(1, "e1"), envelope(1, "e2"), caps=[cap("cap", "e1", "e2", maxCredits=2)]
            ),
            budget("org:a:y", envelope(6, start=3 * HOUR)),
        ],
        calm=True,
    )
    cluster.submit(run("train", "org:a:x", 8, group=1, opportunistic=True))
    assert cluster.lab.promised_at("train") == 3 * HOUR
    cluster.live(HOUR)
    assert cluster.lab.paid("train") == {"Opportunistic org-a-x/e1": 8}
    cluster.live(2 * HOUR)
    assert cluster.lab.paid("train") == {
        "Owned org-a-x/e1": 1,
        "Owned org-a-x/e2": 1,
        "Shared org-a-y/main": 6,
    }
    cluster.check_rebuilt_worlds()


def test_run_does_not_start_provisionally_on_the_hours_that_its_promise_counts_on() -> None:
    """R6: its owner has eight GPU-hours, and the open-ended Run commits all of them for one hour."""
    cluster = StoryCluster(
        [FleetNode("a0", "nv-a", 8)],
        [budget("org", envelope(1, start=HOUR)), budget("org:a:y", envelope(8, maxGPUHours=8))],
        calm=True,
    )
    cluster.submit(run("first", "org:a", 1))
    cluster.submit(run("train", "org:a:y", 8, checkpoint="1h"))
    assert cluster.lab.promised_at("first") == HOUR
    assert cluster.lab.promised_at("train") == 3 * HOUR
    assert cluster.lab.phase("train") == "Pending"
    cluster.live(3 * HOUR)
    assert cluster.lab.paid("train") == {"Owned org-a-y/main": 8}
    cluster.check_rebuilt_worlds()


def test_provisional_run_is_not_repaid_with_the_credits_that_its_promise_counts_on() -> None:
    """R6: its payer has no more credits after an hour. It becomes opportunistic, and its promise is kept."""
    cluster = StoryCluster(
        [FleetNode("a0", "nv-a", 8)],
        [
            budget("org", envelope(4, end=4 * HOUR), caps=[cap("cap", "main", maxGPUHours=8)]),
            budget("org:a", envelope(4), caps=[cap("cap", "main", maxCredits=4)]),
            budget("org:a:x", envelope(4, maxCredits=4)),
        ],
        calm=True,
    )
    cluster.live(HOUR)
    cluster.submit(run("first", "org", 2, spares=1, max_duration="3h"))
    cluster.submit(run("second", "org", 1, max_duration="1h"))
    cluster.submit(run("train", "org:a:x", 4, checkpoint="10m"))
    assert cluster.lab["train"].provisional
    assert cluster.lab.paid("train") == {"Owned org-a-x/main": 4}
    assert cluster.lab.promise("train").funding == ((("org-a", "main"), 4),)
    cluster.live(HOUR)
    assert cluster.lab.paid("train") == {"Opportunistic org-a-x/main": 4}
    assert cluster.lab.promise("train").funding == ((("org-a", "main"), 4),)
    cluster.live(2 * HOUR)
    assert cluster.lab.paid("train") == {"Shared org-a/main": 4}
    cluster.check_rebuilt_worlds()


def test_each_payer_of_a_promise_pays_on_its_own_nodes() -> None:
    """C6: one of the two payers pays in one domain only, and pays for all that starts there."""
    cluster = StoryCluster(
        [FleetNode("a0", "nv-a", 1), FleetNode("b0", "nv-b", 4), FleetNode("c0", "nv-c", 8)],
        [budget("lab", envelope(8, "anywhere"), envelope(4, "local", selector={"fabric.domain": "nv-b"}))],
        calm=True,
    )
    cluster.submit(run("train", "lab", 12, group=1))
    assert cluster.actions("train") == ["Reserve (Reserved)", "Start (Activated)", "Activate (Activated)"]
    by_node = {lease.slots[0][0]: lease.payer[1] for lease in cluster.lab.leases("train")}
    assert by_node == {"b0": "local", "c0": "anywhere"}, "as few domains as possible (P4)"
    assert cluster.lab.paid("train") == {"Owned lab/anywhere": 8, "Owned lab/local": 4}
    cluster.check_rebuilt_worlds()
