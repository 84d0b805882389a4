"""The status of a job tree: its stages summed up, each with the time at which it will be done (J6)."""

from jobtree.api.kinds.run import Phase, RunStatus, StageStatus, Width
from jobtree.api.schema.quantities import format_time
from jobtree.core.model.reasons import Verdict
from jobtree.core.runs.run_state import FINISHED, RunState
from jobtree.core.runs.run_tree import tree_phase
from jobtree.core.world.upstream_runs import upstreams
from jobtree.core.world.world import World


def tree_status(world: World, run: RunState) -> RunStatus:
    """Everything but conditions and funding, which are as for any Run."""
    children = world.run_graph.children(run)
    phase = run.phase if run.phase in FINISHED else tree_phase(children)
    verdict = run.verdict or Verdict(phase)
    done = sum(child.phase == "Completed" for child in children)
    counted = f"{done} of {len(run.run_object.spec.stages)} stages are completed"
    said = [verdict.message] if phase in (*FINISHED, "Waiting") and verdict.message else []
    waiting = next((child for child in children if child.promise is not None), None)
    return RunStatus(
        phase=phase,
        width=total_width(world, run),
        stages=tuple(stage_status(world, run, child) for child in children),
        reservation=waiting.promise.name if waiting and waiting.promise else None,
        earliest_start=start_of(world, waiting) if waiting else None,
        attempt=run.attempt,
        reservations_made=run.reservations_made,
        reason=verdict.reason if phase in FINISHED else "",
        message="; ".join((counted, *said)),
        observed_generation=run.run_object.metadata.generation,
    )


def total_width(world: World, run: RunState) -> Width:
    """GPUs of all stages that have some, stages of stages included."""
    gangs = [(one, one.shape) for one in world.run_graph.descendants(run) if one.shape is not None]
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


def phase_of(world: World, run: RunState) -> Phase:
    if run.is_tree and run.phase not in FINISHED:
        return tree_phase(world.run_graph.children(run))
    return run.phase


def start_of(world: World, run: RunState) -> str | None:
    at = starts_at(world, run)
    return None if at is None else format_time(at)


def starts_at(world: World, run: RunState) -> int | None:
    """When a Run began, or will at the earliest as far as is known; nothing of one that is over."""
    if run.phase in FINISHED or run.since is not None:
        return None if run.phase in FINISHED else run.since
    if run.promise is not None:
        return run.promise.at
    if run.is_tree:
        starts = [starts_at(world, child) for child in world.run_graph.children(run)]
        return min((at for at in starts if at is not None), default=None)
    ends = [None if one.run is None else done_at(world, one.run) for one in upstreams(world, run)]
    known = [at for at in ends if at is not None]
    return max(known) if known and len(known) == len(ends) else None


def done_at(world: World, run: RunState) -> int | None:
    """When a Run ended, or will have at the latest: its start and its maxDuration, along the longest path."""
    if run.phase in FINISHED:
        return run.phase_at
    if run.is_tree:
        ends = [done_at(world, child) for child in world.run_graph.children(run)]
        known = [at for at in ends if at is not None]
        return max(known) if known and len(known) == len(ends) else None
    if run.known_end is not None:
        return run.known_end
    starts, limit = starts_at(world, run), run.max_duration
    return None if starts is None or limit is None or run.since is not None else starts + limit
