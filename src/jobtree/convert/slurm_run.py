"""One batch script as one Run: who pays, for what, where, for how long, and what its pods do."""

import re
from dataclasses import dataclass, field
from typing import Any

from jobtree.api.problems import InputError
from jobtree.api.quantities import SECOND, format_duration
from jobtree.convert.kube_text import escaped
from jobtree.convert.remarks import Body, Converted
from jobtree.convert.sbatch import Script, decode
from jobtree.convert.slurm_gpus import Shape, shape_of
from jobtree.convert.slurm_map import Partition, Quality, SlurmMap
from jobtree.convert.slurm_template import MAX_GRACE_SECONDS, exported, signal_of, template_of
from jobtree.convert.slurm_values import count, duration_ms, refuse, time_limit

_FEATURES = re.compile(r"[&*]")


@dataclass(frozen=True)
class Wishes:
    """What the caller adds to the scripts."""

    mapping: SlurmMap = field(default_factory=SlurmMap)
    image: str | None = None
    owner: str | None = None
    gpu_type: str | None = None
    namespace: str | None = None
    checkpoint: str | None = None
    environment: dict[str, str] = field(default_factory=dict)


def spec_of(script: Script, wishes: Wishes, out: Converted) -> dict[str, Any]:
    """The spec of the script's Run. Raises InputError."""
    partition = _partition(script, wishes.mapping, out)
    shape = _whole_nodes(script, shape_of(script.settings, script.source, out), partition, out)
    flavor, selector = _place(script, shape, partition, wishes, out)
    spec: dict[str, Any] = {"owner": _owner(script, wishes), "resources": _resources(shape, flavor)}
    locality = _locality(script, shape, out)
    if locality:
        spec["locality"] = locality
    runtime = _runtime(script, partition, wishes, out)
    if runtime:
        spec["runtime"] = runtime
    if shape.gpus and shape.least_nodes != shape.nodes and shape.least_nodes and shape.per_node:
        spec["malleable"] = _malleable(script, shape, out)
    funding = _funding(script, partition, wishes.mapping)
    if funding:
        spec["funding"] = funding
    spec["template"] = template_of(script, shape, _image(script, wishes), wishes.mapping, selector, out)
    _add_exports(spec["template"], exported(script, wishes.environment, out))
    return spec


def _add_exports(template: Body, variables: dict[str, str]) -> None:
    (container,) = template["spec"]["containers"]
    container["env"] += [{"name": name, "value": escaped(value)} for name, value in variables.items()]


def _partition(script: Script, mapping: SlurmMap, out: Converted) -> Partition:
    setting = script.settings.get("partition")
    names = setting.value.split(",") if setting else []
    known = [name for name in names if name in mapping.partitions]
    if setting and not known and mapping.partitions:
        out.remark(setting.where, str(setting), "is not under partitions: in the mapping: it was left out")
    elif setting and not known:
        out.remark(
            setting.where,
            str(setting),
            "there are no partitions: name what it stands for in a mapping (--map)",
        )
    elif setting and len(names) > 1:
        out.remark(setting.where, str(setting), f"a Run asks for one kind of GPU: {known[0]} was taken")
    return mapping.partitions[known[0]] if known else Partition()


def _whole_nodes(script: Script, shape: Shape, partition: Partition, out: Converted) -> Shape:
    """--exclusive takes all GPUs of a node."""
    setting = script.settings.get("exclusive")
    if setting is None:
        return shape
    if not shape.gpus and partition.gpus_per_node and shape.nodes:
        per_node = partition.gpus_per_node
        return Shape(
            shape.nodes * per_node,
            shape.least_nodes,
            shape.nodes,
            per_node,
            shape.type,
            shape.tasks,
            shape.tasks_per_node,
        )
    if not partition.gpus_per_node or partition.gpus_per_node != shape.per_node:
        hint = "ask for all of its GPUs to have a node alone"
        out.remark(setting.where, str(setting), f"a pod has its GPUs to itself, not its node: {hint}")
    return shape


