"""Checks the rules of one gang, that of a Run or of a stage (specification, sections 2, 4, 8 and 9)."""

from collections.abc import Iterator

from jobtree.api.kinds.run import Gang, Locality, Malleable, Resources, Run, Runtime, Stage
from jobtree.api.kinds.run_cel_rules import MAX_PODS, MAX_WIDTHS
from jobtree.api.kubernetes.pod_template_rules import template_problems
from jobtree.api.schema.problems import ABSENT, Problem
from jobtree.api.schema.quantities import parse_duration
from jobtree.api.validation.tree_rules import tree_problems

MAX_WIDTHS_SHOWN = 6


def run_problems(run: Run) -> Iterator[Problem]:
    spec = run.spec
    yield from _gang_or_tree("spec", spec, spec.stages)
    if spec.follow and run.metadata.name in spec.follow.after:
        position = spec.follow.after.index(run.metadata.name)
        yield Problem(f"spec.follow.after[{position}]", run.metadata.name, "a Run cannot wait for itself")
    if spec.stages:
        yield from tree_problems(run)
    allocation = run.status.allocation
    for position, entry in enumerate(allocation.entries if allocation else ()):
        if allocation and int(entry.split(" ")[1]) >= len(allocation.terms):
            field = f"status.allocation.entries[{position}]"
            yield Problem(field, entry, f"names terms that are not there: there are {len(allocation.terms)}")


def _gang_or_tree(path: str, gang: Gang, stages: tuple[Gang, ...]) -> Iterator[Problem]:
    if not stages:
        yield from _gang_problems(path, gang)
        return
    for field, value in (
        ("resources", gang.resources),
        ("malleable", gang.malleable),
        ("spares", gang.spares),
        ("sparesPerGroup", gang.spares_per_group),
    ):
        if value is not None:
            yield Problem(f"{path}.{field}", ABSENT, "goes with a gang, not with stages: set it in a stage")
    yield from _runtime_problems(f"{path}.runtime", gang.runtime)
    if gang.template is not None:
        yield from template_problems(f"{path}.template", gang.template.document())
    for position, stage in enumerate(stages):
        below = stage.stages if isinstance(stage, Stage) else ()
        yield from _gang_or_tree(f"{path}.stages[{position}]", stage, below)


def _gang_problems(path: str, gang: Gang) -> Iterator[Problem]:
    if gang.quota is not None:
        yield Problem(f"{path}.quota", ABSENT, "goes with stages: a single gang is limited by its payers")
    yield from _runtime_problems(f"{path}.runtime", gang.runtime)
    if gang.template is not None:
        yield from template_problems(f"{path}.template", gang.template.document())
    if gang.spares is not None and gang.spares_per_group not in (None, gang.spares):
        rule = f"means the same as spares ({gang.spares}): set one of them, or both to the same value"
        yield Problem(f"{path}.sparesPerGroup", gang.spares_per_group, rule)
    if gang.resources is None:
        yield Problem(f"{path}.resources", ABSENT, "is required where there are no stages")
        return
    yield from _resources_problems(path, gang.resources)
    yield from _locality_problems(path, gang.resources, gang.locality)
    yield from _size_problems(path, gang.resources, gang)
    if gang.malleable:
        yield from _malleable_problems(path, gang.resources, gang.locality, gang.malleable)


def _resources_problems(path: str, resources: Resources) -> Iterator[Problem]:
    total, per_pod = resources.total_gpus, resources.gpus_per_pod
    if total and resources.gpu_type is None:
        yield Problem(f"{path}.resources.gpuType", ABSENT, "is required where totalGPUs is more than 0")
    if total and resources.pods is not None:
        rule = f"goes with totalGPUs: 0 only (totalGPUs is {total}): pods with GPUs are counted by gpusPerPod"
        yield Problem(f"{path}.resources.pods", resources.pods, rule)
    if per_pod and total % per_pod:
        yield Problem(f"{path}.resources.totalGPUs", total, f"must be a multiple of gpusPerPod ({per_pod})")


