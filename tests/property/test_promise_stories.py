"""Stories of promises: what stands in their way, what ends for them, and why they move."""

from jobtree.api.schema.quantities import HOUR, MINUTE, SECOND
from tests.property.random_histories import FleetNode
from tests.property.story_cluster import StoryCluster
from tests.unit.core.build import budget, envelope, run


def test_foreign_pods_that_existed_before_are_not_reported_as_lost_capacity() -> None:
    """P1, R5: a world that has just read a node with foreign pods reports the same reason for a slip."""
    cluster = StoryCluster(
        [FleetNode("a0", "nv-a", 8, foreign_gpus=6)], [budget("org:a", envelope(4, start=3 * HOUR))]
    )
    cluster.submit(run("first", "org:a:y", 2))
    cluster.advance(2 * HOUR)
    cluster.submit(run("second", "org:a:y", 1))
    assert cluster.lab.promised_at("first") == 3 * HOUR
    assert cluster.lab.promised_at("second") == 5 * HOUR
    assert len(cluster.lab.world.foreign_pods.pods) == 1
    cluster.check_rebuilt_worlds(HOUR + 1)
    cluster.plan()
    assert cluster.actions("first")[-1] == "Activate (Activated)"
    assert "Withdraw (CrowdedOut)" in cluster.actions("second")


def test_run_that_outlives_the_window_of_its_payer_moves_the_promises_behind_it() -> None:
    """R5: the promise is due late, and its Run will keep its slots after the window of its payer."""
    window = envelope(4, "window", start=HOUR, end=4 * HOUR)
    cluster = StoryCluster(
        [FleetNode("b0", "nv-b", 4)],
        [budget("org:a:y", window, envelope(2, "lending", lending={"allow": True, "to": ["*"]}))],
    )
    cluster.submit(run("first", "org:a:y", 1))
    assert cluster.lab.paid("first") == {"Owned org-a-y/lending": 1}
    cluster.advance(2 * HOUR)
    cluster.submit(run("long", "org:a:y", 4, max_duration="3h"))
    cluster.submit(run("next", "org:a", 1, sponsors=["org:a:y"]))
    assert cluster.lab.promise("long").funding == ((("org-a-y", "window"), 4),)
    date = cluster.lab.promised_at("long")
    assert date is not None
    assert cluster.lab.promised_at("next") == date + 2 * HOUR
    cluster.check_rebuilt_worlds(HOUR)
    cluster.plan()
    assert cluster.lab.paid("long") == {"Owned org-a-y/window": 4}
    assert "Withdraw (CrowdedOut)" in cluster.actions("next")


def test_promise_slips_by_the_delay_of_a_run_that_outlives_the_window_of_its_payer() -> None:
    """I8: a Run starts a millisecond late and ends that much later, although its payer's window is over."""
    cluster = StoryCluster(
        [FleetNode("a0", "nv-a", 4)],
        [budget("org", envelope(1), envelope(8, "window", end=4 * HOUR)), budget("lab", 1)],
    )
    cluster.submit(run("first", "org", 1))
    cluster.submit(run("long", "org:a:y", 4, max_duration="3h"))
    assert cluster.lab.promised_at("long") == 2 * HOUR
    cluster.advance(HOUR + 1)
    cluster.submit(run("next", "lab", 1))
    assert cluster.lab.promised_at("next") == 4 * HOUR
    cluster.advance(HOUR)
    assert cluster.lab.paid("long") == {"Shared org/window": 4}
    assert cluster.lab.promised_at("next") == 4 * HOUR + 1
    assert [slip.reason for slip in cluster.lab.promise("next").slips] == ["CrowdedOut"]
    cluster.check_rebuilt_worlds()


def test_run_grows_after_it_was_provisional() -> None:
    """E2, R6: it does not grow while it is provisional. Once it is confirmed, it takes a step."""
    cluster = StoryCluster([FleetNode("b0", "nv-b", 8, foreign_gpus=3)], [budget("org", 8)], peace=False)
    cluster.submit(run("first", "org:a", 4))
    cluster.submit(run("promised", "org:a:x", 2))
    cluster.submit(run("train", "org:b", 2, malleable=(1, 2, 1), checkpoint="10m"))
    assert cluster.lab["train"].provisional
    assert cluster.lab["train"].width == 1
    cluster.advance(2 * HOUR)
    assert cluster.actions("train") == ["Reserve (Reserved)", "Start (Provisional)", "Confirm (Activated)"]
    cluster.add_node(FleetNode("c0", "nv-c", 8))
    assert cluster.actions("train")[-1] == "Grow (Grown)"
    assert cluster.lab["train"].width == 2
    cluster.check_rebuilt_worlds()


