"""Builds the pod template of a batch script: image, prologue, body, variables, requests and volumes."""

import re
from dataclasses import dataclass
from typing import Any, Final

from jobtree.api.schema.problems import InputError
from jobtree.importers.container_text import escape_for_kubelet
from jobtree.importers.conversion import ObjectBody
from jobtree.importers.kubernetes_names import short_name
from jobtree.importers.slurm.prologue import PROLOGUE
from jobtree.importers.slurm.script.batch_script import OptionSetting, Script
from jobtree.importers.slurm.script.gpu_request import GpuRequest
from jobtree.importers.slurm.script.option_values import parse_count, parse_size, refuse
from jobtree.importers.slurm.script_request import ScriptRequest
from jobtree.importers.slurm.site_mapping import SlurmMap

MAX_GRACE_SECONDS: Final = 300  # the policy's maxGrace, unless an administrator has changed it
SIGNALS: Final = (
    "HUP", "INT", "QUIT", "ABRT", "USR1", "USR2", "ALRM", "TERM", "CONT", "URG", "WINCH"
)  # fmt: skip
NUMBERS: Final = {
    "1": "HUP",
    "2": "INT",
    "3": "QUIT",
    "6": "ABRT",
    "10": "USR1",
    "12": "USR2",
    "14": "ALRM",
    "15": "TERM",
}

UNKNOWN_SIZE: Final = "the size of a pod is not known: give --nodes, or set resources in the template"
VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
OPTION_OF: Final = {
    "SLURM_CPUS_PER_TASK": "cpus-per-task",
    "SLURM_JOB_PARTITION": "partition",
    "SLURM_JOB_ACCOUNT": "account",
    "SLURM_JOB_QOS": "qos",
    "SLURM_SUBMIT_DIR": "chdir",
}


@dataclass(frozen=True)
class Signal:
    """The signal of --signal, whether only the shell gets it, and how long before the end it is sent."""

    name: str
    shell_only: bool
    seconds: int

    @property
    def grace(self) -> int:
        return min(self.seconds, MAX_GRACE_SECONDS)


def signal_of(setting: OptionSetting | None) -> Signal | None:
    """``B:USR1@120``. Raises InputError."""
    if setting is None:
        return None
    flags, colon, rest = setting.value.upper().rpartition(":")
    spelled, at, seconds = rest.partition("@")
    name = NUMBERS.get(spelled, spelled.removeprefix("SIG"))
    if name not in SIGNALS or (colon and set(flags) - set("BR")):
        raise refuse(setting, f"must be [B:]SIGNAL[@SECONDS], and SIGNAL one of {', '.join(SIGNALS)}")
    return Signal(name, "B" in flags, parse_count(setting._replace(value=seconds), least=0) if at else 60)


def template_of(request: ScriptRequest, selector: dict[str, str]) -> ObjectBody:
    """The pod template of a script. Raises InputError."""
    script = request.script
    variables = {**_environment(request), **_exported(request)}
    arguments = (PROLOGUE, _script_name(script), script.body, *script.interpreter)
    container: dict[str, Any] = {
        "name": "worker",
        "image": _image(request),
        "command": ["/bin/bash", "-c"],
        "args": [escape_for_kubelet(text) for text in arguments],
        "env": [{"name": name, "value": escape_for_kubelet(value)} for name, value in variables.items()],
    }
    directory = request.setting("chdir") or request.setting("container-workdir")
    if directory:
        container["workingDir"] = directory.value
    requests = _requests(request)
    if requests:
        container["resources"] = {"requests": requests}
        if "memory" in requests:
            container["resources"]["limits"] = {"memory": requests["memory"]}
    spec: dict[str, Any] = {"containers": [container]}
    if selector:
        spec["nodeSelector"] = dict(sorted(selector.items()))
    _mount(spec, container, request.mapping)
    signal = signal_of(request.setting("signal"))
    if signal:
        spec["terminationGracePeriodSeconds"] = signal.grace
    return {"spec": spec}


def _image(request: ScriptRequest) -> str:
    setting = request.setting("container-image")
    plugin = setting.value.removeprefix("docker://").replace("#", "/") if setting else None
    image = request.options.image or plugin or request.mapping.image
    if not image:
        raise InputError(request.script.source, ["has no image: give --image, or image: in the mapping"])
    return image


