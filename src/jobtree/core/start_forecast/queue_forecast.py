"""Forecasts when each waiting Run may start, on several sample paths.

Waiting Runs come in the order of their promises. Runs with the same payers form a line. The first ``HEAD``
Runs of each line are simulated (``sample_paths``), ``MAX_SIMULATED`` in all; the wait of those behind them
follows from the rate at which the head of the line starts. So the cost does not grow with the number of
waiting Runs. Runs that come later are put behind all others.

The forecast remembers what was free. If much of that has been used since, it was by Runs that never waited,
which the forecast does not know.
"""

from collections.abc import Sequence

from jobtree.core.accounts.envelope_accounts import FOREVER
from jobtree.core.funding.payer_candidates import payer_candidates
from jobtree.core.model.gpu_lease import EnvelopeKey, RunKey
from jobtree.core.model.promise import Promise
from jobtree.core.runs.run_state import RunState
from jobtree.core.start_forecast.run_end_forecast import SAMPLE_PATHS
from jobtree.core.start_forecast.sample_paths import SamplePaths
from jobtree.core.supply.flavor_pool import FlavorPool
from jobtree.core.world.world import World


class QueueRate:
    """The rate at which the head of one line starts, in GPUs, on each sample path."""

    def __init__(self) -> None:
        self.gpus = 0  # of all Runs in the line
        self.simulated = 0  # Runs of its head that were simulated
        self._products = [0] * SAMPLE_PATHS  # on each path, the sum of GPUs up to a Run × its wait
        self._squares = [0] * SAMPLE_PATHS  # on each path, the sum of squared GPUs up to a Run

    def join(self, gpus: int) -> int:
        """Adds a Run to the line; returns the GPUs that start up to and including it."""
        self.gpus += gpus
        return self.gpus

    def record_wait(self, gpus: int, waits: Sequence[int]) -> None:
        """Records how long a Run of the head waits on each path, with so many GPUs up to and including it."""
        self.simulated += 1
        for path, wait in enumerate(waits):
            if wait < FOREVER:
                self._products[path] += gpus * wait
                self._squares[path] += gpus * gpus

    def waits(self, gpus: int) -> list[int]:
        """How long a Run waits with so many GPUs up to it, on each path where Runs of the head start."""
        sums = zip(self._products, self._squares, strict=True)
        return [gpus * product // square for product, square in sums if square]


MAX_SAMPLE_PATHS = SAMPLE_PATHS - 1  # paths on which a Run must start: history is never complete
HEAD = 24  # Runs of one line that are simulated
MAX_SIMULATED = 192
SAMPLE = 32  # Runs whose waits make the typical wait
DRIFT = 20  # a forecast is outdated if more than this part of a flavor or of a payer was used since

QueueKey = tuple[str, str, tuple[str, ...]]  # owner, flavor, sponsors: such Runs have the same payers


class QueueForecast:
    def __init__(self, world: World) -> None:
        self._world = world
        self.at, self.date_search_generation = world.now, world.date_search_generation
        self.simulated = 0
        self._sample_paths = SamplePaths(world)
        self._starts: dict[RunKey, tuple[Promise, list[int]]] = {}
        self._gpus_before: dict[RunKey, tuple[Promise, int]] = {}  # GPUs in its line up to a Run
        self._queue_rates: dict[QueueKey, QueueRate] = {}
        self._unfunded_gpus = {name: unfunded_gpus(flavor) for name, flavor in world.fleet.flavors.items()}
        self._free_charge: dict[EnvelopeKey, int] = {}
        self.typical_wait = self._simulate_head()

    def includes(self, run: RunState) -> bool:
        """Whether the forecast includes the Run with the promise that it has now."""
        answer = self._starts.get(run.key) or self._gpus_before.get(run.key)
        return answer is not None and answer[0] is run.promise

    def is_outdated(self, run: RunState) -> bool:
        """Whether much of what was free for such a Run has been used since."""
        flavor = self._world.fleet.flavor(run.flavor)
        taken = self._unfunded_gpus.get(flavor.name, 0) - unfunded_gpus(flavor)
        if taken > 0 and taken * DRIFT > sum([domain.capacity for domain in flavor.domains.values()]):
            return True
        accounts = (
            (payer.envelope.key, payer.envelope.account) for payer in payer_candidates(self._world, run)
        )
        return any(
            (self._free_charge.get(key, 0) - account.free_charge()) * DRIFT > account.max_charge
            for key, account in accounts
        )

    def starts(self, run: RunState, promise: Promise) -> list[int]:
        """The instants at which a waiting Run may start, sorted; none if nothing is known."""
        if not self.includes(run):
            self._append(run, promise)
        if run.key not in self._starts:
            gpus, queue_rate = self._gpus_before.pop(run.key)[1], self._queue_rate(run)
            latest = FOREVER if promise.at is None else promise.at
            instants = sorted(min(latest, self.at + wait) for wait in queue_rate.waits(gpus))
            self._starts[run.key] = (promise, instants if len(instants) >= MAX_SAMPLE_PATHS else [])
        return self._starts[run.key][1]

    def _simulate_head(self) -> int:
        """Adds all waiting Runs; returns their typical wait."""
        runs = self._world.runs.values()
        waiting = [
            (run_in_queue.promise, run_in_queue)
            for run_in_queue in runs
            if run_in_queue.promise and run_in_queue.waiting
        ]
        waiting.sort(key=lambda pair: pair[0].precedence)
        for promise, run_in_queue in waiting:
            self._append(run_in_queue, promise)
        sample = waiting[:: 1 + len(waiting) // SAMPLE]
        starts_of_sample = [
            instants for promise, run_in_queue in sample if (instants := self.starts(run_in_queue, promise))
        ]
        waits = sorted(instants[len(instants) // 2] for instants in starts_of_sample)
        return waits[len(waits) // 2] - self.at if waits else 0

    def _append(self, run: RunState, promise: Promise) -> None:
        """Adds a Run behind those with earlier promises; simulates it if it is in the head of its line."""
        self._starts.pop(run.key, None)
        if promise.at is None and not promise.funding:
            self._starts[run.key] = (promise, [])  # nothing known will ever start it
            return
        queue_rate = self._queue_rate(run)
        gpus = queue_rate.join(promise.width)
        if queue_rate.simulated < HEAD and self.simulated < MAX_SIMULATED:
            self.simulated += 1
            starts = self._sample_paths.simulate_start(run, promise)
            queue_rate.record_wait(gpus, [at if at == FOREVER else at - self.at for at in starts])
            instants = sorted(at for at in starts if at < FOREVER)
            self._starts[run.key] = (promise, instants if len(instants) >= MAX_SAMPLE_PATHS else [])
        else:
            self._gpus_before[run.key] = (promise, gpus)

    def _queue_rate(self, run: RunState) -> QueueRate:
        key = (run.owner, run.flavor, run.sponsors)
        queue_rate = self._queue_rates.get(key)
        if queue_rate is None:
            queue_rate = self._queue_rates[key] = QueueRate()
            for payer in payer_candidates(self._world, run):
                self._free_charge.setdefault(payer.envelope.key, payer.envelope.account.free_charge())
        return queue_rate


def unfunded_gpus(flavor: FlavorPool) -> int:
    """GPUs that no envelope pays for: free ones and opportunistic ones."""
    return flavor.free + flavor.opportunistic_slots
