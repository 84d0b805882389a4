"""Expected starts are calibrated: compared with the true starts over simulated weeks."""

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
TEAMS = (("a", 8, 1.0), ("b", 16, 2.0), ("c", 32, 1.5))  # GPUs of a Run, and its median hours
SPREAD = 0.8  # standard deviation of the logarithm of durations


class Outcome(NamedTuple):
    """An expected start, and the true start."""

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
        self.estimates: dict[str, StartEstimate] = {}

    def live(self) -> list[Outcome]:
        """Plays the days; returns the outcomes of all Runs that waited after the first day."""
        at, number = START, 0
        while at < self.until:
            at += int(self.dice.expovariate(1 / (0.4 * HOUR))) + 1
            self.cluster.advance(at)
            self.submit(f"r{number}")
            number += 1
        self.cluster.advance(at + 3 * DAY)
        starts = {
            event.run[1]: event.at for event in reversed(self.cluster.events) if event.name == "Admitted"
        }
        return [Outcome(expected, starts[name]) for name, expected in self.estimates.items()]

    def submit(self, name: str) -> None:
        """Submits a random Run, and records its expected start if it waits."""
        team, gpus, hours = self.dice.choice(TEAMS)
        seconds = int(hours * HOUR * self.dice.lognormvariate(0, SPREAD)) // SECOND
        self.cluster.submit([document(lasting(run(name, gpus, f"org:{team}"), f"{seconds}s"))])
        state = self.cluster.world.runs["default", name]
        if state.waiting and self.cluster.now > START + DAY:
            expected = ExpectedStarts(self.cluster.world).estimate_and_record(state)
            if expected is not None:
                self.estimates[name] = expected


def document(body: Body) -> Document:
    return Document("test", body)


def test_expected_starts_are_calibrated() -> None:
    """40 to 60 % of the true starts come by p50, and 85 to 95 % by p90."""
    outcomes = [outcome for seed in (1, 2, 3) for outcome in Weeks(seed, 10).live()]
    assert len(outcomes) > 500
    by_p50 = sum(outcome.start <= outcome.expected.p50 for outcome in outcomes) / len(outcomes)
    by_p90 = sum(outcome.start <= outcome.expected.p90 for outcome in outcomes) / len(outcomes)
    assert 0.4 <= by_p50 <= 0.6, (by_p50, by_p90, len(outcomes))
    assert 0.85 <= by_p90 <= 0.95, (by_p50, by_p90, len(outcomes))