def _script_name(script: Script) -> str:
    return short_name(script.source.partition(",")[0].rpartition("/")[2].removesuffix(".sh")) + ".sh"


def _mount(spec: dict[str, Any], container: dict[str, Any], mapping: SlurmMap) -> None:
    if not mapping.volumes:
        return
    container["volumeMounts"] = [
        {"name": f"volume-{number}", "mountPath": volume.mount_path}
        for number, volume in enumerate(mapping.volumes)
    ]
    spec["volumes"] = [
        {"name": f"volume-{number}", "persistentVolumeClaim": {"claimName": volume.claim}}
        for number, volume in enumerate(mapping.volumes)
    ]


def _environment(request: ScriptRequest) -> dict[str, str]:
    """The variables of Slurm that are known before the job starts."""
    shape, name = request.shape, request.setting("job-name")
    variables: dict[str, Any] = {
        "SLURM_JOB_NAME": name.value if name else _script_name(request.script),
        "SLURM_NTASKS": shape.tasks,
        "SLURM_NTASKS_PER_NODE": shape.tasks_per_node or _even(shape),
        "SLURM_GPUS_PER_TASK": shape.per_task,
        "SLURM_GPUS_PER_NODE": shape.per_node,
    }
    for variable, option in OPTION_OF.items():
        setting = request.setting(option)
        variables[variable] = setting.value if setting else None
    signal = signal_of(request.setting("signal"))
    if signal and (signal.name != "TERM" or signal.shell_only):
        variables["SLURM_JOBTREE_SIGNAL"] = f"B:{signal.name}" if signal.shell_only else signal.name
    return {variable: str(value) for variable, value in variables.items() if value is not None}


def _even(shape: GpuRequest) -> int | None:
    if shape.tasks and shape.nodes and shape.tasks % shape.nodes == 0:
        return shape.tasks // shape.nodes
    return None


def _exported(request: ScriptRequest) -> dict[str, str]:
    """The variables that --export names, with their values."""
    setting = request.setting("export")
    variables: dict[str, str] = {}
    if setting is None:
        return variables
    for part in setting.value.split(","):
        name, equals, value = part.strip().partition("=")
        exported = value if equals else request.options.environment.get(name)
        if name in ("", "NONE"):
            continue
        if name in ("ALL", "NIL"):
            request.note(
                setting, "pods do not get the environment of the submitting shell: name the variables", part
            )
        elif not VARIABLE.fullmatch(name):
            raise refuse(setting, f"{name!r} is not the name of a variable")
        elif exported is None:
            request.note(setting, "its value is not known: write NAME=VALUE", f"--export={name}")
        else:
            variables[name] = exported
    return variables


def _requests(request: ScriptRequest) -> dict[str, str]:
    """CPU, memory and scratch space of one pod."""
    requests: dict[str, str] = {}
    cpus = _cpus(request)
    if cpus:
        requests["cpu"] = str(cpus)
    for option, factor in (("mem", 1), ("mem-per-cpu", cpus or 1), ("mem-per-gpu", request.shape.per_node)):
        setting = request.setting(option)
        if setting is None:
            continue
        number, unit = parse_size(setting)
        if factor is None:
            request.note(setting, UNKNOWN_SIZE)
        elif number:
            requests["memory"] = f"{number * factor}{unit}"
        else:
            request.note(setting, "a pod cannot ask for all memory of a node: give an amount")
    scratch = request.setting("tmp")
    if scratch:
        number, unit = parse_size(scratch)
        requests["ephemeral-storage"] = f"{number}{unit}"
    return requests


def _cpus(request: ScriptRequest) -> int | None:
    shape, per_gpu, per_task = (
        request.shape,
        request.setting("cpus-per-gpu"),
        request.setting("cpus-per-task"),
    )
    if per_gpu and shape.per_node:
        return parse_count(per_gpu) * shape.per_node
    if per_gpu:
        request.note(per_gpu, UNKNOWN_SIZE)
    if not per_task:
        return None
    each, tasks = parse_count(per_task), shape.tasks_per_node
    if tasks is None and shape.nodes:
        tasks = -(-(shape.tasks or shape.nodes) // shape.nodes)
    if tasks is None and shape.tasks not in (None, 1):
        request.note(per_task, UNKNOWN_SIZE)
        return None
    return each * (tasks or 1)