def _place(
    script: Script, shape: Shape, partition: Partition, wishes: Wishes, out: Converted
) -> tuple[str | None, dict[str, str]]:
    """The flavor (None without GPUs) and the node labels that the script asks for."""
    selector, flavors = dict(partition.node_selector), list[str]()
    setting = script.settings.get("constraint")
    for name in _FEATURES.split(setting.value) if setting else ():
        feature = wishes.mapping.constraints.get(name.strip("[]()\"' "))
        if feature is None and setting:
            why = "one of several" if "|" in name else "is not under constraints: in the mapping"
            out.remark(setting.where, f"--constraint={name}", f"{why}: it was left out")
        elif feature:
            selector |= feature.node_selector
            flavors += [feature.gpu_type] if feature.gpu_type else []
    if not shape.gpus:
        return None, selector
    return _flavor(script, shape, flavors, partition, wishes, out), selector


def _flavor(
    script: Script, shape: Shape, flavors: list[str], partition: Partition, wishes: Wishes, out: Converted
) -> str:
    named = wishes.mapping.gpus.get(shape.type)
    others = [named, *flavors, partition.gpu_type, wishes.gpu_type, wishes.mapping.gpu_type]
    found = next((flavor for flavor in others if flavor), None)
    if found:
        return found
    if not shape.type:
        rule = "which kind of GPU? Name the flavor: --gpu-type, or gpuType of its partition in the mapping"
        raise InputError(script.source, [rule])
    out.remark(
        script.source,
        f"GPUs of type {shape.type}",
        "the name is taken for the flavor (node label gpu.flavor): say under gpus: in the mapping what it is here",
    )
    return shape.type


def _owner(script: Script, wishes: Wishes) -> str:
    mapping, account = wishes.mapping, script.settings.get("account")
    quality = _quality(script, mapping)
    found = (
        quality.owner
        or (mapping.accounts.get(account.value) if account else None)
        or wishes.owner
        or mapping.owner
    )
    if not found:
        who = (
            f"the account {account.value} is not under accounts: in the mapping"
            if account
            else "it names no account"
        )
        raise InputError(script.source, [f"which team pays? {who}: add it there, or say --owner"])
    return found


def _quality(script: Script, mapping: SlurmMap) -> Quality:
    setting = script.settings.get("qos")
    return mapping.qos.get(setting.value, Quality()) if setting else Quality()


def _image(script: Script, wishes: Wishes) -> str:
    asked = script.settings.get("container-image")
    found = wishes.image or (
        asked.value.removeprefix("docker://").replace("#", "/") if asked else wishes.mapping.image
    )
    if not found:
        raise InputError(script.source, ["which image runs it? Say --image, or image: in the mapping"])
    return found


def _resources(shape: Shape, flavor: str | None) -> dict[str, Any]:
    if not shape.gpus:
        return {"totalGPUs": 0, "pods": shape.nodes or 1}
    sized = {"gpusPerPod": shape.per_node} if shape.per_node else {}
    return {"gpuType": flavor, "totalGPUs": shape.gpus, **sized}


def _locality(script: Script, shape: Shape, out: Converted) -> dict[str, Any]:
    """--switches: how many islands the job may be spread over."""
    setting = script.settings.get("switches")
    if setting is None or not shape.gpus:
        return {}
    number, at, wait = setting.value.partition("@")
    switches = count(setting._replace(value=number))
    if at:
        out.remark(
            setting.where,
            f"--switches=…@{wait}",
            "the islands are a rule, not a wish that ends: plan says when",
        )
    group, rest = divmod(shape.gpus, switches)
    if rest or (shape.per_node and group % shape.per_node):
        out.remark(
            setting.where,
            str(setting),
            f"{shape.gpus} GPUs do not divide into {switches} groups of whole pods",
        )
        return {}
    return {"groupGPUs": group}


