"""How long Runs are likely to run, in a number of courses that things may take.

The duration of a Run is drawn from those of its owner's Runs of similar size (``durations``), on condition
of what it has run already, and is never longer than a declared ``maxDuration``. Without such a history the
declared one is taken, and without either the Run is taken to stay. In each course a Run ends at another
part of its distribution: every part comes once, in an order that the Run's UID gives.

What an owner's Runs tell changes little with one more: it is kept until a twentieth more of them have ended,
or a day has passed.
"""

import hashlib
from functools import lru_cache

from jobtree.api.schema.quantities import DAY
from jobtree.core.accounts.envelope_accounts import FOREVER
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.runs.notice import certain_end
from jobtree.core.runs.run_durations import SurvivalCurve, SurvivalCurves, size_class
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.payer_candidates import last_closing
from jobtree.core.world.world import World

SAMPLE_PATHS = 23  # prime, so that every stride comes to every part
REFRESH_SHARE = 20  # one part in so many more Runs that ended: their owner is looked at again


class RunEndForecast:
    def __init__(self, world: World) -> None:
        self._world = world
        self._ends: dict[RunKey, list[int]] = {}
        self._running: dict[str, list[RunState]] | None = None
        self.runs_with_history: set[RunKey] = set()  # running Runs of which something is known

    def likely_ends(self, run_key: RunKey) -> list[int]:
        """When a running Run ends, in every course."""
        known = self._ends.get(run_key)
        if known is None:
            run = self._world.runs.get(run_key)
            known = self._ends[run_key] = [FOREVER] * SAMPLE_PATHS if run is None else self._likely_ends(run)
        return known

    def _likely_ends(self, run: RunState) -> list[int]:
        now = self._world.now
        last = certain_end(run.known_end, last_closing(self._world, run))
        since = now if run.since is None else run.since
        if last < FOREVER:
            self.runs_with_history.add(run.key)
        curve = self._curve(run)
        if curve is None:
            return [last] * SAMPLE_PATHS
        self.runs_with_history.add(run.key)
        spans = curve.durations(now - since, SAMPLE_PATHS)
        ends = [last if span is None or since + span > last else since + span for span in spans]
        return [ends[part] for part in parts_of(run.uid)]

    def likely_durations(self, run: RunState) -> list[int]:
        """How long a waiting Run will run, in every course."""
        shape = run.shape
        most = FOREVER if shape is None or shape.max_duration is None else shape.max_duration
        curve = self._curve(run)
        if curve is None:
            return [most] * SAMPLE_PATHS
        spans = [most if span is None else min(most, span) for span in curve.durations(0, SAMPLE_PATHS)]
        return [spans[part] for part in parts_of(run.uid)]

    def _curve(self, run: RunState) -> SurvivalCurve | None:
        """How long Runs of its owner and of similar size last; None where too few ended to tell."""
        history, now = self._world.run_history, self._world.now
        known = history.curves.get(run.owner)
        ended = history.ended.get(run.owner, 0)
        if known is None or (ended - known.ended) * REFRESH_SHARE > known.ended or now - known.at > DAY:
            known = history.curves[run.owner] = SurvivalCurves(now, ended, self._curves_of(run.owner))
        shape = run.shape
        curve = known.by_size.get(size_class(shape.total)) if shape else None
        return curve if curve is not None and curve.has_estimate else None

    def _curves_of(self, owner: str) -> dict[int, SurvivalCurve]:
        """The owner's history, with those that still run as what they are: not ended yet."""
        world = self._world
        world.run_history.forget(world.now - world.policy.lease_retention_ms)
        found = world.run_history.of(owner)
        for run in self._running_of(owner):
            if run.since is not None and run.shape:
                age = world.now - run.since
                found.setdefault(size_class(run.shape.total), []).append((age, False))
        return {size: SurvivalCurve(observations) for size, observations in found.items()}

    def _running_of(self, owner: str) -> list[RunState]:
        if self._running is None:
            self._running = {}
            for run in self._world.runs.values():
                if run.phase == "Running":
                    self._running.setdefault(run.owner, []).append(run)
        return self._running.get(owner, [])


@lru_cache(maxsize=1 << 15)
def parts_of(uid: str) -> list[int]:
    """The parts of a distribution, each once, in an order given by the UID."""
    digest = hashlib.sha256(uid.encode()).digest()
    stride, offset = 1 + digest[0] % (SAMPLE_PATHS - 1), digest[1]
    return [(stride * number + offset) % SAMPLE_PATHS for number in range(SAMPLE_PATHS)]
