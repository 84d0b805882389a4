"""``python -m benchmarks.slip_reasons``: checks the recorded reasons of promises that were not kept.

The check is independent of the planner. It takes away the cause that the reason names, from the instant at
which the date was told, and replays the trace again. The reason is right if the promise is kept then.

- Lost nodes (``NodesLost``, ``NodeFailure``, ``CapacityLost``): without the outages that began later.
- The owner's need (``OwnerNeeds``, ``Recalled``): without the later Runs of other teams; or without the Runs
  of the owners on whose budget the date counted: the later ones, and those that waited when it slipped.
- Any other reason names nothing that happened outside, and no budget is edited here: it is wrong.

If a promise is kept where nobody arrives later, a later arrival broke it: then the owner's need is the only
right reason, whatever was recorded.
"""

import argparse
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Literal, NamedTuple

import msgspec

from benchmarks.crowds import Crowd, blue_waters, flood, helios, small
from benchmarks.kept_promises import OWNER_NEEDS, RESTART_COST, DetailedReplay
from jobtree.core import Action, RunKey, owners_counted_on
from jobtree.simulation.inputs.replay_setup import ReplaySetup
from jobtree.simulation.replay.meter import NEVER
from jobtree.simulation.replay.saved_replay import run

LOST_NODES = ("NodesLost", "NodeFailure", "CapacityLost")
OWNERS_NEED = (OWNER_NEEDS, "Recalled")
Verdict = Literal["right", "no such cause", "slips without it too", "a later arrival broke it"]


class Break(NamedTuple):
    """A date that slipped or was not kept. Instants are those of the planner's clock."""

    run_key: RunKey
    date: int
    told: int
    conditional: bool
    reason: str
    slipped: int = 0
    owners: tuple[str, ...] = ()  # on whose budget the date counted


class Cancelled(NamedTuple):
    """Owners whose waiting Runs are cancelled at an instant."""

    at: int
    owners: tuple[str, ...]


class CheckedReplay(DetailedReplay):
    """A replay without some jobs that records which dates slipped."""

    def __init__(
        self, setup: ReplaySetup, removed: Collection[int] = (), cancelled: Cancelled | None = None
    ) -> None:
        super().__init__(setup)
        self._removed = frozenset(removed)
        self._cancelled = cancelled
        self._slips: dict[tuple[RunKey, int], tuple[str, int, tuple[str, ...]]] = {}
        self._owners: dict[RunKey, tuple[str, ...]] = {}  # on whose budget the present promise counts

    def submit(self, job: int) -> None:
        if job in self._removed:
            self.meter.finished += 1
        else:
            super().submit(job)

    def arrive_at(self, at: int) -> None:
        super().arrive_at(at)
        cancelled = self._cancelled
        if cancelled is None or at + self.setup.epoch < cancelled.at:
            return
        self._cancelled = None
        for waiting in [waiting for waiting in self.world.runs.values() if waiting.waiting]:
            if waiting.owner in cancelled.owners:
                self.world.drop_run(waiting.key)

    def _apply_action(self, action: Action) -> None:
        if action.run_key not in self.world.runs:  # it was cancelled while it waited
            self.meter.finished += action.kind == "Cancel"
            return
        super()._apply_action(action)
        promise, run_key = action.promise, action.run_key
        if promise is None or action.kind not in ("Reserve", "Move"):
            return
        for slip in promise.slips:
            if slip.before is not None:
                noted = (slip.reason, action.at, self._owners.get(run_key, ()))
                self._slips.setdefault((run_key, slip.before), noted)
        self._owners[run_key] = owners_counted_on(self.world, promise)

    def runs_since(self, job: int, at: int) -> bool:
        """Whether a job runs since that instant at least, or has finished after a start by then."""
        started = self._started.get(job)
        if self.meter.finish[job] != NEVER:
            started = self.meter.first_start[job]
        return started is not None and started <= at

    def breaks(self) -> list[Break]:
        """Returns every date that slipped or was not kept, each once."""
        found = {
            (miss.run_key, miss.due): (miss.reason, miss.due, self._owners.get(miss.run_key, ()))
            for miss in self.promises.misses
        }
        told = self.promises.told
        return [
            Break(run_key, date, *told[run_key, date], reason, slipped, owners)
            for (run_key, date), (reason, slipped, owners) in (found | self._slips).items()
            if (run_key, date) in told
        ]


