"""The status of a job tree: its stages summed up, each with the time at which it will be done (J6)."""

from collections.abc import Iterable

from jobtree.api.kinds.run import Phase, RunStatus, StageStatus, Width
from jobtree.api.schema.quantities import format_time
from jobtree.core.model.reasons import Cause, Reason, Verdict
from jobtree.core.runs.run_state import FINISHED, RunState
from jobtree.core.runs.run_tree import tree_phase
from jobtree.core.world.upstream_runs import upstreams
from jobtree.core.world.world import World


def tree_status(world: World, run: RunState) -> RunStatus:
    """Returns the status of a tree, without conditions and funding."""
    graph = world.run_graph
    children = graph.children(run)
    phase = run.phase if run.phase in FINISHED else tree_phase(children)
    verdict = run.verdict or Verdict(phase)
    done = sum(child.phase == "Completed" for child in children)
    count_text = f"{done} of {len(run.run_object.spec.stages)} stages are completed"
    messages = [verdict.message] if phase in (*FINISHED, "Waiting") and verdict.message else []
    taken = [] if phase in FINISHED else [Cause(Reason.NAME_TAKEN, name) for name in graph.taken_names(run)]
    messages += [Verdict(phase, tuple(taken)).message] if taken else []
    waiting = next((child for child in children if child.promise is not None), None)
    return RunStatus(
        phase=phase,
        width=total_width(world, run),
        stages=tuple(stage_status(world, run, child) for child in children),
        reservation=waiting.promise.name if waiting and waiting.promise else None,
        earliest_start=start_of(world, waiting) if waiting else None,
        attempt=run.attempt,
        reservations_made=run.reservations_made,
        reason=verdict.reason if phase in FINISHED else Reason.NAME_TAKEN if taken else "",
        message="; ".join((count_text, *messages)),
        observed_generation=run.run_object.metadata.generation,
    )


def total_width(world: World, run: RunState) -> Width:
    """The GPUs of all stages, including stages of stages."""
    gangs = [(stage, stage.shape) for stage in world.run_graph.descendants(run) if stage.shape is not None]
    return Width(
        min=sum(shape.min for _, shape in gangs),
        max=sum(shape.max for _, shape in gangs),
        desired=sum(shape.desired for _, shape in gangs),
        allocated=sum(stage.width for stage, _ in gangs),
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
    """Returns when a Run started, or its earliest known start; None if it is finished or nothing is known."""
    if run.phase in FINISHED or run.since is not None:
        return None if run.phase in FINISHED else run.since
    if run.promise is not None:
        return run.promise.at
    if run.is_tree:
        starts = [starts_at(world, child) for child in world.run_graph.children(run)]
        return min((at for at in starts if at is not None), default=None)
    return latest(
        None if upstream.run is None else done_at(world, upstream.run)
        for upstream in upstreams(world.run_graph, run)
    )


def done_at(world: World, run: RunState) -> int | None:
    """Returns when a Run ended or will end at the latest: start plus maxDuration, along the longest path."""
    if run.phase in FINISHED:
        return run.phase_at
    if run.is_tree:
        return latest(done_at(world, child) for child in world.run_graph.children(run))
    if run.known_end is not None:
        return run.known_end
    starts, limit = starts_at(world, run), run.max_duration
    return None if starts is None or limit is None or run.since is not None else starts + limit


def latest(instants: Iterable[int | None]) -> int | None:
    """Returns the last of these instants; None if there are none or one is not known."""
    ends = list(instants)
    known_ends = [at for at in ends if at is not None]
    return max(known_ends) if known_ends and len(known_ends) == len(ends) else None
