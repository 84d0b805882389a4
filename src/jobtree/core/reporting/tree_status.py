"""The status of a job tree: its stages summed up, each with the time at which it will be done (J6)."""

from jobtree.api.kinds.run import Phase, RunStatus, StageStatus, Width
from jobtree.api.schema.quantities import format_time
from jobtree.core.model.reasons import Verdict
from jobtree.core.runs.run_state import FINISHED, RunState
from jobtree.core.runs.run_tree import tree_phase
from jobtree.core.world.upstream_runs import upstreams
from jobtree.core.world.world import World


def tree_status(world: World, state: RunState) -> RunStatus:
    """Everything but conditions and funding, which are as for any Run."""
    children = world.run_graph.children(state)
    phase = state.phase if state.phase in FINISHED else tree_phase(children)
    verdict = state.verdict or Verdict(phase)
    done = sum(child.phase == "Completed" for child in children)
    counted = f"{done} of {len(state.run.spec.stages)} stages are completed"
    said = [verdict.message] if phase in (*FINISHED, "Waiting") and verdict.message else []
    waiting = next((child for child in children if child.promise is not None), None)
    return RunStatus(
        phase=phase,
        width=total_width(world, state),
        stages=tuple(stage_status(world, state, child) for child in children),
        reservation=waiting.promise.name if waiting and waiting.promise else None,
        earliest_start=start_of(world, waiting) if waiting else None,
        attempt=state.attempt,
        reservations_made=state.reservations_made,
        reason=verdict.reason if phase in FINISHED else "",
        message="; ".join((counted, *said)),
        observed_generation=state.run.metadata.generation,
    )


def total_width(world: World, state: RunState) -> Width:
    """GPUs of all stages that have some, stages of stages included."""
    gangs = [(one, one.shape) for one in world.run_graph.descendants(state) if one.shape is not None]
    return Width(
        min=sum(shape.min for _, shape in gangs),
        max=sum(shape.max for _, shape in gangs),
        desired=sum(shape.desired for _, shape in gangs),
        allocated=sum(one.width for one, _ in gangs),
    )


def stage_status(world: World, tree: RunState, child: RunState) -> StageStatus:
    ends = done_at(world, child)
    return StageStatus(
        name=child.key[1].removeprefix(f"{tree.key[1]}-"),
        phase=phase_of(world, child),
        earliest_start=start_of(world, child),
        done_by=None if ends is None else format_time(ends),
    )


def phase_of(world: World, state: RunState) -> Phase:
    if state.is_tree and state.phase not in FINISHED:
        return tree_phase(world.run_graph.children(state))
    return state.phase


def start_of(world: World, state: RunState) -> str | None:
    at = starts_at(world, state)
    return None if at is None else format_time(at)


def starts_at(world: World, state: RunState) -> int | None:
    """When a Run began, or will at the earliest as far as is known; nothing of one that is over."""
    if state.phase in FINISHED or state.since is not None:
        return None if state.phase in FINISHED else state.since
    if state.promise is not None:
        return state.promise.at
    if state.is_tree:
        starts = [starts_at(world, child) for child in world.run_graph.children(state)]
        return min((at for at in starts if at is not None), default=None)
    ends = [None if one.state is None else done_at(world, one.state) for one in upstreams(world, state)]
    known = [at for at in ends if at is not None]
    return max(known) if known and len(known) == len(ends) else None


def done_at(world: World, state: RunState) -> int | None:
    """When a Run ended, or will have at the latest: its start and its maxDuration, along the longest path."""
    if state.phase in FINISHED:
        return state.phase_at
    if state.is_tree:
        ends = [done_at(world, child) for child in world.run_graph.children(state)]
        known = [at for at in ends if at is not None]
        return max(known) if known and len(known) == len(ends) else None
    if state.known_end is not None:
        return state.known_end
    starts, limit = starts_at(world, state), state.max_duration
    return None if starts is None or limit is None or state.since is not None else starts + limit
