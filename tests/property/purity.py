"""Checks that a plan follows from the objects alone, not from indexes or from the order of arrival."""

from random import Random

import msgspec

from jobtree.api.kinds.budget import Budget
from jobtree.api.kinds.lease import Lease as LeaseObject
from jobtree.api.kinds.run import Run
from jobtree.api.kubernetes.node import Node
from jobtree.api.kubernetes.pod import Pod
from jobtree.core.model.actions import Plan
from jobtree.core.model.gpu_lease import closed_lease_object, lease_to_object
from jobtree.core.planning.planning_pass import plan
from jobtree.core.reporting import reservation_codec
from jobtree.core.reporting.object_status import KnownRisks, run_status
from jobtree.core.world.world import World
from tests.property.checked_cluster import CheckedCluster
from tests.property.fingerprint import fingerprint
from tests.property.random_histories import FleetNode

LASTING = (
    "flavors",
    "nodes",
    "envelopes",
    "caps",
    "runs",
    "leases",
    "by node",
    "queue",
    "provisional",
    "promise order",
    "history",
)
NEW_NODE = FleetNode("nv-new", "nv-new", 8)
ClusterObject = Node | Pod | Budget | Run | LeaseObject


def assert_plan_changes_nothing(cluster: CheckedCluster) -> None:
    """Planning leaves the world as it is, and gives the same plan again."""
    world = cluster.lab.world
    before = fingerprint(world)
    first = plan(world)
    assert fingerprint(world) == before, cluster.story()
    assert plan(world) == first, cluster.story()


def assert_world_follows_from_objects(cluster: CheckedCluster) -> None:
    """The indexes that actions updated equal those of a world that reads only the objects."""
    rebuilt, updated = fingerprint(rebuilt_world(cluster)), fingerprint(cluster.lab.world)
    for part in LASTING:
        assert rebuilt[part] == updated[part], cluster.story()


def decided(world: World) -> Plan:
    """Returns a plan without the flavors that it has looked at: a world at rest looks at none."""
    return msgspec.structs.replace(plan(world), queue_exhausted=())


def assert_order_of_arrival_changes_nothing(cluster: CheckedCluster, *dice: Random) -> None:
    """Worlds that read the objects in other orders make the same plan as the world that lived through it."""
    worlds = [rebuilt_world(cluster, shuffle) for shuffle in dice]
    for world in (cluster.lab.world, *worlds):
        world.put_node(NEW_NODE.node())  # so that each pass considers all Runs again
    present, first, *others = (decided(world) for world in (cluster.lab.world, *worlds))
    for other in others:
        assert first == other, cluster.story()
    assert present.actions == first.actions, cluster.story()


def rebuilt_world(cluster: CheckedCluster, dice: Random | None = None) -> World:
    """Returns a world that reads all objects, kind by kind or in random order, and Reservations last."""
    present = cluster.lab.world
    world = World(present.policy, present.now - 1)
    world.timers.schedule_sweep(present.now if present.sweep_due else None)
    world.advance_clock(present.now)  # a sweep was due by now, as in the present world (R14)
    world.lottery_key = present.lottery_key
    objects = objects_of(cluster)
    if dice:
        dice.shuffle(objects)
    for cluster_object in objects:
        put(world, cluster_object)
    promised = [state for state in present.runs.values() if state.promise is not None]
    if dice:
        dice.shuffle(promised)
    for state in promised:
        assert state.promise is not None
        written = reservation_codec.reservation_object(present, state, state.promise)
        rebuilt = world.runs[state.key]
        tree = world.run_graph.tree_of(rebuilt)
        stage = reservation_codec.stage_of(rebuilt, tree) if tree and rebuilt.gang else ""
        reservation_codec.load_promise(world, written, rebuilt, stage)
    return world


def put(world: World, cluster_object: ClusterObject) -> None:
    match cluster_object:
        case Node():
            world.put_node(cluster_object)
        case Pod():
            world.put_pod(cluster_object)
        case Budget():
            world.put_budget(cluster_object)
        case Run():
            world.put_run(cluster_object)
        case LeaseObject():
            world.put_lease(cluster_object)


def objects_of(cluster: CheckedCluster) -> list[ClusterObject]:
    """Returns all objects as the API server would have them: Runs with status, every lease ever opened."""
    world = cluster.lab.world
    objects: list[ClusterObject] = [state.node for state in world.fleet.nodes.values()]
    objects += [*world.foreign_pods.pods.values(), *world.budgets.budgets.values()]
    objects += [with_status(state.run_object, world) for state in world.runs.values()]
    for record in cluster.lab.records.values():
        lease = lease_to_object(record.lease)
        if record.end is not None and record.reason is not None:
            lease = closed_lease_object(lease, record.end, record.reason)
        objects.append(lease)
    return objects


def with_status(run: Run, world: World) -> Run:
    state = world.runs[run.metadata.namespace, run.metadata.name]
    status = run_status(world, state, KnownRisks(since=state.phase_at))
    return Run(metadata=run.metadata, spec=run.spec, status=status)
