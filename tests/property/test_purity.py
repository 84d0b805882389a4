"""A plan is a pure function of the world: it disturbs nothing, and the order of arrival does not matter."""

from random import Random

from hypothesis import example, given

from jobtree.api.kinds.budget import Budget
from jobtree.api.kinds.lease import Lease as WireLease
from jobtree.api.kinds.run import Run
from jobtree.api.kubernetes.node import Node
from jobtree.api.kubernetes.pod import Pod
from jobtree.core.model.gpu_lease import closed_lease_object, lease_to_object
from jobtree.core.planning.planning_pass import plan
from jobtree.core.reporting import reservation_codec
from jobtree.core.reporting.object_status import KnownRisks, run_status
from jobtree.core.world.world import World
from tests.property.drive import Drive
from tests.property.examples import examples
from tests.property.fingerprint import fingerprint
from tests.property.scenes import SEEDS, WAITS, Scene, Step, scenes
from tests.unit.core.build import node

LASTING = (
    "flavors",
    "nodes",
    "envelopes",
    "caps",
    "runs",
    "held",
    "by node",
    "queue",
    "provisional",
    "ranks",
    "history",
)
Thing = Node | Pod | Budget | Run | WireLease


def plan_disturbs_nothing(drive: Drive) -> None:
    world = drive.lab.world
    before = fingerprint(world)
    made = plan(world)
    assert fingerprint(world) == before, drive.story()
    assert plan(world) == made, drive.story()


@examples(200)
@given(scenes())
def test_a_plan_leaves_the_world_as_it_was_and_comes_out_the_same_again(scene: Scene) -> None:
    Drive(scene, before=plan_disturbs_nothing).play()


UNPAID_AND_RETIRED = Scene(
    61958, [Step("submit", 22589), Step("advance", 9172), Step("submit", 21288), Step("drop", 23861)]
)


@examples(200)
@given(scenes())
@example(UNPAID_AND_RETIRED)
def test_trying_changes_and_carrying_them_out_lead_to_the_same_world(scene: Scene) -> None:
    """Indexes that were mended step by step are those of a world that was told only how it ended."""
    drive = Drive(scene)
    drive.play()
    told, mended = fingerprint(rebuilt(drive)), fingerprint(drive.lab.world)
    for part in LASTING:
        assert told[part] == mended[part], drive.story()


HALF_PAID_AND_PROMISED = Scene(
    54895,
    [
        Step("advance", 7567),
        Step("edit", 57335),
        Step("submit", 57309),
        Step("submit", 33359),
        Step("submit", 13424),
        Step("submit", 11378),
        Step("submit", 30477),
        Step("drop", 5206),
        Step("submit", 63792),
    ],
)

STRANGERS_WERE_THERE = Scene(
    14837,
    [
        Step("edit", 8405),
        Step("wait", 38396),
        Step("wait", 14983),
        Step("tree", 44192),
        Step("advance", 35940),
        Step("wait", 63313),
        Step("wait", 14864),
        Step("tree", 21572),
    ],
)


PROVISIONAL_WITH_MONEY_OF_ITS_PROMISE = Scene(
    45960,
    [
        Step("wait", 13244),
        Step("submit", 34590),
        Step("submit", 55781),
        Step("tree", 951),
        Step("tree", 44323),
        Step("submit", 48416),
        Step("cancel", 36378),
    ],
)

REPAID_WITH_MONEY_OF_ITS_PROMISE = Scene(
    62301,
    [
        Step("tree", 15760),
        Step("tree", 52857),
        Step("submit", 60247),
        Step("tree", 10298),
        Step("submit", 59755),
        Step("submit", 58931),
        Step("drop", 41084),
    ],
)

RECALLED_FROM_MONEY_BOUND_TO_A_PLACE = Scene(
    57495, [Step("blackout", 58135), Step("submit", 55397), Step("tree", 22872), Step("edit", 58665)]
)

OUTLIVES_ITS_PAYERS_WINDOW = Scene(
    5103,
    [
        Step("edit", 29800),
        Step("submit", 51908),
        Step("advance", 46766),
        Step("submit", 40340),
        Step("fail", 2788),
        Step("tree", 15866),
        Step("submit", 13615),
    ],
)

