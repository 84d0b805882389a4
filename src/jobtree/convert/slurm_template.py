"""The pods of a batch script: an image, the prologue, the body, and what Slurm knew about the job beforehand."""

from dataclasses import dataclass
from typing import Any, Final

from jobtree.api.problems import InputError
from jobtree.convert.kube_text import escaped
from jobtree.convert.names import short_name
from jobtree.convert.remarks import Body, Converted
from jobtree.convert.sbatch import Script, Setting
from jobtree.convert.slurm_gpus import Shape
from jobtree.convert.slurm_map import SlurmMap
from jobtree.convert.slurm_prologue import PROLOGUE
from jobtree.convert.slurm_values import count, refuse, size

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


@dataclass(frozen=True)
class Signal:
    """--signal: what is sent before the end, whether to the shell alone, and how long before."""

    name: str
    shell_only: bool
    seconds: int

    @property
    def grace(self) -> int:
        return min(self.seconds, MAX_GRACE_SECONDS)


def signal_of(setting: Setting | None) -> Signal | None:
    """``B:USR1@120``. Raises InputError."""
    if setting is None:
        return None
    flags, colon, rest = setting.value.upper().rpartition(":")
    spelled, at, seconds = rest.partition("@")
    name = NUMBERS.get(spelled, spelled.removeprefix("SIG"))
    if name not in SIGNALS or (colon and set(flags) - set("BR")):
        raise refuse(setting, f"must be [B:]SIGNAL[@SECONDS], and SIGNAL one of {', '.join(SIGNALS)}")
    return Signal(name, "B" in flags, count(setting._replace(value=seconds), least=0) if at else 60)


def template_of(
    script: Script, shape: Shape, image: str, mapping: SlurmMap, selector: dict[str, str], out: Converted
) -> Body:
    """The pod template of a script."""
    container: dict[str, Any] = {
        "name": "worker",
        "image": image,
        "command": ["/bin/bash", "-c"],
        "args": [
            escaped(text) for text in (PROLOGUE, _script_name(script), script.body, *script.interpreter)
        ],
        "env": [
            {"name": name, "value": escaped(value)} for name, value in _environment(script, shape).items()
        ],
    }
    directory = script.settings.get("chdir") or script.settings.get("container-workdir")
    if directory:
        container["workingDir"] = directory.value
    requests = _requests(script, shape, out)
    if requests:
        container["resources"] = {"requests": requests}
        if "memory" in requests:
            container["resources"]["limits"] = {"memory": requests["memory"]}
    spec: dict[str, Any] = {"containers": [container]}
    if selector:
        spec["nodeSelector"] = dict(sorted(selector.items()))
    _mount(spec, container, mapping)
    signal = signal_of(script.settings.get("signal"))
    if signal:
        spec["terminationGracePeriodSeconds"] = signal.grace
    return {"spec": spec}


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


def _environment(script: Script, shape: Shape) -> dict[str, str]:
    """What Slurm tells a job that is known before it starts."""
    settings = script.settings
    known = {
        "SLURM_JOB_NAME": settings["job-name"].value if "job-name" in settings else _script_name(script),
        "SLURM_NTASKS": shape.tasks,
        "SLURM_NTASKS_PER_NODE": shape.tasks_per_node or _even(shape),
        "SLURM_GPUS_PER_TASK": shape.per_task,
        "SLURM_GPUS_PER_NODE": shape.per_node,
    }
    for name, option in (
        ("SLURM_CPUS_PER_TASK", "cpus-per-task"),
        ("SLURM_JOB_PARTITION", "partition"),
        ("SLURM_JOB_ACCOUNT", "account"),
        ("SLURM_JOB_QOS", "qos"),
        ("SLURM_SUBMIT_DIR", "chdir"),
    ):
        known[name] = settings[option].value if option in settings else None
    signal = signal_of(settings.get("signal"))
    if signal and (signal.name != "TERM" or signal.shell_only):
        known["SLURM_JOBTREE_SIGNAL"] = f"B:{signal.name}" if signal.shell_only else signal.name
    return {name: str(value) for name, value in known.items() if value is not None}


def _even(shape: Shape) -> int | None:
    if shape.tasks and shape.nodes and shape.tasks % shape.nodes == 0:
        return shape.tasks // shape.nodes
    return None


def exported(script: Script, environment: dict[str, str], out: Converted) -> dict[str, str]:
    """The variables that --export names, with their values."""
    setting = script.settings.get("export")
    found: dict[str, str] = {}
    for part in setting.value.split(",") if setting else ():
        name, equals, value = part.partition("=")
        if setting and name.upper() in ("ALL", "NIL") and not equals:
            out.remark(
                setting.where,
                f"--export={name}",
                "the submitting shell's environment stays behind: name variables",
            )
        elif name.upper() == "NONE" or not name:
            continue
        elif equals:
            found[name] = value
        elif name in environment:
            found[name] = environment[name]
        elif setting:
            out.remark(
                setting.where, f"--export={name}", "its value is not known here: write --export=NAME=VALUE"
            )
    for name in found:
        if setting and not name.replace("_", "a").replace("-", "a").replace(".", "a").isalnum():
            raise InputError(setting.where, [f"--export: {name!r} is no name of a variable"])
    return found


def _requests(script: Script, shape: Shape, out: Converted) -> dict[str, str]:
    """CPU, memory and scratch space of one pod."""
    settings, found = script.settings, dict[str, str]()
    cpus = _cpus(script, shape, out)
    if cpus:
        found["cpu"] = str(cpus)
    for option, factor in (("mem", 1), ("mem-per-cpu", cpus or 1), ("mem-per-gpu", shape.per_node)):
        if option in settings:
            number, unit = size(settings[option])
            if factor is None:
                out.remark(
                    settings[option].where,
                    str(settings[option]),
                    "the size of a pod is not known: say --nodes",
                )
            elif number:
                found["memory"] = f"{number * factor}{unit}"
            else:
                out.remark(
                    settings[option].where,
                    str(settings[option]),
                    "all memory of a node: say how much is needed",
                )
    if "tmp" in settings:
        number, unit = size(settings["tmp"])
        found["ephemeral-storage"] = f"{number}{unit}"
    return found


def _cpus(script: Script, shape: Shape, out: Converted) -> int | None:
    settings = script.settings
    if "cpus-per-gpu" in settings and shape.per_node:
        return count(settings["cpus-per-gpu"]) * shape.per_node
    if "cpus-per-task" not in settings:
        return None
    setting = settings["cpus-per-task"]
    each, tasks = count(setting), shape.tasks_per_node
    if tasks is None and shape.nodes:
        tasks = -(-(shape.tasks or shape.nodes) // shape.nodes)
    if tasks is None and shape.tasks not in (None, 1):
        out.remark(
            setting.where, str(setting), "the size of a pod is not known: say --nodes, or set resources"
        )
        return None
    return each * (tasks or 1)
