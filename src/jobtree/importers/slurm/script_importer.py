"""Converts batch scripts to Runs.

A script becomes one Run. A job array becomes several Runs: ``--array=0-15`` is sixteen independent Runs. An
array with a limit becomes a job tree: ``--array=0-15%4`` has sixteen stages, and its quota lets four of them
hold GPUs at a time.
"""

import copy
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from jobtree.api.schema.object_meta import API_VERSION
from jobtree.api.schema.problems import InputError
from jobtree.api.schema.scalars import MAX_GPUS
from jobtree.importers.conversion import Converted, ObjectBody
from jobtree.importers.kubernetes_names import short_name, unused
from jobtree.importers.slurm.prologue import job_number
from jobtree.importers.slurm.run_spec import spec_of
from jobtree.importers.slurm.script.batch_script import Script, decode_script, read_scripts
from jobtree.importers.slurm.script.body_scan import note_body
from jobtree.importers.slurm.script.dependencies import DependencyIndex, DependencyTarget, follow_of
from jobtree.importers.slurm.script.option_values import parse_array
from jobtree.importers.slurm.script.unsupported_options import note_rest
from jobtree.importers.slurm.script_request import CallerOptions

MAX_STAGES: Final = 64


class Elements(NamedTuple):
    """A job array: its numbers, how many of them may run at once (0: all), and the job number."""

    numbers: list[int]
    at_once: int
    job: str


def convert_slurm(files: Iterable[tuple[str, bytes]], options: CallerOptions) -> Converted:
    """Converts all scripts of these files to Runs. Raises InputError."""
    out = Converted()
    jobs = {number: DependencyTarget((run,)) for number, run in options.mapping.jobs.items()}
    earlier: dict[str, DependencyTarget] = {}
    taken: set[str] = set()
    for source, raw in files:
        for script in read_scripts(decode_script(raw, source), source, options.environment, out):
            job_name = _job_name(script)
            name = unused(short_name(job_name), taken)
            runs = _runs(script, name, options, DependencyIndex(jobs, earlier), out)
            names = [run["metadata"]["name"] for run in runs]
            for duplicate in taken.intersection(names):
                raise InputError(
                    script.source, [f"another Run is named {duplicate}: choose another --job-name"]
                )
            out.add(runs, script.source)
            taken.update(names)
            jobs[job_name] = earlier[job_name] = DependencyTarget(tuple(names))
    return out


def _job_name(script: Script) -> str:
    setting = script.settings.get("job-name")
    if setting and setting.value:
        return setting.value
    stem = script.source.partition(",")[0].rpartition("/")[2]
    return stem.partition(".")[0] or "job"


def _runs(
    script: Script, name: str, options: CallerOptions, index: DependencyIndex, out: Converted
) -> list[ObjectBody]:
    spec = spec_of(script, options, out)
    note_rest(script, out)
    note_body(script, spec, out)
    namespace = options.namespace or options.mapping.namespace
    specs = {name: spec}
    if "array" in script.settings:
        elements = parse_array(script.settings["array"])
        number = str(job_number(f"{namespace or 'default'}/{name}"))
        specs = _array(script, name, spec, Elements(elements.numbers, elements.at_once, number))
    runs = []
    for position, (run_name, run_spec) in enumerate(specs.items()):
        metadata = {"name": run_name, **({"namespace": namespace} if namespace else {})}
        body = {"apiVersion": API_VERSION, "kind": "Run", "metadata": metadata}
        runs.append({**body, "spec": _following(script, run_spec, index, position, out)})
    return runs


def _following(
    script: Script, spec: dict[str, Any], index: DependencyIndex, element: int, out: Converted
) -> dict[str, Any]:
    """The spec with ``follow`` before the template, if the script has a dependency."""
    setting, kill = script.settings.get("dependency"), script.settings.get("kill-on-invalid-dep")
    follow = follow_of(setting, _job_name(script), index, element, out) if setting else None
    if not follow:
        return spec
    if kill and kill.value == "yes":
        follow["onUpstreamFailure"] = "fail"
    return {
        **{field: value for field, value in spec.items() if field != "template"},
        "follow": follow,
        **({"template": spec["template"]} if "template" in spec else {}),
    }


def _array(script: Script, name: str, spec: dict[str, Any], elements: Elements) -> dict[str, dict[str, Any]]:
    """The specs of a job array by the names of their Runs."""
    if elements.at_once and elements.at_once < len(elements.numbers):
        return {name: _tree(script, spec, elements)}
    return {f"{name}-{number}": _with_variables(spec, elements, number) for number in elements.numbers}


def _tree(script: Script, spec: dict[str, Any], elements: Elements) -> dict[str, Any]:
    """A job tree with a stage for each element and a quota. More than 64 elements make two levels."""
    gpus, funding = spec["resources"]["totalGPUs"], spec.get("funding", {})
    if not gpus:
        rule = f"an array without GPUs cannot be limited to {elements.at_once} at a time: remove the %"
        raise InputError(script.settings["array"].where, [rule])
    gang = {field: value for field, value in spec.items() if field not in ("owner", "funding")}
    if funding:
        gang["funding"] = {field: value for field, value in funding.items() if field != "sponsors"}
    stages: list[dict[str, Any]] = [
        {"name": str(number), **_with_variables(gang, elements, number)} for number in elements.numbers
    ]
    if len(stages) > MAX_STAGES:
        parts = range(0, len(stages), MAX_STAGES)
        stages = [
            {"name": f"part-{number}", "stages": stages[at : at + MAX_STAGES]}
            for number, at in enumerate(parts)
        ]
    quota = {"maxGPUs": min(elements.at_once * gpus, MAX_GPUS)}
    return {
        "owner": spec["owner"],
        "quota": quota,
        **({"funding": funding} if funding else {}),
        "stages": stages,
    }


def _with_variables(spec: dict[str, Any], elements: Elements, number: int) -> dict[str, Any]:
    """The spec of one element of the array, with the variables of its number."""
    numbers = elements.numbers
    variables = {
        "SLURM_ARRAY_JOB_ID": elements.job,
        "SLURM_ARRAY_TASK_ID": number,
        "SLURM_ARRAY_TASK_COUNT": len(numbers),
        "SLURM_ARRAY_TASK_MIN": numbers[0],
        "SLURM_ARRAY_TASK_MAX": numbers[-1],
        "SLURM_ARRAY_TASK_STEP": numbers[1] - numbers[0] if len(numbers) > 1 else 1,
    }
    changed = copy.deepcopy(spec)
    (container,) = changed["template"]["spec"]["containers"]
    container["env"] += [{"name": name, "value": str(value)} for name, value in variables.items()]
    return changed