def test_steps_of_opportunistic_work_end_before_the_spares_that_the_rest_of_it_uses() -> None:
    """C13, X1, X2: a promise takes steps of an opportunistic Run, then spares whose slots that Run uses."""
    cluster = StoryCluster(
        [FleetNode("a0", "nv-a", 8), FleetNode("b0", "nv-b", 8), FleetNode("b1", "nv-b", 8)],
        [
            budget("org", envelope(1, selector={"fabric.domain": "nv-a"})),
            budget("org:a:x", 1),
            budget("org:b", envelope(12), envelope(8, "second")),
        ],
    )
    cluster.submit(run("batch", "org:a:x", 12, per_pod=6))
    cluster.submit(run("elastic", "org:a:x", 3, malleable=(1, 3, 1), spares=2))
    cluster.submit(run("own", "org:b", 1), run("promised", "org:b", 4))
    cluster.submit(run("unpaid", "org", 3, malleable=(1, 4, 1), opportunistic=True))
    assert cluster.lab.promised_at("promised") == MINUTE
    (opportunistic,) = cluster.lab.leases("unpaid")
    (spare,) = [lease for lease in cluster.lab.leases("elastic") if lease.role == "Spare"]
    assert dict(opportunistic.slots)["a0"] & dict(spare.slots)["a0"]
    cluster.check_rebuilt_worlds(MINUTE)
    cluster.plan()
    activation = [line.split(" ")[1:3] for line in cluster.lab.story if line.startswith(f"+{MINUTE} ")]
    assert activation[:4] == [
        ["Shrink", "unpaid"],
        ["Requeue", "unpaid"],
        ["DropSpare", "elastic"],
        ["Start", "promised"],
    ]
    assert cluster.lab.spares("elastic") == 0


def test_promise_that_failed_when_it_was_due_is_put_off_by_max_notice() -> None:
    """R5, R9: the node fails at that instant. Another node is free ten minutes later, which is too early."""
    only_a = {"fabric.domain": "nv-a"}
    cluster = StoryCluster(
        [FleetNode("a0", "nv-a", 8), FleetNode("b0", "nv-b", 8)],
        [
            budget("lab", 8),
            budget("org", envelope(8, selector=only_a)),
            budget("team", envelope(8, selector=only_a)),
        ],
    )
    cluster.submit(run("first", "team", 8, max_duration="2h"), run("other", "lab", 8, max_duration="130m"))
    cluster.submit(run("promised", "org", 8))
    assert cluster.lab.promised_at("promised") == 2 * HOUR
    cluster.advance_unplanned(2 * HOUR)
    cluster.fail_nodes("a0")
    assert cluster.lab.promised_at("promised") is None
    assert cluster.lab.promise("promised").has_failed_by(cluster.now)
    cluster.put_budget(budget("org", 8))
    assert cluster.lab["other"].known_end == cluster.now + 10 * MINUTE
    max_notice = cluster.lab.world.policy.max_notice_ms
    assert cluster.lab.promised_at("promised") == 2 * HOUR + max_notice == 2 * HOUR + 30 * MINUTE
    cluster.check_rebuilt_worlds()


def test_run_that_shrank_for_a_promise_continues_on_the_rest_of_its_slots() -> None:
    """X3: the rest of its lease opens again under another name, and is demoted when the hours are used up."""
    cluster = StoryCluster(
        [FleetNode("a0", "nv-a", 8)], [budget("org", envelope(12, maxGPUHours=20))], calm=True
    )
    cluster.submit(run("first", "org", 1))
    cluster.submit(run("elastic", "org", 2, malleable=(1, 2, 1)))
    cluster.submit(run("promised", "org:b", 8, malleable=(6, 8, 1), max_duration="3h"))
    assert cluster.lab.promised_at("promised") == MINUTE
    cluster.live(MINUTE)
    assert cluster.actions("elastic") == ["Start (Admitted)", "Shrink (Activated)"]
    assert cluster.lab.endings("elastic") == [("Shrink", MINUTE)]
    assert cluster.lab.paid("elastic") == {"Owned org/main": 1}
    assert cluster.lab["promised"].width == 6
    cluster.live(2 * HOUR)
    assert cluster.lab.paid("elastic") == {"Opportunistic org/main": 1}
    assert cluster.lab["promised"].width == 6
    cluster.check_rebuilt_worlds()


