"""Budget is left idle for a Run without a date for at most its width times ``keepIdle`` (C12).

An oracle sums what each envelope leaves idle, millisecond by millisecond, from the leases and promises alone.
"""

from collections.abc import Iterator
from random import Random

import pytest

from jobtree.api.kinds.policy import Policy
from jobtree.api.schema.quantities import HOUR, MINUTE
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.world.world import World
from tests.unit.core.build import T0, budget, nodes, run
from tests.unit.core.lab import Lab

KEEP_IDLE = 2 * HOUR
OWNERS = ("org:a", "org:b", "org:c")


def idle_now(world: World) -> Iterator[tuple[RunKey, int]]:
    """Yields the GPUs that each envelope leaves idle for the first Run in line, and that Run."""
    for key, envelope in sorted(world.budgets.envelopes.items()):
        line = sorted(
            (waiting.owner != envelope.owner, waiting.creation_order, dict(promise.funding)[key])
            for waiting in world.runs.values()
            if (promise := waiting.promise) is not None
            and promise.at is None
            and key in dict(promise.funding)
        )
        paid = sum(
            posted.lease.gpus
            for posted in world.posted_leases.values()
            if posted.lease.payer == key and posted.lease.class_ != "Opportunistic"
        )
        free = envelope.spec.concurrency - paid
        if line and free > 0:
            _, (_, *run_key), gpus = line[0]
            yield (run_key[0], run_key[1]), min(free, gpus)


class IdleOracle:
    """A crowd of random Runs with the sum of what is left idle for each."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        budgets = [budget(owner, dice.choice((8, 16, 24))) for owner in OWNERS]
        self.lab = Lab(nodes("nv-a", 4), budget("org"), *budgets, policy=Policy(keep_idle_ms=KEEP_IDLE))
        self.idle: dict[RunKey, int] = {}
        self.now = 0

    def live(self, until: int) -> None:
        """Lets time pass in steps that end whenever something is due."""
        timers = self.lab.world.timers
        while self.now < until:
            due = timers.next_instant()
            step = until if due is None else max(self.now, min(due - T0, until))
            for run_key, gpus in idle_now(self.lab.world):
                self.idle[run_key] = self.idle.get(run_key, 0) + gpus * (step - self.now)
            self.now = step
            self.lab.advance(step)
            self.check()

    def check(self) -> None:
        for run_key, used in self.idle.items():
            waiting = self.lab.world.runs[run_key]
            if waiting.promise is not None and waiting.reservations_made == 1:
                limit = waiting.promise.width * KEEP_IDLE
                assert used <= limit or not waiting.waits_for_funding, self.lab.story
                record = self.lab.world.idle_budget.records.get(run_key)
                assert record is not None
                assert record.used_by(self.lab.world.now) == used * 1000, (run_key, self.lab.story)

    def submit(self, number: int) -> None:
        dice = self.dice
        self.lab.submit(
            run(
                f"r{number}",
                dice.choice(OWNERS),
                dice.choice((8, 8, 16, 24)),
                at=self.now + number,
                checkpoint=dice.choice((None, "10m")),
                max_duration=dice.choice((None, None, "1h", "4h")),
            )
        )


@pytest.mark.parametrize("seed", range(40))
def test_idle_budget_is_what_an_oracle_sums_and_never_more_than_the_limit(seed: int) -> None:
    crowd = IdleOracle(Random(f"idle/{seed}"))
    for number in range(14):
        crowd.submit(number)
        crowd.live(crowd.now + crowd.dice.choice((0, 5, 30, 90)) * MINUTE)
        running = [key[1] for key, state in crowd.lab.world.runs.items() if state.phase == "Running"]
        if running and crowd.dice.random() < 0.3:
            crowd.lab.finish(crowd.dice.choice(running))
    crowd.live(crowd.now + 12 * HOUR)
