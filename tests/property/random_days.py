"""Random days on a simulated cluster: Runs of four teams arrive, nodes fail and heal."""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from jobtree.api.documents.document_stream import Document
from jobtree.api.schema.quantities import DAY, HOUR, MINUTE, SECOND, parse_time
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import Promise
from jobtree.simulation.cluster.simulated_cluster import SimulatedCluster
from tests.unit.cli.manifests import T0, Body, budget, envelope, lasting, node, run

START = parse_time(T0)
TEAMS = ("a", "b", "c", "d")
DOMAINS = ("nv-a", "nv-b", "nv-c", "nv-d")
NODES = 8  # of each domain
GPUS = 8 * NODES * len(DOMAINS)
OVERSUBSCRIBED = 1.5


class Arrival(NamedTuple):
    at: int
    name: str
    team: str
    gpus: int
    seconds: int
    declared: bool
    checkpoint: bool

    def body(self, *, backfill: bool) -> Body:
        """Returns the Run as submitted; without ``backfill`` it declares no duration and no checkpoint."""
        runtime = {}
        if backfill and self.declared:
            runtime["maxDuration"] = f"{self.seconds * 5 // 4}s"
        if backfill and self.checkpoint:
            runtime["checkpoint"] = "10m"
        body = run(self.name, self.gpus, f"org:{self.team}", runtime=runtime)
        return lasting(body, f"{self.seconds}s")


def arrivals(dice: Random, count: int) -> list[Arrival]:
    """Returns the Runs of a day: together they need one and a half times the GPU-hours of the fleet."""
    drawn = []
    for _ in range(count):
        gpus = dice.choice((8, 8, 8, 16, 16, 32, 64))
        drawn.append((dice.randrange(DAY), gpus, dice.lognormvariate(0, 0.7)))
    total = sum(gpus * hours for _, gpus, hours in drawn)
    scale = OVERSUBSCRIBED * GPUS * 24 / total
    return [
        Arrival(
            START + at,
            f"r{number:03}",
            dice.choice(TEAMS),
            gpus,
            max(60, int(hours * scale * HOUR) // SECOND),
            dice.random() < 0.6,
            dice.random() < 0.2,
        )
        for number, (at, gpus, hours) in enumerate(sorted(drawn))
    ]


class PromiseChecker:
    """A simulated cluster whose promises are checked after every step."""

    def __init__(self, *bodies: Body) -> None:
        self.cluster = SimulatedCluster(START, checked=False)
        self.cluster.load(Document("test", body) for body in bodies)
        self.promises: dict[tuple[RunKey, int], Promise] = {}
        self.broken: list[str] = []
        self.slips: list[tuple[str, str]] = []  # the step, and the reason

    def submit(self, body: Body) -> None:
        self.cluster.submit([Document("test", body)])
        self.check("submit")

    def advance(self, until: int) -> None:
        self.cluster.advance(until)
        self.check("advance")

    def check(self, step: str) -> None:
        """Records promises that are overdue, moved without a slip, or slipped."""
        now = self.cluster.now
        for state in self.cluster.world.runs.values():
            promise = state.promise
            if promise is None:
                continue
            key = (state.key, promise.number)
            before = self.promises.get(key)
            self.promises[key] = promise
            if promise.at is not None and promise.at <= now and state.waiting:
                self.broken.append(f"{promise.name} was due at {promise.at} and still waits at {now}")
            if before is None or before.at is None or promise is before:
                continue
            if (promise.at is None or promise.at > before.at) and len(promise.slips) == len(before.slips):
                self.broken.append(f"{promise.name} moved from {before.at} to {promise.at} without a slip")
            self.slips += [(step, slip.reason) for slip in promise.slips[len(before.slips) :]]

    def late(self) -> Iterator[str]:
        """Yields the Runs that did not start by the last date of their promise."""
        started: dict[RunKey, list[int]] = {}
        for event in self.cluster.events:
            if event.name == "Admitted":
                started.setdefault(event.run, []).append(event.at)
        for (key, number), promise in self.promises.items():
            state = self.cluster.world.runs.get(key)
            ended = state is None or state.promise is None or state.promise.number != number
            if promise.at is None or not ended:
                continue
            if not any(promise.made_at <= at <= promise.at for at in started.get(key, ())):
                yield f"{promise.name} was promised {promise.at} and did not start by then"

    def used(self, until: int) -> int:
        """Returns the GPU-milliseconds of all leases by that instant."""
        total = 0
        for _, body in self.cluster.objects.of("Lease"):
            start = parse_time(body["spec"]["start"])
            ended = (body.get("status") or {}).get("end")
            end = min(until, parse_time(ended)) if ended else until
            gpus = sum(slot_count(text) for text in body["spec"]["slots"])
            total += gpus * max(0, end - start)
        return total


def slot_count(text: str) -> int:
    first, _, last = text.partition("#")[2].partition("-")
    return int(last or first) - int(first) + 1


def random_day(seed: int, count: int, *, backfill: bool) -> PromiseChecker:
    """Plays a day of arrivals on which twelve nodes fail and come back later."""
    dice = Random(seed)
    fleet = [node(f"{domain}-{number}", domain) for domain in DOMAINS for number in range(NODES)]
    teams = [budget(team, envelope(GPUS)) for team in TEAMS]
    day = PromiseChecker(*fleet, *teams)
    names = [body["metadata"]["name"] for body in fleet]
    faults: list[tuple[int, str, str]] = []
    for _ in range(12):
        at, name = dice.randrange(DAY), dice.choice(names)
        faults += [(START + at, "fail", name), (START + at + dice.randrange(MINUTE, 4 * HOUR), "heal", name)]
    events: list[tuple[int, str, str | Arrival]] = [*faults]
    events += [(arrival.at, "submit", arrival) for arrival in arrivals(dice, count)]
    for at, kind, subject in sorted(events, key=lambda event: (event[0], event[1], str(event[2]))):
        day.advance(at)
        if isinstance(subject, Arrival):
            day.submit(subject.body(backfill=backfill))
            continue
        (day.cluster.fail if kind == "fail" else day.cluster.heal)([subject])
        day.check(kind)
    return day