GROWS_ONCE_IT_IS_NOT_PROVISIONAL = Scene(
    18140,
    [
        Step("submit", 29640),
        Step("fail", 12561),
        Step("submit", 59995),
        Step("submit", 63754),
        Step("advance", 8073),
    ],
)

PAYABLE_ONCE_LESS_OF_IT_IS_LEFT = Scene(35040, [Step("submit", 11376)])

PAID_IN_PART_AT_ONCE = Scene(20263, [Step("submit", 2343)])

STEPS_ON_A_SPARE_THAT_IS_DROPPED = Scene(
    27237,
    [
        Step("submit", 17726),
        Step("submit", 48141),
        Step("submit", 33767),
        Step("tree", 33822),
        Step("submit", 36156),
    ],
)


@examples(200)
@given(scenes(), SEEDS)
@example(HALF_PAID_AND_PROMISED, 0)
@example(PAID_IN_PART_AT_ONCE, 17201)
@example(STEPS_ON_A_SPARE_THAT_IS_DROPPED, 57784)
@example(PROVISIONAL_WITH_MONEY_OF_ITS_PROMISE, 1)
@example(REPAID_WITH_MONEY_OF_ITS_PROMISE, 1)
@example(STRANGERS_WERE_THERE, 1256)
@example(RECALLED_FROM_MONEY_BOUND_TO_A_PLACE, 1)
@example(OUTLIVES_ITS_PAYERS_WINDOW, 5)
@example(GROWS_ONCE_IT_IS_NOT_PROVISIONAL, 0)
@example(PAYABLE_ONCE_LESS_OF_IT_IS_LEFT, 7)
def test_the_order_of_arrival_does_not_change_the_plan(scene: Scene, seed: int) -> None:
    drive = Drive(scene)
    drive.play()
    dice = Random(seed)
    drive.lab.world.advance_clock(drive.world_now + dice.choice(WAITS))  # what is due by then is noticed late
    plans = []
    for world in (drive.lab.world, rebuilt(drive, dice), rebuilt(drive, dice)):
        world.put_node(node("nv-new", "nv-new"))  # something for everyone to be asked again
        plans.append(plan(world))
    assert plans[1] == plans[2], drive.story()
    assert plans[0].actions == plans[1].actions, drive.story()


def rebuilt(drive: Drive, dice: Random | None = None) -> World:
    """The world anew, from its objects: kind by kind, or in a random order."""
    world = World(drive.lab.world.policy, drive.lab.world.now)
    world.lottery_key = drive.lab.world.lottery_key
    found = things(drive)
    if dice:
        dice.shuffle(found)
    for thing in found:
        match thing:
            case Node():
                world.put_node(thing)
            case Pod():
                world.put_pod(thing)
            case Budget():
                world.put_budget(thing)
            case Run():
                world.put_run(thing)
            case WireLease():
                world.put_lease(thing)
    promised = [state for state in drive.lab.world.runs.values() if state.promise is not None]
    if dice:
        dice.shuffle(promised)
    for state in promised:  # Reservations are read last: they speak of all the rest
        assert state.promise is not None
        written = reservation_codec.reservation_object(drive.lab.world, state, state.promise)
        mine = world.runs[state.key]
        tree = world.run_graph.tree_of(mine)
        stage = reservation_codec.stage_of(mine, tree) if tree and mine.gang else ""
        world.put_promise(mine, reservation_codec.promise_from_reservation(written, mine, stage))
    return world


def things(drive: Drive) -> list[Thing]:
    """All objects as the API server would have them, with every lease ever opened and the Runs' status."""
    world = drive.lab.world
    found: list[Thing] = [state.node for state in world.fleet.nodes.values()]
    found += [*world.foreign_pods.pods.values(), *world.budgets.budgets.values()]
    for state in world.runs.values():
        found.append(with_status(state.run_object, world))
    for record in drive.lab.records.values():
        lease = lease_to_object(record.lease)
        if record.end is not None and record.reason is not None:
            lease = closed_lease_object(lease, record.end, record.reason)
        found.append(lease)
    return found


def with_status(run: Run, world: World) -> Run:
    state = world.runs[run.metadata.namespace, run.metadata.name]
    status = run_status(world, state, KnownRisks(since=state.phase_at))
    return Run(metadata=run.metadata, spec=run.spec, status=status)
