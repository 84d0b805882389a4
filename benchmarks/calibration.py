"""Compares the odds that Runs are told with how often they are stopped, on random crowded fleets (X9, R12).

A crowd has overlapping promises, spares, malleable Runs, provisional work and stages that start together. It
is played once for each lottery key. When a draw comes, each Run with a ticket has been told its odds, and
then it loses or not. Over many draws the losses must be as frequent as told, and nobody may lose untold.

    python -m benchmarks.calibration --crowds 200 --keys 40 --peace 2h
"""

import argparse
import pickle
from collections.abc import Iterator
from itertools import count
from math import sqrt
from operator import attrgetter
from random import Random
from typing import Any, NamedTuple

import msgspec

from benchmarks.fixtures import EPOCH, FLAVOR, Document
from jobtree.api.kinds.budget import Budget
from jobtree.api.kinds.policy import Policy
from jobtree.api.kinds.run import Run
from jobtree.api.kubernetes.node import read_node
from jobtree.api.schema.object_meta import API_VERSION
from jobtree.api.schema.quantities import DAY, HOUR, MINUTE, format_time, parse_duration
from jobtree.api.validation.object_parser import parse_object
from jobtree.core.lottery.draw import commitment_of, nonce_for
from jobtree.core.model.actions import Plan
from jobtree.core.model.outcomes import REQUEUES
from jobtree.core.model.promise import LOTTERY, Promise
from jobtree.core.planning.run_to_rest import run_to_rest
from jobtree.core.reporting.reservation_codec import reservation_forecast
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World

GPUS_PER_NODE = 8
TEAMS = ("a", "b", "c")
PLAYED = 8 * HOUR  # after the Runs that wait are submitted
LONGEST_NOTICE = 30 * MINUTE


class Told(NamedTuple):
    """What a Run was told of one draw, and what came of it."""

    probability: float  # when its notice began
    lost: bool


class Record(msgspec.Struct):
    """Everything that happened in one or more plays."""

    told: list[Told] = []
    untold: int = 0  # losers that were not told at least their notice before
    lotteries: int = 0
    lost_ms: int = 0  # GPU-milliseconds of work that losers have to do again
    gpu_ms: int = 0  # GPU-milliseconds that were played

    def add(self, other: "Record") -> None:
        self.told += other.told
        self.untold += other.untold
        self.lotteries += other.lotteries
        self.lost_ms += other.lost_ms
        self.gpu_ms += other.gpu_ms

    def deviation(self) -> float:
        """Returns how far the number of losses is from what was told, in standard deviations of luck."""
        return deviation(self.told)

    def buckets(self) -> Iterator[tuple[float, float, int]]:
        """Yields by tenths of what was told: the mean of that, the share that lost, and the number."""
        for tenth in range(10):
            told = [one for one in self.told if tenth / 10 < one.probability <= (tenth + 1) / 10]
            if told:
                mean = sum(one.probability for one in told) / len(told)
                yield mean, sum(one.lost for one in told) / len(told), len(told)


def deviation(told: list[Told]) -> float:
    excess = sum(one.lost - one.probability for one in told)
    variance = sum(one.probability * (1 - one.probability) for one in told)
    return excess / sqrt(max(variance, 1))


# Crowds


def crowd(seed: int, policy: Policy) -> World:
    """Returns a fleet that is full, and Runs that wait for parts of it."""
    random = Random(seed)
    world = World(policy, EPOCH)
    islands, size = random.choice((1, 1, 2)), random.randint(4, 8)
    for number in range(islands * size):
        world.put_node(read_node(node(number, f"nv-{number // size}"), "calibration"))
    capacity = islands * size * GPUS_PER_NODE
    for team in TEAMS:
        world.put_budget(parsed(budget(team, capacity), Budget))
    numbers = count()
    width = 0
    while width < capacity - GPUS_PER_NODE:
        spec, gpus = running_spec(random)
        submit(world, f"old-{next(numbers)}", random.choice("ab"), spec)
        width += gpus
    world.advance_clock(EPOCH + random.choice((90, 120, 150)) * MINUTE)
    settle(world)
    for _ in range(random.randint(2, 5)):
        submit(world, f"new-{next(numbers)}", random.choice("bc"), waiting_spec(random))
    return world


