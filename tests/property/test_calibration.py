"""Expected starts, compared with the true ones over simulated weeks: even odds are even."""

from random import Random
from typing import NamedTuple

from jobtree.api.documents.document_stream import Document
from jobtree.api.kinds.policy import Policy
from jobtree.api.schema.quantities import DAY, HOUR, SECOND, parse_time
from jobtree.core.runs.start_calibration import StartEstimate
from jobtree.core.start_forecast.expected_start import ExpectedStarts
from jobtree.simulation.cluster.simulated_cluster import SimulatedCluster
from tests.unit.cli.manifests import T0, Body, budget, envelope, lasting, node, run

START = parse_time(T0)
TEAMS = (("a", 8, 1.0), ("b", 16, 2.0), ("c", 32, 1.5))  # GPUs of a Run, and its usual hours
SPREAD = 0.8  # of the logarithm of durations


class Seen(NamedTuple):
    expected: StartEstimate
    start: int


class Weeks:
    """Runs of three teams keep arriving on a fleet of 144 GPUs that they nearly fill."""

    def __init__(self, seed: int, days: int) -> None:
        self.dice = Random(seed)
        self.cluster = SimulatedCluster(START, Policy(min_runtime_ms=12 * HOUR), checked=False)
        fleet = [node(f"{name}{number}", name) for name in ("nv-a", "nv-b", "nv-c") for number in range(6)]
        teams = [budget(team, envelope(1000)) for team, _, _ in TEAMS]
        self.cluster.load(document(body) for body in (*fleet, *teams))
        self.until = START + days * DAY
        self.foreseen: dict[str, StartEstimate] = {}

    def live(self) -> list[Seen]:
        """All that was foreseen when a Run had to wait, once enough was known, and what came of it."""
        at, number = START, 0
        while at < self.until:
            at += int(self.dice.expovariate(1 / (0.4 * HOUR))) + 1
            self.cluster.advance(at)
            self.arrive(f"r{number}")
            number += 1
        self.cluster.advance(at + 3 * DAY)
        starts = {
            event.run[1]: event.at for event in reversed(self.cluster.events) if event.name == "Admitted"
        }
        return [Seen(expected, starts[name]) for name, expected in self.foreseen.items()]

    def arrive(self, name: str) -> None:
        team, gpus, hours = self.dice.choice(TEAMS)
        seconds = int(hours * HOUR * self.dice.lognormvariate(0, SPREAD)) // SECOND
        self.cluster.submit([document(lasting(run(name, gpus, f"org:{team}"), f"{seconds}s"))])
        state = self.cluster.world.runs["default", name]
        if state.waiting and self.cluster.now > START + DAY:
            expected = ExpectedStarts(self.cluster.world).estimate_and_record(state)
            if expected is not None:
                self.foreseen[name] = expected


def document(body: Body) -> Document:
    return Document("test", body)


def test_expected_starts_are_calibrated() -> None:
    """Of the true starts 40 to 60 % come before p50, and 85 to 95 % before p90."""
    seen = [one for seed in (1, 2, 3) for one in Weeks(seed, 10).live()]
    assert len(seen) > 500
    half = sum(one.start <= one.expected.p50 for one in seen) / len(seen)
    most = sum(one.start <= one.expected.p90 for one in seen) / len(seen)
    assert 0.4 <= half <= 0.6, (half, most, len(seen))
    assert 0.85 <= most <= 0.95, (half, most, len(seen))
