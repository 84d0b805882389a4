"""Carry out a scene on a Lab, step by step."""

from collections.abc import Callable

import msgspec

from jobtree.api.kinds.policy import Policy
from jobtree.api.kinds.run import Run
from jobtree.api.schema.quantities import format_time
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.runs.run_state import RankLoss, RunState
from tests.property.ledger_oracle import Oracle
from tests.property.scenes import (
    A100,
    OWNERS,
    WAITS,
    NodeSketch,
    Scene,
    Step,
    some_budget,
    some_run,
    some_tree,
)
from tests.unit.core.build import NAMESPACE, foreign_pod
from tests.unit.core.lab import Lab, Record

Look = Callable[["Drive"], None]


def nothing(_drive: "Drive") -> None:
    """Just go on."""


class Drive:
    """A Lab in which a scene unfolds. ``submitted`` are the Runs that must not get lost (I11)."""

    def __init__(
        self,
        scene: Scene,
        *,
        fleet: list[NodeSketch] | None = None,
        before: Look = nothing,
        after: Look = nothing,
    ) -> None:
        self.look_before, self.look_after = before, after
        self.lab = Lab(policy=Policy(prices_milli={A100: 2500}))
        self.oracle = Oracle(self.lab)
        self.scene = scene
        self.fleet = fleet or scene.fleet
        self.runs: dict[RunKey, Run] = {}  # ever
        self.submitted: dict[RunKey, Run] = {}  # and not cancelled
        self.stages: dict[RunKey, Run] = {}  # that trees ever had
        for sketch in self.fleet:
            self.lab.put(sketch.node())
            if sketch.foreign_gpus:
                self.lab.put(foreign_pod(sketch.name, sketch.foreign_gpus))
        self.lab.put(*scene.family)

    @property
    def world_now(self) -> int:
        return self.lab.world.now

    def run_of(self, key: RunKey) -> Run:
        """A Run that was submitted, or one that was made for a stage of a tree."""
        return self.runs[key] if key in self.runs else self.stages[key]

    def open_records(self) -> list[Record]:
        return [record for record in self.lab.records.values() if record.end is None]

    def labels(self, node: str) -> dict[str, str]:
        """As they always were: here nodes fail, but do not move."""
        return next(sketch for sketch in self.fleet if sketch.name == node).node().labels

    def play(self) -> None:
        """Every step, planned and carried out, then looked at."""
        self.rest()
        for step in self.scene.steps:
            self.happen(step)
            if step.what != "wait":  # time that passes unplanned: what was due is noticed late
                self.rest()
        self.rest()

    def rest(self) -> None:
        self.look_before(self)
        self._note_stages()
        self.lab.settle()
        self._note_stages()
        self.look_after(self)

    def _note_stages(self) -> None:
        self.stages |= {
            key: one.run_object for key, one in self.lab.world.runs.items() if one.parent is not None
        }

    def dismiss_waiting(self) -> None:
        """Cancel every Run that waits or is promised something, so that nothing is kept for anybody."""
        for key, state in list(self.lab.world.runs.items()):
            if state.waiting or state.promise is not None:
                del self.submitted[key]
                self.lab.world.drop_run(key)
        self.rest()

    def story(self) -> str:
        """Everything that was planned so far, for a person to read when something is wrong."""
        return "\n" + "\n".join(self.lab.story)

    def happen(self, step: Step) -> None:
        happening: Callable[[Step], None] = getattr(self, f"_{step.what}")
        happening(step)

    def _submit(self, step: Step) -> None:
        self._create(some_run(step.dice, f"r{len(self.runs)}"))

    def _create(self, run: Run) -> None:
        created = format_time(self.world_now)
        metadata = msgspec.structs.replace(run.metadata, creation_timestamp=created)
        run = msgspec.structs.replace(run, metadata=metadata)
        key = (NAMESPACE, run.metadata.name)
        self.runs[key] = self.submitted[key] = run
        self.lab.put(run)

    def _advance(self, step: Step) -> None:
        self.lab.world.advance_clock(self.world_now + step.dice.choice(WAITS))

    _wait = _advance

    def _finish(self, step: Step) -> None:
        state = self._pick(step, running=True)
        if state:
            self.lab.world.finish(state.key, succeeded=step.seed % 2 == 0, at=self.world_now)

    def _cancel(self, step: Step) -> None:
        state = self._pick(step, running=False)
        if state:
            del self.submitted[state.key]
            deleted = format_time(self.world_now)
            metadata = msgspec.structs.replace(state.run_object.metadata, deletion_timestamp=deleted)
            self.lab.put(msgspec.structs.replace(state.run_object, metadata=metadata))

    def _pick(self, step: Step, *, running: bool) -> RunState | None:
        runs = [self.lab.world.runs[key] for key in sorted(self.submitted)]
        found = [state for state in runs if not running or state.phase == "Running"]
        return step.dice.choice(found) if found else None

    def _edit(self, step: Step) -> None:
        self.rest()  # what was due before the edit is due by the budget as it was
        self.lab.put(some_budget(step.dice, step.dice.choice(OWNERS)))
        self.oracle.note_edit()

    def _drop(self, step: Step) -> None:
        self.rest()
        names = sorted(self.lab.world.budgets.budgets)
        if names:
            self.lab.world.drop_budget(step.dice.choice(names))
            self.oracle.note_edit()

    def _fail(self, step: Step) -> None:
        self.lab.put(step.dice.choice(self.fleet).node(failed=True))

    def _heal(self, step: Step) -> None:
        self.lab.put(step.dice.choice(self.fleet).node())

    def _blackout(self, step: Step) -> None:
        """A whole domain fails at once."""
        domain = step.dice.choice(self.fleet).domain
        for sketch in self.fleet:
            if sketch.domain == domain:
                self.lab.put(sketch.node(failed=True))

    def _tree(self, step: Step) -> None:
        self._create(some_tree(step.dice, f"t{len(self.runs)}"))

    def _resize(self, step: Step) -> None:
        """The user wants another width."""
        state = self._pick(step, running=True)
        if (
            state is None
            or state.shape is None
            or not state.shape.malleable
            or state.run_object.spec.malleable is None
        ):
            return
        shape = state.shape
        desired = shape.min + shape.step * step.dice.randint(0, (shape.max - shape.min) // shape.step)
        malleable = msgspec.structs.replace(state.run_object.spec.malleable, desired_total_gpus=desired)
        spec = msgspec.structs.replace(state.run_object.spec, malleable=malleable)
        self.lab.put(msgspec.structs.replace(state.run_object, spec=spec))

    def _crash(self, step: Step) -> None:
        self._lose_rank(step, failed=True)

    def _evict(self, step: Step) -> None:
        self._lose_rank(step, failed=False)

    def _lose_rank(self, step: Step, *, failed: bool) -> None:
        state = self._pick(step, running=True)
        if state is not None and state.rank_slots:
            seat = step.dice.choice(list(state.rank_slots))
            self.lab.world.lose_rank(state.key, RankLoss(self.world_now, seat, state.attempt, failed))

    def _cordon(self, step: Step) -> None:
        self.lab.put(step.dice.choice(self.fleet)._replace(cordoned=True).node())
