"""The prospects of all who wait, as a world stands: when each may start, in a number of courses.

The waiting Runs come in the order of their promises. The first ``HEAD`` of each line are played through
(``courses``), ``MAX_SIMULATED`` in all; who stands behind them waits as long as the line takes at the rate of
its head (``pace``). So this costs the same however many wait. Who comes later stands behind them.

What was free is remembered: where much of it has been taken since, it was by Runs that never waited, and
nothing is known of those here.
"""

from collections.abc import Sequence

from jobtree.core.accounts.envelope_accounts import FOREVER
from jobtree.core.model.gpu_lease import EnvelopeKey, RunKey
from jobtree.core.model.promise import Promise
from jobtree.core.runs.run_state import RunState
from jobtree.core.start_forecast.run_end_forecast import SAMPLE_PATHS
from jobtree.core.start_forecast.sample_paths import SamplePaths
from jobtree.core.supply.flavor_pool import FlavorPool
from jobtree.core.world.payer_candidates import payer_candidates
from jobtree.core.world.world import World


class QueueRate:
    def __init__(self) -> None:
        self.gpus = 0  # of all who stand in it
        self.played = 0  # those at its head whose waits are known
        self._products = [0] * SAMPLE_PATHS  # of the GPUs up to a Run and its wait, in every course
        self._squares = [0] * SAMPLE_PATHS  # of the GPUs up to it

    def join(self, gpus: int) -> int:
        """One more stands in line: the GPUs that start up to it."""
        self.gpus += gpus
        return self.gpus

    def record_wait(self, gpus: int, waits: Sequence[int]) -> None:
        """How long one at its head waits, in every course, with so many GPUs up to it."""
        self.played += 1
        for number, wait in enumerate(waits):
            if wait < FOREVER:
                self._products[number] += gpus * wait
                self._squares[number] += gpus * gpus

    def waits(self, gpus: int) -> list[int]:
        """How long one waits with so many GPUs up to it, in every course that says so."""
        sums = zip(self._products, self._squares, strict=True)
        return [gpus * product // square for product, square in sums if square]


MAX_SAMPLE_PATHS = SAMPLE_PATHS - 1  # that must have a Run start: durations seen so far are not all there are
HEAD = 24  # Runs of one line that are played through
MAX_SIMULATED = 192
SAMPLE = 32  # Runs whose waits say what is usual
DRIFT = 20  # what may be taken unforeseen: this part of a flavor's GPUs, and of what a payer may pay for

QueueKey = tuple[str, str, tuple[str, ...]]  # owner, flavor, sponsors: such Runs have the same payers


class QueueForecast:
    def __init__(self, world: World) -> None:
        self._world = world
        self.at, self.hopes = world.now, world.date_search_generation
        self.played = 0
        self._courses = SamplePaths(world)
        self._answers: dict[RunKey, tuple[Promise, list[int]]] = {}
        self._behind: dict[RunKey, tuple[Promise, int]] = {}  # GPUs that start up to a Run in its line
        self._lines: dict[QueueKey, QueueRate] = {}
        self._slots = {name: unfunded_gpus(flavor) for name, flavor in world.fleet.flavors.items()}
        self._money: dict[EnvelopeKey, int] = {}
        self.typical_wait = self._simulate_head()

    def includes(self, run: RunState) -> bool:
        """Whether the Run stands in line already, with the promise that it has."""
        known = self._answers.get(run.key) or self._behind.get(run.key)
        return known is not None and known[0] is run.promise

    def is_outdated(self, run: RunState) -> bool:
        """Whether much of what was free for such a Run has been taken since."""
        flavor = self._world.fleet.flavor(run.flavor)
        lost = self._slots.get(flavor.name, 0) - unfunded_gpus(flavor)
        if lost > 0 and lost * DRIFT > sum([one.capacity for one in flavor.domains.values()]):
            return True
        accounts = ((one.envelope.key, one.envelope.account) for one in payer_candidates(self._world, run))
        return any(
            (self._money.get(key, 0) - account.free_charge()) * DRIFT > account.max_charge
            for key, account in accounts
        )

    def starts(self, run: RunState, promise: Promise) -> list[int]:
        """The instants at which a waiting Run may start, sorted; none where nobody can say."""
        if not self.includes(run):
            self._append(run, promise)
        if run.key not in self._answers:
            gpus, line = self._behind.pop(run.key)[1], self._queue_key(run)
            latest = FOREVER if promise.at is None else promise.at
            found = sorted(min(latest, self.at + wait) for wait in line.waits(gpus))
            self._answers[run.key] = (promise, found if len(found) >= MAX_SAMPLE_PATHS else [])
        return self._answers[run.key][1]

    def _simulate_head(self) -> int:
        """Let all who wait stand in line; how long they usually wait."""
        runs = self._world.runs.values()
        waiting = [(one.promise, one) for one in runs if one.promise and one.waiting]
        waiting.sort(key=lambda pair: pair[0].precedence)
        for promise, one in waiting:
            self._append(one, promise)
        few = waiting[:: 1 + len(waiting) // SAMPLE]
        found = [courses for promise, one in few if (courses := self.starts(one, promise))]
        waits = sorted(courses[len(courses) // 2] for courses in found)
        return waits[len(waits) // 2] - self.at if waits else 0

    def _append(self, run: RunState, promise: Promise) -> None:
        """Stand in line, behind those promised before; at its head the Run is played through."""
        self._answers.pop(run.key, None)
        if promise.at is None and not promise.funding:
            self._answers[run.key] = (promise, [])  # nothing known will ever start it
            return
        line = self._queue_key(run)
        gpus = line.join(promise.width)
        if line.played < HEAD and self.played < MAX_SIMULATED:
            self.played += 1
            starts = self._courses.simulate_start(run, promise)
            line.record_wait(gpus, [at if at == FOREVER else at - self.at for at in starts])
            found = sorted(at for at in starts if at < FOREVER)
            self._answers[run.key] = (promise, found if len(found) >= MAX_SAMPLE_PATHS else [])
        else:
            self._behind[run.key] = (promise, gpus)

    def _queue_key(self, run: RunState) -> QueueRate:
        key = (run.owner, run.flavor, run.sponsors)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = QueueRate()
            for one in payer_candidates(self._world, run):
                self._money.setdefault(one.envelope.key, one.envelope.account.free_charge())
        return line


def unfunded_gpus(flavor: FlavorPool) -> int:
    """GPUs that nobody pays for."""
    return flavor.free + flavor.opportunistic_slots
