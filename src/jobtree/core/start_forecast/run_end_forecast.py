"""Samples when each Run is likely to end, on a fixed number of sample paths.

The duration of a Run is drawn from those of its owner's Runs of similar size (``run_durations``), given what
it has run already, and is never longer than its ``maxDuration``. Without such a history its ``maxDuration``
is used, and without that the Run never ends. Each path uses another part of the distribution: every part
comes once, in an order that follows from the Run's UID.

One more Run changes the history of an owner little: the distribution is computed again when a twentieth more
of its Runs have ended, or after a day.
"""

import hashlib
from functools import lru_cache

from jobtree.api.schema.quantities import DAY
from jobtree.core.accounts.envelope_accounts import FOREVER
from jobtree.core.funding.payer_candidates import last_closing
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.runs.notice import certain_end
from jobtree.core.runs.run_durations import SurvivalCurve, SurvivalCurves, size_class
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World

SAMPLE_PATHS = 23  # prime, so that every stride reaches every part
REFRESH_SHARE = 20  # curves are computed again when 1 of so many more Runs has ended


class RunEndForecast:
    def __init__(self, world: World) -> None:
        self._world = world
        self._ends: dict[RunKey, list[int]] = {}
        self._running: dict[str, list[RunState]] | None = None
        self.runs_with_history: set[RunKey] = set()  # running Runs with a known or likely end

    def likely_ends(self, run_key: RunKey) -> list[int]:
        """When a running Run ends, on each path."""
        cached = self._ends.get(run_key)
        if cached is None:
            run = self._world.runs.get(run_key)
            cached = self._ends[run_key] = [FOREVER] * SAMPLE_PATHS if run is None else self._likely_ends(run)
        return cached

    def _likely_ends(self, run: RunState) -> list[int]:
        now = self._world.now
        certain = certain_end(run.known_end, last_closing(self._world, run))
        since = now if run.since is None else run.since
        if certain < FOREVER:
            self.runs_with_history.add(run.key)
        curve = self._curve(run)
        if curve is None:
            return [certain] * SAMPLE_PATHS
        self.runs_with_history.add(run.key)
        spans = curve.durations(now - since, SAMPLE_PATHS)
        ends = [certain if span is None or since + span > certain else since + span for span in spans]
        return [ends[part] for part in parts_of(run.uid)]

    def likely_durations(self, run: RunState) -> list[int]:
        """How long a waiting Run will run, on each path."""
        shape = run.shape
        longest = FOREVER if shape is None or shape.max_duration is None else shape.max_duration
        curve = self._curve(run)
        if curve is None:
            return [longest] * SAMPLE_PATHS
        spans = [longest if span is None else min(longest, span) for span in curve.durations(0, SAMPLE_PATHS)]
        return [spans[part] for part in parts_of(run.uid)]

    def _curve(self, run: RunState) -> SurvivalCurve | None:
        """The survival curve of Runs of the owner and of similar size; None if too few have ended."""
        history, now = self._world.run_history, self._world.now
        curves = history.curves.get(run.owner)
        ended = history.ended.get(run.owner, 0)
        if curves is None or (ended - curves.ended) * REFRESH_SHARE > curves.ended or now - curves.at > DAY:
            curves = history.curves[run.owner] = SurvivalCurves(now, ended, self._curves_of(run.owner))
        shape = run.shape
        curve = curves.by_size.get(size_class(shape.total)) if shape else None
        return curve if curve is not None and curve.has_estimate else None

    def _curves_of(self, owner: str) -> dict[int, SurvivalCurve]:
        """The owner's survival curves; Runs that still run count as not ended yet."""
        world = self._world
        world.run_history.forget(world.now - world.policy.lease_retention_ms)
        observations = world.run_history.of(owner)
        for run in self._running_of(owner):
            if run.since is not None and run.shape:
                age = world.now - run.since
                observations.setdefault(size_class(run.shape.total), []).append((age, False))
        return {size: SurvivalCurve(durations) for size, durations in observations.items()}

    def _running_of(self, owner: str) -> list[RunState]:
        if self._running is None:
            self._running = {}
            for run in self._world.runs.values():
                if run.phase == "Running":
                    self._running.setdefault(run.owner, []).append(run)
        return self._running.get(owner, [])


@lru_cache(maxsize=1 << 15)
def parts_of(uid: str) -> list[int]:
    """The parts of a distribution, each once, in an order that follows from the UID."""
    digest = hashlib.sha256(uid.encode()).digest()
    stride, offset = 1 + digest[0] % (SAMPLE_PATHS - 1), digest[1]
    return [(stride * number + offset) % SAMPLE_PATHS for number in range(SAMPLE_PATHS)]