def test_spare_takes_no_slots_that_a_promise_counts_on() -> None:
    """P5: two promises are due together. The spare of the first would delay the start of the second."""
    lending = {"allow": True, "to": ["*"], "maxGPUHours": 1}
    cluster = StoryCluster(
        [FleetNode("a0", "nv-a", 8), FleetNode("c0", "nv-c", 4)],
        [
            budget("org:a", 8),
            budget("org:a:y", envelope(8, end=4 * HOUR, lending=lending)),
            budget("lab", parents=["org:a"]),
        ],
        calm=True,
    )
    cluster.submit(run("dateless", "org", 2, checkpoint="10m", max_duration="3h", sponsors=["org:a:y"]))
    cluster.live(3 * HOUR - 1)
    cluster.submit(run("first", "org:a", 8, max_duration="1h"))
    cluster.submit(run("second", "lab", 4))
    cluster.submit(run("spared", "org:a", 2, group=1, spares=1))
    cluster.submit(run("wide", "org:a:x", 8, malleable=(4, 8, 1)))
    assert cluster.lab.promised_at("dateless") is None
    assert cluster.lab.promised_at("spared") == cluster.lab.promised_at("wide") == 4 * HOUR - 1
    cluster.live(HOUR)
    assert cluster.lab.on("spared") == {"a0": 2}
    assert cluster.lab.spares("spared") == 0
    assert cluster.lab.on("wide") == {"a0": 6}
    cluster.check_rebuilt_worlds()


def test_owner_that_comes_when_its_family_has_just_started_recalls_after_a_notice() -> None:
    """C11: the family's Run that has just started is not recalled within a second, but it is told at once."""
    cluster = StoryCluster([FleetNode("a0", "nv-a", 4)], [budget("org", 4)], calm=True)
    cluster.submit(run("first", "org:b", 1))
    cluster.submit(run("guest", "org:b", 4))
    assert cluster.lab.promised_at("guest") is None
    cluster.cancel("first")
    assert cluster.lab.paid("guest") == {"Shared org/main": 4}
    assert cluster.lab["guest"].recallable_from == cluster.now + SECOND
    cluster.submit(run("owner", "org", 1))
    assert cluster.lab.promised_at("owner") == 5 * MINUTE
    cluster.live(5 * MINUTE)
    assert cluster.lab.endings("guest") == [("Recalled", 5 * MINUTE)]
    assert cluster.lab.paid("owner") == {"Owned org/main": 1}
    cluster.check_rebuilt_worlds()


def test_leases_of_a_provisional_run_do_not_count_beside_its_own_promise() -> None:
    """R6: its payer changes while it is provisional. A later promise keeps its date."""
    cluster = StoryCluster(
        [FleetNode("a0", "nv-a", 4), FleetNode("a1", "nv-a", 4)],
        [
            budget("org:a", 8),
            budget("org:b", 4),
            budget("lab", envelope(4, "hours", maxGPUHours=8), envelope(2, "second")),
        ],
        calm=True,
        peace=False,
    )
    cluster.submit(run("batch", "org:a", 4, max_duration="2h"))
    cluster.submit(run("elastic", "lab", 5, malleable=(1, 7, 2)))
    cluster.submit(run("next", "org:b", 4))
    cluster.live(HOUR - 1)
    cluster.submit(run("promised", "org:a:y", 6, per_pod=3))
    cluster.submit(run("train", "lab", 1, checkpoint="10m"))
    assert cluster.lab["train"].provisional
    assert cluster.lab.paid("train") == {"Owned lab/hours": 1}
    assert cluster.lab.promise("train").funding == ((("lab", "second"), 1),)
    cluster.live(HOUR - 1)
    cluster.submit(run("waiting", "lab", 1))
    assert cluster.lab.promise("waiting").funding == ((("lab", "second"), 1),)
    assert cluster.lab.promised_at("train") == cluster.lab.promised_at("waiting") == 4 * HOUR
    cluster.live(20 * MINUTE)
    assert cluster.lab["train"].provisional
    assert cluster.lab.paid("train") == {"Owned lab/second": 1}
    assert cluster.lab.phase("waiting") == "Running"
    cluster.check_rebuilt_worlds()