def _locality_problems(path: str, resources: Resources, locality: Locality) -> Iterator[Problem]:
    group, per_pod = locality.group_gpus, resources.gpus_per_pod
    if not group:
        return
    if group > resources.total_gpus:
        rule = f"must be at most resources.totalGPUs ({resources.total_gpus})"
        yield Problem(f"{path}.locality.groupGPUs", group, rule)
    if per_pod and group % per_pod:
        rule = f"must be a multiple of resources.gpusPerPod ({per_pod})"
        yield Problem(f"{path}.locality.groupGPUs", group, rule)


def _size_problems(path: str, resources: Resources, gang: Gang) -> Iterator[Problem]:
    """Yields units that are too small: the status of a Run lists at most ``MAX_PODS`` pods (H2)."""
    width = gang.malleable.max_total_gpus if gang.malleable else resources.total_gpus
    per_pod, group = resources.gpus_per_pod, gang.locality.group_gpus
    if per_pod and width // per_pod > MAX_PODS:
        pods = width // per_pod
        rule = f"{width} GPUs ÷ {per_pod} = {pods} pods, and a Run has at most {MAX_PODS}: raise gpusPerPod"
        yield Problem(f"{path}.resources.gpusPerPod", per_pod, rule)
    spares = gang.spares or gang.spares_per_group or 0
    if group and width // group * (1 + spares) > MAX_PODS:
        groups = f"{width // group} groups × {1 + spares} = {width // group * (1 + spares)} pods or more"
        rule = f"{width} GPUs ÷ {group} = {groups}, and a Run has at most {MAX_PODS}: raise groupGPUs"
        yield Problem(f"{path}.locality.groupGPUs", group, rule)


def _malleable_problems(
    path: str, resources: Resources, locality: Locality, malleable: Malleable
) -> Iterator[Problem]:
    total, least, most = resources.total_gpus, malleable.min_total_gpus, malleable.max_total_gpus
    if least > total:
        rule = f"must be at most resources.totalGPUs ({total})"
        yield Problem(f"{path}.malleable.minTotalGPUs", least, rule)
    if most < total:
        rule = f"must be at least resources.totalGPUs ({total})"
        yield Problem(f"{path}.malleable.maxTotalGPUs", most, rule)
    steps = (most - least) // malleable.step_gpus
    if steps >= MAX_WIDTHS:
        rule = f"{least} to {most} in these steps are {steps + 1} widths, at most {MAX_WIDTHS} are allowed"
        yield Problem(f"{path}.malleable.stepGPUs", malleable.step_gpus, rule)
    if least <= total <= most:
        yield from _width_problems(f"{path}.resources.totalGPUs", total, malleable)
    if malleable.desired_total_gpus is not None:
        field = f"{path}.malleable.desiredTotalGPUs"
        yield from _width_problems(field, malleable.desired_total_gpus, malleable)
    for field, value in (("minTotalGPUs", least), ("stepGPUs", malleable.step_gpus)):
        for unit, size in (
            ("locality.groupGPUs", locality.group_gpus),
            ("resources.gpusPerPod", resources.gpus_per_pod),
        ):
            if size and value % size:
                yield Problem(f"{path}.malleable.{field}", value, f"must be a multiple of {unit} ({size})")


def _width_problems(field: str, width: int, malleable: Malleable) -> Iterator[Problem]:
    least, most, step = malleable.min_total_gpus, malleable.max_total_gpus, malleable.step_gpus
    if not least <= width <= most or (width - least) % step:
        widths = range(least, most + 1, step)
        shown = ", ".join(map(str, widths[:MAX_WIDTHS_SHOWN])) + (
            ", …" if len(widths) > MAX_WIDTHS_SHOWN else ""
        )
        yield Problem(field, width, f"must be minTotalGPUs + k × stepGPUs, at most maxTotalGPUs ({shown})")


def _runtime_problems(path: str, runtime: Runtime) -> Iterator[Problem]:
    for field, value in (("checkpoint", runtime.checkpoint), ("maxDuration", runtime.max_duration)):
        if value is not None and not parse_duration(value):
            yield Problem(f"{path}.{field}", value, "must be more than 0")
