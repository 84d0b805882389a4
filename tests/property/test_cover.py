"""Cover takes greedily in the order of C2: never from a later tier while an earlier one can pay."""

from random import Random

import msgspec
from hypothesis import given

from jobtree.api.kinds.run import Run
from jobtree.api.schema.quantities import format_time
from jobtree.core.model.actions import Action
from jobtree.core.planning.planning_pass import plan
from tests.property.drive import Drive
from tests.property.examples import examples
from tests.property.payer_oracle import Share, Teller
from tests.property.scenes import SEEDS, NodeSketch, Scene, scenes, some_run
from tests.unit.core.build import H100, NAMESPACE

QUIET = ("submit", "submit", "advance", "finish", "wait", "edit")


def plain_fleet(dice: Random) -> list[NodeSketch]:
    """Nodes of one flavor that take any pod: only money and room decide."""
    return [
        NodeSketch(f"{domain}-{number}", domain, 8)
        for domain in ("nv-a", "nv-b", "nv-c")[: dice.randint(1, 3)]
        for number in range(dice.randint(1, 4))
    ]


def asks(drive: Drive, dice: Random) -> Run:
    """A fixed gang without spares that can wait."""
    run = some_run(dice, "newcomer")
    assert run.spec.resources is not None
    spec = msgspec.structs.replace(
        run.spec,
        malleable=None,
        spares=0,
        resources=msgspec.structs.replace(run.spec.resources, gpu_type=H100),
        locality=msgspec.structs.replace(run.spec.locality, allow_cross_group_spread=True),
        funding=msgspec.structs.replace(run.spec.funding, allow_opportunistic=False),
    )
    metadata = msgspec.structs.replace(run.metadata, creation_timestamp=format_time(drive.world_now))
    return msgspec.structs.replace(run, spec=spec, metadata=metadata)


def shares_of(drive: Drive, start: Action) -> list[Share]:
    return [
        (lease.group, drive.labels(lease.slots[0][0])["fabric.domain"], lease.payer, lease.class_, lease.gpus)
        for lease in start.opens
    ]


@examples(400)
@given(scenes(happenings=QUIET), SEEDS)
def test_each_group_is_paid_by_the_earliest_tier_that_can(scene: Scene, seed: int) -> None:
    drive = Drive(scene, fleet=plain_fleet(Random(seed)))
    drive.play()
    drive.dismiss_waiting()
    run = asks(drive, Random(seed))
    drive.lab.put(run)
    state = drive.lab["newcomer"]
    assert state.shape is not None
    size = state.shape.pod_size(8)
    teller = Teller(drive, run, size)
    whole = not state.shape.group
    if whole and all(island.pods * size < state.shape.total for island in teller.islands.values()):
        return  # it would spill: see test_packing
    expected = teller.lay_out(state.shape.groups(state.shape.total))
    made = plan(drive.lab.world).actions
    actions = [action for action in made if action.run_key == (NAMESPACE, "newcomer") and action.opens]
    taken = [closing for action in made for closing in action.closes]
    if expected is not None:
        assert [action.kind for action in actions] == ["Start"], drive.story()
        assert taken == []
        assert shares_of(drive, actions[0]) == expected, drive.story()
    elif actions:
        assert taken, "it was paid by nobody, and nothing was reclaimed or recalled for it"
