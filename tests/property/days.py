"""Random days on a simulated cluster: four teams' Runs arrive, nodes fail and heal, promises are watched."""

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
        """The Run as submitted; without backfill it says nothing that lets it flow around promises."""
        runtime = {}
        if backfill and self.declared:
            runtime["maxDuration"] = f"{self.seconds * 5 // 4}s"
        if backfill and self.checkpoint:
            runtime["checkpoint"] = "10m"
        made = run(self.name, self.gpus, f"org:{self.team}", runtime=runtime)
        return lasting(made, f"{self.seconds}s")


def arrivals(dice: Random, count: int) -> list[Arrival]:
    """So many Runs in a day that ask for one and a half times what the fleet has."""
    asked = []
    for _ in range(count):
        gpus = dice.choice((8, 8, 8, 16, 16, 32, 64))
        asked.append((dice.randrange(DAY), gpus, dice.lognormvariate(0, 0.7)))
    total = sum(gpus * hours for _, gpus, hours in asked)
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
        for number, (at, gpus, hours) in enumerate(sorted(asked))
    ]


class Watched:
    """A cluster whose promises are looked at after every step."""

    def __init__(self, *bodies: Body) -> None:
        self.cluster = SimulatedCluster(START, checked=False)
        self.cluster.load(Document("test", body) for body in bodies)
        self.promises: dict[tuple[RunKey, int], Promise] = {}
        self.broken: list[str] = []
        self.slips: list[tuple[str, str]] = []  # in what step, and the reason given

    def submit(self, body: Body) -> None:
        self.cluster.submit([Document("test", body)])
        self.look("submit")

    def advance(self, until: int) -> None:
        self.cluster.advance(until)
        self.look("advance")

    def look(self, step: str) -> None:
        """A promise moves later only with a slip, and who is past it has started."""
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
        """Runs that started after the last time that they were promised."""
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
        """GPU-milliseconds under leases by then."""
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


def random_day(seed: int, count: int, *, backfill: bool) -> Watched:
    """A day of arrivals, with a node that fails every two hours or so and comes back later."""
    dice = Random(seed)
    fleet = [node(f"{domain}-{number}", domain) for domain in DOMAINS for number in range(NODES)]
    teams = [budget(team, envelope(GPUS)) for team in TEAMS]
    day = Watched(*fleet, *teams)
    names = [body["metadata"]["name"] for body in fleet]
    faults: list[tuple[int, str, str]] = []
    for _ in range(12):
        at, name = dice.randrange(DAY), dice.choice(names)
        faults += [(START + at, "fail", name), (START + at + dice.randrange(MINUTE, 4 * HOUR), "heal", name)]
    coming: list[tuple[int, str, str | Arrival]] = [*faults]
    coming += [(one.at, "submit", one) for one in arrivals(dice, count)]
    for at, what, thing in sorted(coming, key=lambda one: (one[0], one[1], str(one[2]))):
        day.advance(at)
        if isinstance(thing, Arrival):
            day.submit(thing.body(backfill=backfill))
            continue
        (day.cluster.fail if what == "fail" else day.cluster.heal)([thing])
        day.look(what)
    return day
