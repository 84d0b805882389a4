"""Stories of stages that start together."""

from jobtree.api.schema.quantities import HOUR
from tests.property.random_histories import FleetNode
from tests.property.story_cluster import StoryCluster, stage
from tests.unit.core.build import budget, envelope, run, tree


def test_node_fails_under_two_stages_of_which_one_is_opportunistic() -> None:
    """J3, F5: the opportunistic stage is not ended to make room for the other: both wait again together."""
    cluster = StoryCluster([FleetNode("a0", "nv-a", 4), FleetNode("b0", "nv-b", 3)], [budget("org", 6)])
    cluster.submit(tree("flow", "org:b", [stage("big", 2), stage("small", 1, **{"with": ["big"]})]))
    cluster.submit(run("owner", "org", 4))
    assert cluster.lab.paid("flow-big") == {"Shared org/main": 2}
    assert cluster.lab.paid("flow-small") == {"Opportunistic org/main": 1}
    cluster.fail_nodes("b0")
    assert cluster.lab.endings("flow-big") == [("CapacityLost", 0)]
    assert cluster.lab.endings("flow-small") == [("Recalled", 0), ("CapacityLost", 0)]
    assert cluster.lab.phase("flow-big") == cluster.lab.phase("flow-small") == "Pending"
    cluster.check_rebuilt_worlds()


def test_stages_are_reclaimed_together_for_a_promise() -> None:
    """J3, X1: one stage becomes opportunistic. A due promise gets the slots of both stages."""
    cluster = StoryCluster(
        [FleetNode("a0", "nv-a", 4), FleetNode("b0", "nv-b", 3)],
        [
            budget("org", 6),
            budget("org:a:y", envelope(1, "small"), envelope(4, "wide", maxGPUHours=8)),
            budget("lab", parents=["org:a:y"]),
        ],
        calm=True,
    )
    cluster.submit(tree("flow", "org:a:y", [stage("small", 1), stage("wide", 4, **{"with": ["small"]})]))
    cluster.submit(run("promised", "lab", 6, per_pod=3))
    assert cluster.lab.promised_at("promised") == 2 * HOUR
    cluster.live(2 * HOUR)
    assert cluster.lab.endings("flow-small") == [("Reclaimed", 2 * HOUR)]
    assert cluster.lab.endings("flow-wide") == [("BudgetExhausted", 2 * HOUR), ("Reclaimed", 2 * HOUR)]
    assert cluster.lab.on("promised") == {"a0": 3, "b0": 3}
    assert cluster.lab.lotteries[-1].decision.losers == ()
    cluster.check_rebuilt_worlds()


def test_stages_of_a_gang_start_in_the_order_of_their_promises() -> None:
    """J3: the widest stage has the first precedence. The other one does not take its slots at the date."""
    cluster = StoryCluster(
        [FleetNode("a0", "nv-a", 4), FleetNode("a1", "nv-a", 2)],
        [budget("org"), budget("org:a", 8), budget("org:b")],
        calm=True,
        peace=False,
    )
    stages = [stage("s0", 1), stage("s1", 2), stage("s2", 2, **{"with": ["s0"]}), stage("s3", 2)]
    cluster.submit(tree("t1", "org:b", stages))
    cluster.live(2 * HOUR)
    promises = {name: cluster.lab.promise(f"t1-{name}") for name in ("s0", "s2")}
    assert promises["s2"].precedence < promises["s0"].precedence
    assert promises["s2"].at == promises["s0"].at
    cluster.live(HOUR)
    assert cluster.lab.on("t1-s2") == {"a1": 2}
    assert cluster.lab.on("t1-s0") == {"a0": 1}
    cluster.live(4 * HOUR)
    cluster.check_rebuilt_worlds()
