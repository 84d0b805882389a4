"""Batch scripts as Runs: one script, one Run; a job array, several Runs, or a tree where it limits itself.

``--array=0-15`` is sixteen Runs that have nothing to do with each other. ``--array=0-15%4`` is a tree of sixteen
stages whose quota lets four of them hold GPUs at a time.
"""

import copy
from collections.abc import Iterable
from typing import Any, Final

from jobtree.api.meta import API_VERSION
from jobtree.api.problems import InputError
from jobtree.api.scalars import MAX_GPUS
from jobtree.convert.names import short_name, unused
from jobtree.convert.remarks import Body, Converted
from jobtree.convert.sbatch import Script, decode, read_scripts
from jobtree.convert.slurm_depend import Known, Upstream, follow_of
from jobtree.convert.slurm_instead import note_rest
from jobtree.convert.slurm_prologue import job_number
from jobtree.convert.slurm_run import Wishes, note_quality, spec_of
from jobtree.convert.slurm_scan import note_body
from jobtree.convert.slurm_values import Array, array

MAX_STAGES: Final = 64


def convert_slurm(files: Iterable[tuple[str, bytes]], wishes: Wishes) -> Converted:
    """All scripts of these files as Runs, with remarks. Raises InputError."""
    out = Converted()
    jobs = {number: Upstream((run,)) for number, run in wishes.mapping.jobs.items()}
    earlier: dict[str, Upstream] = {}
    taken: set[str] = set()
    for source, raw in files:
        for script in read_scripts(decode(raw, source), source, wishes.environment, out):
            called = _called(script)
            name = unused(short_name(called), taken)
            runs = _runs(script, name, wishes, Known(jobs, earlier), out)
            out.add(runs, script.source)
            taken.update(run["metadata"]["name"] for run in runs)
            jobs[called] = earlier[called] = Upstream(tuple(run["metadata"]["name"] for run in runs))
    return out


def _called(script: Script) -> str:
    setting = script.settings.get("job-name")
    if setting and setting.value:
        return setting.value
    stem = script.source.partition(",")[0].rpartition("/")[2]
    return stem.partition(".")[0] or "job"


def _runs(script: Script, name: str, wishes: Wishes, known: Known, out: Converted) -> list[Body]:
    spec = spec_of(script, wishes, out)
    note_quality(script, wishes.mapping, out)
    note_rest(script, out)
    note_body(script, spec, out)
    if "array" not in script.settings:
        return [_run(script, name, spec, wishes, known, None, out)]
    elements = array(script.settings["array"])
    if elements.at_once and elements.at_once < len(elements.numbers):
        return [_run(script, name, _tree(script, name, spec, elements, wishes), wishes, known, None, out)]
    runs = []
    for position, number in enumerate(elements.numbers):
        element = _with_variables(spec, _array_variables(name, elements, number, wishes))
        runs.append(_run(script, f"{name}-{number}", element, wishes, known, position, out))
    return runs


def _run(
    script: Script,
    name: str,
    spec: dict[str, Any],
    wishes: Wishes,
    known: Known,
    element: int | None,
    out: Converted,
) -> Body:
    metadata = {"name": name}
    namespace = wishes.namespace or wishes.mapping.namespace
    if namespace:
        metadata["namespace"] = namespace
    setting = script.settings.get("dependency")
    follow = follow_of(setting, _called(script), known, element, out) if setting else None
    if follow:
        kill = script.settings.get("kill-on-invalid-dep")
        if kill and kill.value == "yes":
            follow["onUpstreamFailure"] = "fail"
        template = spec.pop("template", None)
        spec = {**spec, "follow": follow, **({"template": template} if template else {})}
    return {"apiVersion": API_VERSION, "kind": "Run", "metadata": metadata, "spec": spec}


def _tree(script: Script, name: str, spec: dict[str, Any], elements: Array, wishes: Wishes) -> dict[str, Any]:
    """A stage for each element, under a quota; two levels where one holds too few."""
    gpus = spec["resources"]["totalGPUs"]
    if not gpus:
        rule = f"an array without GPUs cannot be limited to {elements.at_once} at a time: leave the % out"
        raise InputError(script.settings["array"].where, [rule])
    gang = {field: value for field, value in spec.items() if field not in ("owner", "funding")}
    funding = spec.get("funding", {})
    if funding:
        gang["funding"] = {field: value for field, value in funding.items() if field != "sponsors"}
    stages = [
        {
            "name": str(number),
            **_with_variables(gang, _array_variables(name, elements, number, wishes)),
        }
        for number in elements.numbers
    ]
    if len(stages) > MAX_STAGES:
        parts = range(0, len(stages), MAX_STAGES)
        stages = [
            {"name": f"part-{number}", "stages": stages[at : at + MAX_STAGES]}
            for number, at in enumerate(parts)
        ]
    tree: dict[str, Any] = {
        "owner": spec["owner"],
        "quota": {"maxGPUs": min(elements.at_once * gpus, MAX_GPUS)},
    }
    if funding:
        tree["funding"] = funding
    return {**tree, "stages": stages}


def _array_variables(name: str, elements: Array, number: int, wishes: Wishes) -> dict[str, str]:
    numbers = elements.numbers
    namespace = wishes.namespace or wishes.mapping.namespace or "default"
    return {
        "SLURM_ARRAY_JOB_ID": str(job_number(f"{namespace}/{name}")),
        "SLURM_ARRAY_TASK_ID": str(number),
        "SLURM_ARRAY_TASK_COUNT": str(len(numbers)),
        "SLURM_ARRAY_TASK_MIN": str(numbers[0]),
        "SLURM_ARRAY_TASK_MAX": str(numbers[-1]),
        "SLURM_ARRAY_TASK_STEP": str(numbers[1] - numbers[0] if len(numbers) > 1 else 1),
    }


def _with_variables(spec: dict[str, Any], variables: dict[str, str]) -> dict[str, Any]:
    changed = copy.deepcopy(spec)
    (container,) = changed["template"]["spec"]["containers"]
    container["env"] += [{"name": name, "value": value} for name, value in variables.items()]
    return changed
