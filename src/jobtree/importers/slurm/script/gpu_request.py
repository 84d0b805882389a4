"""Computes how many GPUs a batch script asks for, the size of its pods, and its number of tasks.

Slurm has many options for this. They are brought into three equations,

    GPUs = --gpus = nodes × GPUs a node = tasks × GPUs a task

which must agree: a script that contradicts itself is refused, with the arithmetic. A node of the script
becomes a pod of the Run. If the script has no number of nodes, Jobtree chooses the size of the pods.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from jobtree.api.schema.problems import InputError
from jobtree.importers.conversion import Converted
from jobtree.importers.slurm.script.batch_script import OptionSetting
from jobtree.importers.slurm.script.option_values import MAX_COUNT, node_range, parse_count, refuse

ScriptOptions = Mapping[str, OptionSetting]


@dataclass(frozen=True)
class GpuRequest:
    """``nodes`` and ``per_node`` are None if Jobtree may choose; ``tasks`` is None for one task a pod."""

    gpus: int = 0
    least_nodes: int | None = None
    nodes: int | None = None
    per_node: int | None = None
    type: str = ""
    tasks: int | None = None
    tasks_per_node: int | None = None
    per_task: int | None = None


@dataclass
class _GpuOptions:
    """The values of the options about GPUs, and the types of GPU that they name."""

    settings: ScriptOptions
    out: Converted
    types: dict[str, OptionSetting]

    def number(self, name: str) -> int | None:
        return parse_count(self.settings[name]) if name in self.settings else None

    def gpus(self, name: str) -> int | None:
        """The GPUs in the value of an option such as ``4``, ``a100:4`` or ``a100:2,a100:2``."""
        setting = self.settings.get(name)
        if setting is None:
            return None
        return sum(self._one(setting, part.split(":")) for part in setting.value.split(",") if part)

    def gres(self) -> int | None:
        """The GPUs in --gres; other resources get a remark."""
        setting = self.settings.get("gres")
        if setting is None or setting.value.lower() in ("", "none"):
            return None
        total: int | None = None
        for part in setting.value.split(","):
            kind, *rest = part.removeprefix("gres:").removeprefix("gres/").partition("(")[0].split(":")
            if kind == "gpu":
                total = (total or 0) + self._one(setting, rest)
            elif kind:
                self.out.remark(
                    setting.where, f"--gres={part}", "Jobtree schedules only GPUs, and ignores it"
                )
        return total

    def _one(self, setting: OptionSetting, words: list[str]) -> int:
        if words and not words[0].isdecimal():
            self._note_type(setting, words[0])
            words = words[1:]
        if len(words) > 1:
            raise refuse(setting, "must be gpu, gpu:COUNT, gpu:TYPE or gpu:TYPE:COUNT")
        return parse_count(setting._replace(value=words[0]), least=0) if words else 1

    def _note_type(self, setting: OptionSetting, name: str) -> None:
        self.types[name] = setting
        if len(self.types) > 1:
            names = " and ".join(self.types)
            raise refuse(
                setting, f"a Run has one type of GPU, but the script asks for {names}: split the job"
            )


def gpu_request(settings: ScriptOptions, source: str, out: Converted) -> GpuRequest:
    """The GPUs that the script asks for. Raises InputError if it contradicts itself."""
    options = _GpuOptions(settings, out, {})
    least, most = node_range(settings["nodes"]) if "nodes" in settings else (None, None)
    tasks, tasks_per_node = options.number("ntasks"), options.number("ntasks-per-node")
    total, per_task = options.gpus("gpus"), options.gpus("gpus-per-task")
    per_node = _same_per_node(options.gpus("gpus-per-node"), options.gres(), source)
    if most is None and tasks and tasks_per_node:
        least = most = -(-tasks // tasks_per_node)
    if per_node is None and per_task and tasks_per_node:
        per_node = per_task * tasks_per_node
    if most is None:
        least = most = _nodes_without_word(total, per_node, per_task)
        if most == 1 and tasks and tasks > 1 and per_node:
            out.remark(source, "no --nodes", "one node is assumed: give --nodes if the tasks need more")
    request = GpuRequest(
        0, least, most, per_node, next(iter(options.types), ""), tasks, tasks_per_node, per_task
    )
    gpus = _agreed(request, total, source)
    per_node = _size_of_pods(request, gpus, source)
    tasks = _tasks(request, options.number("ntasks-per-gpu"), gpus)
    return GpuRequest(
        gpus, least, most, per_node if gpus else None, request.type, tasks, tasks_per_node, per_task
    )


def _same_per_node(first: int | None, second: int | None, source: str) -> int | None:
    if first is not None and second is not None and first != second:
        raise InputError(source, [f"--gpus-per-node is {first} GPUs a node, but --gres is {second}"])
    return second if first is None else first


def _nodes_without_word(total: int | None, per_node: int | None, per_task: int | None) -> int | None:
    """The fewest nodes that fit, as with sbatch; None if only the sum is known, so that Jobtree chooses."""
    if per_node:
        return total // per_node if total and total % per_node == 0 else 1
    return None if total or per_task else 1


def _agreed(request: GpuRequest, total: int | None, source: str) -> int:
    """The GPUs of the job, by all equations that the script gives."""
    sums: dict[str, int] = {}
    if total is not None:
        sums[f"--gpus = {total}"] = total
    if request.nodes and request.per_node is not None:
        gpus = request.nodes * request.per_node
        sums[f"{request.nodes} nodes × {request.per_node} GPUs a node = {gpus}"] = gpus
    tasks = request.tasks or (request.nodes or 0) * (request.tasks_per_node or 0)
    if request.per_task is not None and tasks:
        gpus = tasks * request.per_task
        sums[f"{tasks} tasks × {request.per_task} GPUs a task = {gpus}"] = gpus
    elif request.per_task is not None and not sums:
        sums[f"{request.nodes or 1} tasks × {request.per_task}"] = (request.nodes or 1) * request.per_task
    if len(set(sums.values())) > 1:
        raise InputError(source, [f"asks for different numbers of GPUs: {', but '.join(sums)}"])
    gpus = next(iter(sums.values()), 0)
    if gpus > MAX_COUNT:
        raise InputError(source, [f"asks for {gpus} GPUs, but a Run can have at most {MAX_COUNT}"])
    return gpus


def _size_of_pods(request: GpuRequest, gpus: int, source: str) -> int | None:
    if request.per_node is not None or not request.nodes:
        return request.per_node
    if gpus % request.nodes:
        rule = f"{gpus} GPUs cannot be split evenly over {request.nodes} nodes: all pods of a Run are alike"
        raise InputError(source, [rule])
    return gpus // request.nodes


def _tasks(request: GpuRequest, per_gpu: int | None, gpus: int) -> int | None:
    if request.tasks is not None:
        return request.tasks
    if per_gpu and gpus:
        return gpus * per_gpu
    if request.per_task and gpus and not request.tasks_per_node:
        return gpus // request.per_task
    return None