def _runtime(script: Script, partition: Partition, wishes: Wishes, out: Converted) -> dict[str, Any]:
    settings, runtime = script.settings, dict[str, Any]()
    signal = signal_of(settings.get("signal"))
    checkpoint = wishes.checkpoint
    if signal:
        checkpoint = checkpoint or format_duration(max(signal.seconds, 1) * SECOND)
        runtime["onNotice"] = "Checkpoint"
        if signal.seconds > signal.grace:
            rule = f"a pod has {MAX_GRACE_SECONDS} seconds at most between the signal and its end (maxGrace)"
            out.remark(settings["signal"].where, str(settings["signal"]), rule)
    if checkpoint:
        runtime["checkpoint"] = checkpoint
    limit = _limit(script, partition, out)
    if limit:
        runtime["maxDuration"] = format_duration(limit)
    if "no-requeue" in settings:
        runtime["requeue"] = False
    elif not checkpoint and ("requeue" in settings or _appends(script)):
        setting = settings.get("requeue") or settings["open-mode"]
        hint = "say how often it saves its state, --checkpoint 30m: then it may also start in GPUs promised to others"
        out.remark(setting.where, str(setting), hint)
    return dict(sorted(runtime.items()))


def _appends(script: Script) -> bool:
    setting = script.settings.get("open-mode")
    if setting and setting.value not in ("append", "truncate"):
        raise refuse(setting, "must be append or truncate")
    return setting is not None and setting.value == "append"


def _limit(script: Script, partition: Partition, out: Converted) -> int | None:
    setting = script.settings.get("time")
    if setting:
        return time_limit(setting)
    if partition.default_time is not None:
        return duration_ms(str(partition.default_time))
    hint = "with one (runtime.maxDuration) it could also use GPUs that are promised to others later"
    out.remark(script.source, "no --time", f"the Run has no limit: {hint}")
    return None


def _malleable(script: Script, shape: Shape, out: Converted) -> dict[str, int]:
    per_node, least, most = shape.per_node or 0, shape.least_nodes or 0, shape.nodes or 0
    setting = script.settings["nodes"]
    out.remark(
        setting.where,
        str(setting),
        "the Run may shrink and grow in this range while it runs, not only at its start",
    )
    return {"minTotalGPUs": least * per_node, "maxTotalGPUs": most * per_node, "stepGPUs": per_node}


def _funding(script: Script, partition: Partition, mapping: SlurmMap) -> dict[str, Any]:
    quality = _quality(script, mapping)
    funding: dict[str, Any] = {}
    if quality.allow_borrow:
        funding["allowBorrow"] = True
        if quality.max_borrow_gpus is not None:
            funding["maxBorrowGPUs"] = quality.max_borrow_gpus
        funding["sponsors"] = list(quality.sponsors)
    if quality.allow_opportunistic or partition.allow_opportunistic:
        funding["allowOpportunistic"] = True
    return funding


def note_quality(script: Script, mapping: SlurmMap, out: Converted) -> None:
    setting = script.settings.get("qos")
    if setting and setting.value not in mapping.qos:
        hint = "name under qos: in the mapping who pays for it, or that it may run opportunistically"
        out.remark(setting.where, str(setting), f"there are no priorities: {hint}")


def read_environment(raw: bytes, source: str) -> dict[str, str]:
    """Variables from lines ``NAME=VALUE``, as ``env`` prints them. Raises InputError."""
    found: dict[str, str] = {}
    for number, line in enumerate(decode(raw, source).splitlines(), start=1):
        name, equals, value = line.removeprefix("export ").partition("=")
        if not line.strip() or line.startswith("#"):
            continue
        if not equals or not name.strip():
            raise InputError(f"{source}, line {number}", [f"{line!r} must be NAME=VALUE"])
        found[name.strip()] = value.strip().strip("\"'")
    return found