def running_spec(random: Random) -> tuple[Document, int]:
    gpus = random.choice((4, 8, 8, 16, 16, 24))
    spec: Document = gang(gpus)
    if random.random() < 0.3:
        spec["runtime"] = {"checkpoint": random.choice(("10m", "30m"))}
    if random.random() < 0.2 and gpus >= 16:
        spec["malleable"] = {"minTotalGPUs": 8, "maxTotalGPUs": gpus, "stepGPUs": 8}
    elif random.random() < 0.2:
        spec["spares"] = 1
    if random.random() < 0.1:
        spec.setdefault("runtime", {})["maxDuration"] = random.choice(("3h", "5h"))
    return spec, gpus


def waiting_spec(random: Random) -> Document:
    if random.random() < 0.15:
        stages = [{"name": "train", **gang(8)}, {"name": "eval", **gang(8), "with": ["train"]}]
        return {"stages": stages}
    spec: Document = gang(random.choice((8, 8, 16, 16, 24)))
    if random.random() < 0.5:
        spec["runtime"] = {"checkpoint": "10m"}
    if random.random() < 0.2:
        spec.setdefault("runtime", {})["maxDuration"] = "2h"
    return spec


def gang(gpus: int) -> Document:
    return {"resources": {"gpuType": FLAVOR, "totalGPUs": gpus}}


