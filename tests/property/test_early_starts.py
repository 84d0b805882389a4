"""An early start never costs a Run its firm date (R7), in random crowds with recalls, failures and edits."""

from random import Random

import pytest

from jobtree.api.schema.quantities import HOUR, MINUTE
from jobtree.core.funding.conditional_promise import is_conditional
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.reasons import Reason
from tests.unit.core.build import T0, budget, node, nodes, run
from tests.unit.core.lab import Lab

OWNERS = ("org:a", "org:b", "org:c")
OUTSIDE = {Reason.NODES_LOST, Reason.NODE_FAILURE, Reason.FUNDING_LOST}


class Crowd:
    """Random Runs of a family; each date that a Run keeps beside an early start is watched."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(f"early/{seed}")
        budgets = [budget(owner, self.dice.choice((8, 16))) for owner in OWNERS]
        self.lab = Lab(nodes("nv-a", self.dice.choice((2, 3, 4))), budget("org"), *budgets, budget("x", 16))
        self.now = 0
        self.kept: dict[RunKey, int] = {}  # dates of Runs that run before them
        self.stopped = self.confirmed = self.told = 0

    def live(self, until: int) -> None:
        timers = self.lab.world.timers
        while self.now < until:
            due = timers.next_instant()
            self.now = until if due is None else max(self.now, min(due - T0, until))
            self.lab.advance(self.now)
            self.check()

    def check(self) -> None:
        world = self.lab.world
        for key, date in list(self.kept.items()):
            kept = world.runs[key]
            if kept.phase in ("Completed", "Failed"):
                del self.kept[key]
                continue
            promise = kept.promise
            moves = {line.partition(":")[0].partition(" Move ")[2] for line in self.lab.story[self.told :]}
            if moves & {f"{key[1]} ({reason})" for reason in OUTSIDE}:
                del self.kept[key]
            elif date <= world.now:
                assert kept.phase == "Running", (key, self.lab.story)
                self.confirmed += 1
                del self.kept[key]
            else:
                assert promise is not None, (key, self.lab.story)
                assert promise.at is not None, (key, self.lab.story)
                assert promise.at <= date, (key, self.lab.story)
                self.stopped += kept.phase != "Running"
        self.told = len(self.lab.story)
        for key, early in world.runs.items():
            if not early.keeps_date or early.promise is None or early.promise.at is None:
                continue
            if not is_conditional(world, early.promise):
                self.kept[key] = min(early.promise.at, self.kept.get(key, early.promise.at))

    def event(self, number: int) -> None:
        dice, lab = self.dice, self.lab
        chance = dice.random()
        running = [key[1] for key, state in lab.world.runs.items() if state.phase == "Running"]
        if chance < 0.15 and running:
            lab.finish(dice.choice(running))
        elif chance < 0.22:
            name = f"nv-a-0{dice.randrange(2)}"
            lab.put(node(name, failed=True))
            lab.settle()
            lab.put(node(name))
            lab.settle()
        elif chance < 0.28:
            lab.put(budget("org:c", dice.choice((0, 8, 16)) or 1))
            lab.settle()
        else:
            lab.submit(
                run(
                    f"r{number}",
                    dice.choice((*OWNERS, "x")),
                    dice.choice((8, 8, 16)),
                    at=self.now + number,
                    checkpoint=dice.choice((None, None, "10m")),
                    max_duration=dice.choice(("1h", "2h", "3h", "5h", None)),
                )
            )
        self.check()


@pytest.mark.parametrize("seed", range(60))
def test_early_start_never_costs_a_run_its_firm_date(seed: int) -> None:
    crowd = Crowd(seed)
    for number in range(25):
        crowd.event(number)
        crowd.live(crowd.now + crowd.dice.choice((0, 2, 10, 30)) * MINUTE)
    crowd.live(crowd.now + 6 * HOUR)