def checked(setup: ReplaySetup) -> Iterator[tuple[Break, Verdict]]:
    """Yields each broken date of a replay with the verdict on its reason."""
    replay = CheckedReplay(setup)
    run(replay)
    for broken in replay.breaks():
        yield broken, verdict(setup, broken)


def verdict(setup: ReplaySetup, broken: Break) -> Verdict:
    epoch, job = setup.epoch, int(broken.run_key[1])
    later = [other for other, submit in enumerate(setup.trace.submit) if submit + epoch > broken.told]
    if broken.reason in LOST_NODES:
        calm = tuple(outage for outage in setup.outages if outage.start + epoch <= broken.told)
        if len(calm) == len(setup.outages):
            return "no such cause"
        kept = is_kept(msgspec.structs.replace(setup, outages=calm), broken)
        return "right" if kept else "slips without it too"
    if broken.reason not in OWNERS_NEED:
        return "a later arrival broke it" if is_kept(setup, broken, later) else "no such cause"
    team = setup.trace.team[job]
    others = [other for other in later if setup.trace.team[other] != team]
    if is_kept(setup, broken, others):
        return "right"
    of_owners = [other for other in others if setup.owners[setup.trace.team[other]] in broken.owners]
    cancelled = Cancelled(broken.slipped, broken.owners)
    return "right" if is_kept(setup, broken, of_owners, cancelled) else "slips without it too"


def is_kept(
    setup: ReplaySetup, broken: Break, removed: Collection[int] = (), cancelled: Cancelled | None = None
) -> bool:
    """Whether the job runs at the date in a replay without these jobs, and is not stopped soon after (R5).

    Until the date was told, both replays are the same. Other dates that it is told do not matter.
    """
    replay = CheckedReplay(setup, removed, cancelled)
    until = broken.date - setup.epoch + replay.promises.guard
    run(replay, watch=lambda simulation: simulation.now > until)
    return replay.runs_since(int(broken.run_key[1]), broken.date - setup.epoch)


def crowds(traces: int, others: int, jobs: int) -> Iterator[Crowd]:
    yield from map(small, range(traces))
    for make in (helios, blue_waters, flood):
        yield from (make(number, jobs) for number in range(others))


def report(crowd: Crowd, found: Iterable[tuple[Break, Verdict]], epoch: int) -> "Counter[tuple[str, str]]":
    """Prints each broken date of a trace; returns the number of each reason and verdict."""
    counts = Counter[tuple[str, str]]()
    for broken, answer in found:
        kind = "conditional" if broken.conditional else "firm"
        told, date = (f"{(at - epoch) / 3_600_000:.2f} h" for at in (broken.told, broken.date))
        name = f"{crowd.name} job {broken.run_key[1]}"
        print(f"{name:24} {kind:12} told {told:>10} date {date:>10}  {broken.reason}: {answer}", flush=True)
        counts[f"{kind} {broken.reason}", answer] += 1
    return counts


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slip_reasons", description=__doc__)
    parser.add_argument("--traces", type=int, default=40, help="small traces (40)")
    parser.add_argument("--crowds", type=int, default=0, help="crowds of each kind (0)")
    parser.add_argument("--jobs", type=int, default=200, help="of a crowd (200)")
    parser.add_argument("--outages", action="store_true", help="nodes fail as on a real fleet")
    parser.add_argument("--restarts", action="store_true", help="a restart costs 10 minutes")
    options = parser.parse_args(arguments)
    counts = Counter[tuple[str, str]]()
    for crowd in crowds(options.traces, options.crowds, options.jobs):
        setup = crowd.setup(restart_cost=RESTART_COST if options.restarts else 0, outages=options.outages)
        counts += report(crowd, checked(setup), setup.epoch)
    for (reason, answer), count in sorted(counts.items()):
        print(f"{count:6}  {reason}: {answer}")
    return 1 if any(answer != "right" for _, answer in counts) else 0


if __name__ == "__main__":
    raise SystemExit(main())