def node(number: int, domain: str) -> Document:
    labels = {"region": "r", "cluster": "c", "fabric.domain": domain, "gpu.flavor": FLAVOR}
    return {
        "metadata": {"name": f"n{number:02d}", "labels": labels},
        "status": {
            "allocatable": {"nvidia.com/gpu": str(GPUS_PER_NODE), "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def budget(team: str, gpus: int) -> Document:
    envelopes = [{"name": "main", "flavor": FLAVOR, "concurrency": gpus}]
    return document("Budget", {"name": team}, {"owner": f"org:{team}", "envelopes": envelopes})


def document(kind: str, metadata: Document, spec: Document) -> Document:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def parsed(body: Document, kind: type[Any]) -> Any:  # noqa: ANN401  an object of that kind
    wire = parse_object(body, "calibration")
    assert isinstance(wire, kind)
    return wire


def submit(world: World, name: str, team: str, spec: Document) -> None:
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": f"{name}-uid",
        "creationTimestamp": format_time(world.now),
    }
    world.put_run(parsed(document("Run", metadata, {"owner": f"org:{team}", **spec}), Run))
    settle(world)


def settle(world: World, played: "Play | None" = None) -> None:
    def apply(plan: Plan) -> None:
        if played is not None:
            played.note(plan)
        world.apply_plan(plan)
        for child in plan.children:
            uid, created = f"{child.metadata.name}-uid", format_time(world.now)
            metadata = msgspec.structs.replace(child.metadata, uid=uid, creation_timestamp=created)
            world.put_run(msgspec.structs.replace(child, metadata=metadata))

    run_to_rest(world, apply, creates_children=True)


# Plays


def with_key(saved: bytes, key: bytes) -> World:
    """Returns a saved world with another lottery key, as if its promises had been made with that key."""
    world: World = pickle.loads(saved)  # noqa: S301  written by this process
    world.lottery_key = key
    for run in list(world.runs.values()):
        promise = run.promise
        if promise is not None:
            named = world.runs.get((run.key[0], promise.named_after), run)
            commitment = commitment_of(nonce_for(key, named.uid, promise.number))
            world.promise_index.set(run, msgspec.structs.replace(promise, commitment=commitment))
    return world


class Play:
    """One future of a crowd, with what each Run was told before each draw."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.record = Record()
        self._told: dict[str, list[tuple[int, dict[str, int]]]] = {}  # by Reservation: instants and odds
        self._until = world.now + PLAYED

    def play(self) -> Record:
        world, begun = self.world, self.world.now
        self._look()
        while (due := self._next_instant()) <= self._until:
            world.advance_clock(due)
            settle(world, self)
            self._look()
        gpus = sum(state.node.gpus for state in world.fleet.nodes.values())
        self.record.gpu_ms = gpus * (self._until - begun)
        return self.record

    def _next_instant(self) -> int:
        """Returns the next instant at which something is due, or at which the notice of a draw begins."""
        due = self.world.timers.next_instant()
        looks = [at - LONGEST_NOTICE for _, promise in self._promises() if (at := promise.at) is not None]
        later = [at for at in looks if at > self.world.now]
        return min([*later, self._until + 1 if due is None else due])

    def _promises(self) -> list[tuple[RunState, Promise]]:
        return [(run, run.promise) for run in self.world.runs.values() if run.promise is not None]

    def _look(self) -> None:
        """Notes what is told now of each coming draw."""
        for run, promise in self._promises():
            if promise.at is not None and promise.disruption == LOTTERY:
                odds = reservation_forecast(self.world, run, promise).odds
                self._told.setdefault(promise.name, []).append((self.world.now, odds))

    def note(self, plan: Plan) -> None:
        """Compares what a plan stops, which is not applied yet, with what was told of it."""
        stopped: dict[str, set[str]] = {}  # by Reservation
        losers: set[str] = set()
        since_last: set[str] = set()
        for action in plan.actions:
            if action.kind in REQUEUES:
                since_last.add(self.world.runs[action.run_key].uid)
            if action.record is not None and action.kind == "Activate" and action.promise is not None:
                stopped.setdefault(action.promise.name, set()).update(since_last)
                losers.update(action.record.decision.losers)
                since_last = set()
        for name, uids in stopped.items():
            self.record.lotteries += bool(uids & losers)
            told = self._told.pop(name, [])
            if told:
                self._compare(told, uids, losers)

    def _compare(self, told: list[tuple[int, dict[str, int]]], stopped: set[str], losers: set[str]) -> None:
        latest = told[-1][1]
        for run in sorted(self.world.runs.values(), key=attrgetter("uid")):
            if run.uid in stopped:
                notice = self._notice(run)
                had = [odds for at, odds in told if at <= self.world.now - notice and odds.get(run.uid)]
                self.record.untold += run.uid in losers and not had
                self._count_lost_work(run)
            if latest.get(run.uid) and not run.provisional:  # that is told 1, and may be given back (R6, X5)
                self.record.told.append(Told(latest[run.uid] / 1000, run.uid in stopped))

    def _notice(self, run: RunState) -> int:
        policy = self.world.policy
        wanted = policy.min_notice_ms if run.checkpoint_ms is None else run.checkpoint_ms
        return max(policy.min_notice_ms, min(wanted, policy.max_notice_ms))

    def _count_lost_work(self, run: RunState) -> None:
        ran = self.world.now - (self.world.now if run.since is None else run.since)
        self.record.lost_ms += run.width * (ran if run.checkpoint_ms is None else ran % run.checkpoint_ms)


def play_crowd(seed: int, keys: int, policy: Policy) -> Record:
    """Plays one crowd with many lottery keys."""
    saved, record = pickle.dumps(crowd(seed, policy)), Record()
    for number in range(keys):
        record.add(Play(with_key(saved, f"{seed}/{number}".encode())).play())
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--crowds", type=int, default=100)
    parser.add_argument("--keys", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first crowd")
    parser.add_argument("--peace", default="2h")
    arguments = parser.parse_args()
    policy, record = Policy(peace_ms=parse_duration(arguments.peace)), Record()
    for seed in range(arguments.first, arguments.first + arguments.crowds):
        record.add(play_crowd(seed, arguments.keys, policy))
    days = record.gpu_ms / DAY
    print(f"peace {arguments.peace}: {len(record.told)} times told, {record.deviation():+.1f} deviations")
    print(f"{record.untold} losers were not told in time")
    print(f"{1000 * record.lotteries / days:.1f} lotteries per 1000 GPU-days")
    print(f"{record.lost_ms / record.gpu_ms:.2%} of the GPU-hours are lost work")
    for told, lost, number in record.buckets():
        print(f"  told {told:.3f}  lost {lost:.3f}  ({number})")


if __name__ == "__main__":
    main()
