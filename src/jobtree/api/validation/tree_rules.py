"""Checks the rules of a job tree (specification, section 9): names, dependencies of stages, and quotas.

Stages joined by ``with`` are one gang: if one of them waits for a stage, all of them do. A quota is too small
only if a gang exceeds it at its least width with nothing else running.
"""

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

from jobtree.api.kinds.run import LeafStage, Quota, Run, Stage
from jobtree.api.schema.problems import ABSENT, Problem, repeats
from jobtree.api.schema.quantities import HOUR, MILLI, format_duration, format_milli, parse_duration

MAX_CHILD_NAME = 253

StageGang = list[LeafStage]


def tree_problems(run: Run) -> Iterator[Problem]:
    spec = run.spec
    yield from _child_name_problems(run)
    yield from _level_problems("spec.stages", spec.stages)
    yield from _quota_problems("spec.quota", spec.quota, spec.stages)
    for position, stage in enumerate(spec.stages):
        if stage.stages:
            path = f"spec.stages[{position}]"
            yield from _level_problems(f"{path}.stages", stage.stages)
            yield from _quota_problems(f"{path}.quota", stage.quota, stage.stages)


def _child_name_problems(run: Run) -> Iterator[Problem]:
    """Yields names ``<run>-<stage>`` of child Runs that clash or are too long."""
    stage_of: dict[str, tuple[str, str]] = {}
    for path, name, child in _children(run):
        other, other_path = stage_of.setdefault(child, (name, path))
        if other != name:
            yield Problem(path, name, f"its Run would be named {child}, as that of {other_path} is")
        if len(child) > MAX_CHILD_NAME:
            rule = f"its Run's name would have {len(child)} characters; at most {MAX_CHILD_NAME} are allowed"
            yield Problem(path, name, rule)


def _children(run: Run) -> Iterator[tuple[str, str, str]]:
    """Yields the path of the name, the name and the name of the child Run of every stage."""
    for position, stage in enumerate(run.spec.stages):
        path, child = f"spec.stages[{position}]", f"{run.metadata.name}-{stage.name}"
        yield f"{path}.name", stage.name, child
        for below, leaf in enumerate(stage.stages):
            yield f"{path}.stages[{below}].name", leaf.name, f"{child}-{leaf.name}"


def _level_problems(path: str, stages: tuple[LeafStage, ...]) -> Iterator[Problem]:
    for position, name in repeats(stage.name for stage in stages):
        yield Problem(f"{path}[{position}].name", name, "another stage has this name")
    names = {stage.name for stage in stages}
    trees = {stage.name for stage in stages if isinstance(stage, Stage) and stage.stages}
    for position, stage in enumerate(stages):
        for field, others in (("after", stage.after), ("with", stage.with_)):
            for at, other in enumerate(others):
                rule = _reference_rule(stage.name, other, names, trees if field == "with" else set())
                if rule:
                    yield Problem(f"{path}[{position}].{field}[{at}]", other, rule)
    yield from _cycle_problems(path, stages)


def _reference_rule(name: str, other: str, names: set[str], trees: set[str]) -> str:
    if other == name:
        return "a stage cannot name itself"
    if other not in names:
        return f"must be a stage of the same level ({', '.join(sorted(names))})"
    if trees & {name, other}:
        return "a stage with stages of its own cannot be joined to a gang"
    return ""


def gangs_of(stages: tuple[LeafStage, ...]) -> list[StageGang]:
    """Returns the gangs of a level (stages joined by ``with``), in the order of their first stages."""
    joined = {stage.name: {stage.name} for stage in stages}
    for stage in stages:
        for other in stage.with_:
            if other in joined:
                union = joined[stage.name] | joined[other]
                joined.update(dict.fromkeys(union, union))
    gangs: dict[int, StageGang] = {}
    for stage in stages:
        gangs.setdefault(id(joined[stage.name]), []).append(stage)
    return list(gangs.values())


def _cycle_problems(path: str, stages: tuple[LeafStage, ...]) -> Iterator[Problem]:
    gangs = gangs_of(stages)
    number_of = {stage.name: number for number, gang in enumerate(gangs) for stage in gang}
    waits = {
        number: {number_of[other] for stage in gang for other in stage.after if other in number_of}
        for number, gang in enumerate(gangs)
    }
    for number, gang in enumerate(gangs):
        if number in waits[number] and len(gang) > 1:
            rule = f"{_together(gang)} start together, so none of them can wait for another"
            yield Problem(path, ABSENT, rule)
    try:
        TopologicalSorter({number: others - {number} for number, others in waits.items()}).prepare()
    except CycleError as cycle:
        around = " after ".join(_together(gangs[number]) for number in reversed(cycle.args[1]))
        yield Problem(path, ABSENT, f"stages wait for each other in a cycle: {around}")


def _together(gang: StageGang) -> str:
    return " with ".join(stage.name for stage in gang)


def _quota_problems(path: str, quota: Quota | None, stages: tuple[LeafStage, ...]) -> Iterator[Problem]:
    if quota is None:
        return
    nested = [gang for stage in stages if isinstance(stage, Stage) for gang in gangs_of(stage.stages)]
    for gang in gangs_of(stages) + nested:
        gpus = sum(map(_least_gpus, gang))
        if quota.max_gpus is not None and gpus > quota.max_gpus:
            sums = " + ".join(str(_least_gpus(stage)) for stage in gang)
            need = f"{gpus} GPUs ({sums})" if len(gang) > 1 else f"{gpus} GPUs"
            yield Problem(f"{path}.maxGPUs", quota.max_gpus, f"{_together(gang)} needs {need} at once")
        work = sum(_least_gpus(stage) * _committed_ms(stage) for stage in gang)
        if quota.max_gpu_hours is not None and work > quota.max_gpu_hours * HOUR:
            rule = f"{_together(gang)} needs {_hours(work)} GPU-hours ({_hour_sums(gang)})"
            yield Problem(f"{path}.maxGPUHours", quota.max_gpu_hours, rule)


def _hour_sums(gang: StageGang) -> str:
    parts = (f"{_least_gpus(stage)} GPUs × {format_duration(_committed_ms(stage))}" for stage in gang)
    return " + ".join(parts)


def _hours(work_ms: int) -> str:
    return format_milli(-(-work_ms * MILLI // HOUR))


def _least_gpus(stage: LeafStage) -> int:
    """Returns the least width at which a stage can start; it can start without its spares."""
    if stage.malleable:
        return stage.malleable.min_total_gpus
    return stage.resources.total_gpus if stage.resources else 0


def _committed_ms(stage: LeafStage) -> int:
    """Returns the time for which a stage commits GPU-hours of its payer when it starts (C5)."""
    declared = stage.runtime.max_duration
    return parse_duration(declared) if declared else HOUR
