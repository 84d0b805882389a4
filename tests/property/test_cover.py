"""Cover asks payers in the order of C2: never a later tier while an earlier one can pay."""

from random import Random

import msgspec
from hypothesis import given

from jobtree.api.kinds.run import Run
from jobtree.api.schema.quantities import format_time
from jobtree.core.model.actions import Action
from jobtree.core.planning.planning_pass import plan
from tests.property.checked_cluster import CheckedCluster
from tests.property.examples import examples
from tests.property.history_player import HistoryPlayer
from tests.property.payer_oracle import PayerOracle, Share
from tests.property.random_histories import SEEDS, FleetNode, RandomHistory, random_histories, random_run
from tests.unit.core.build import H100, NAMESPACE

KINDS = ("submit", "submit", "advance", "finish", "wait", "edit")


def plain_fleet(dice: Random) -> list[FleetNode]:
    """Returns nodes of one flavor that take any pod, so that only budget and room decide."""
    return [
        FleetNode(f"{domain}-{number}", domain, 8)
        for domain in ("nv-a", "nv-b", "nv-c")[: dice.randint(1, 3)]
        for number in range(dice.randint(1, 4))
    ]


def fixed_gang(cluster: CheckedCluster, dice: Random) -> Run:
    """Returns a random Run that is fixed, has no spares and can wait."""
    run = random_run(dice, "newcomer")
    assert run.spec.resources is not None
    spec = msgspec.structs.replace(
        run.spec,
        malleable=None,
        spares=0,
        resources=msgspec.structs.replace(run.spec.resources, gpu_type=H100),
        locality=msgspec.structs.replace(run.spec.locality, allow_cross_group_spread=True),
        funding=msgspec.structs.replace(run.spec.funding, allow_opportunistic=False),
    )
    metadata = msgspec.structs.replace(run.metadata, creation_timestamp=format_time(cluster.now))
    return msgspec.structs.replace(run, spec=spec, metadata=metadata)


def shares_of(cluster: CheckedCluster, start: Action) -> list[Share]:
    return [
        (
            lease.group,
            cluster.labels(lease.slots[0][0])["fabric.domain"],
            lease.payer,
            lease.class_,
            lease.gpus,
        )
        for lease in start.opens
    ]


@examples(400)
@given(random_histories(kinds=KINDS), SEEDS)
def test_each_group_is_paid_by_the_earliest_tier_that_can_pay(history: RandomHistory, seed: int) -> None:
    """C2 and P3, against an oracle. Gangs that spill over several domains are in test_packing."""
    player = HistoryPlayer(history, fleet=plain_fleet(Random(seed)))
    player.play()
    player.drop_waiting()
    run = fixed_gang(player, Random(seed))
    player.lab.put(run)
    shape = player.lab["newcomer"].shape
    assert shape is not None
    pod_size = shape.pod_size(8)
    oracle = PayerOracle(player, run, pod_size)
    if not shape.group and all(room.pods * pod_size < shape.total for room in oracle.rooms.values()):
        return
    expected = oracle.lay_out(shape.groups(shape.total))
    plan_actions = plan(player.lab.world).actions
    starts = [action for action in plan_actions if action.run_key == (NAMESPACE, "newcomer") and action.opens]
    closed = [closing for action in plan_actions for closing in action.closes]
    if expected is not None:
        assert [action.kind for action in starts] == ["Start"], player.story()
        assert closed == []
        assert shares_of(player, starts[0]) == expected, player.story()
    elif starts:
        assert closed, "no payer can pay, and nothing was reclaimed or recalled for the Run"
