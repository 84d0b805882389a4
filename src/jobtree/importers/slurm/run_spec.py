"""Converts one batch script to the spec of one Run."""

import re
from dataclasses import replace
from typing import Any

from jobtree.api.schema.problems import InputError
from jobtree.api.schema.quantities import SECOND, format_duration
from jobtree.importers.conversion import Converted
from jobtree.importers.slurm.rank_template import MAX_GRACE_SECONDS, signal_of, template_of
from jobtree.importers.slurm.script.batch_script import OptionSetting, Script
from jobtree.importers.slurm.script.gpu_request import GpuRequest, gpu_request
from jobtree.importers.slurm.script.option_values import duration_ms, parse_count, refuse, time_limit
from jobtree.importers.slurm.script_request import CallerOptions, ScriptRequest
from jobtree.importers.slurm.site_mapping import Partition, QosMapping


def script_owner(request: ScriptRequest) -> str:
    """The owner of the QOS, of the account, or of the caller's options. Raises InputError."""
    account, mapping = request.setting("account"), request.mapping
    mapped = mapping.accounts.get(account.value) if account else None
    owner = _quality(request).owner or mapped or request.options.owner or mapping.owner
    if owner:
        return owner
    reason = "it has no --account"
    if account:
        reason = f"the account {account.value} is not under accounts: in the mapping"
    raise InputError(request.script.source, [f"has no owner: {reason}: add it there, or give --owner"])


def script_funding(request: ScriptRequest) -> dict[str, Any]:
    """The funding that the QOS and the partition mean."""
    quality = _quality(request)
    funding: dict[str, Any] = {}
    if quality.allow_borrow:
        funding["allowBorrow"] = True
        if quality.max_borrow_gpus is not None:
            funding["maxBorrowGPUs"] = quality.max_borrow_gpus
        funding["sponsors"] = list(quality.sponsors)
    if quality.allow_opportunistic or request.partition.allow_opportunistic:
        funding["allowOpportunistic"] = True
    return funding


def _quality(request: ScriptRequest) -> QosMapping:
    setting = request.setting("qos")
    if setting is None:
        return QosMapping()
    if setting.value not in request.mapping.qos:
        hint = "add the QOS under qos: in the mapping, with an owner or allowOpportunistic"
        request.note(setting, f"Jobtree has no priorities: {hint}")
    return request.mapping.qos.get(setting.value, QosMapping())


_FEATURES = re.compile(r"[&*]")


def spec_of(script: Script, options: CallerOptions, out: Converted) -> dict[str, Any]:
    """The spec of the script's Run. Raises InputError."""
    request = ScriptRequest(script, options, Partition(), GpuRequest(), out)
    request = replace(request, partition=_partition(request))
    request = replace(request, shape=_whole_nodes(request, gpu_request(script.settings, script.source, out)))
    flavor, selector = _place(request)
    malleable = _malleable(request)
    parts = {
        "owner": script_owner(request),
        "resources": _resources(request.shape, flavor),
        "locality": _locality(request, fixed=not malleable),
        "runtime": _runtime(request),
        "malleable": malleable,
        "funding": script_funding(request),
        "template": template_of(request, selector),
    }
    return {field: value for field, value in parts.items() if value}


def _partition(request: ScriptRequest) -> Partition:
    setting, partitions = request.setting("partition"), request.mapping.partitions
    if setting is None:
        return Partition()
    names = setting.value.split(",")
    mapped = next((name for name in names if name in partitions), None)
    if mapped is None and partitions:
        request.note(setting, "is not under partitions: in the mapping, and is ignored")
    elif mapped is None:
        request.note(setting, "Jobtree has no partitions: add it under partitions: in a mapping (--map)")
    elif len(names) > 1:
        request.note(setting, f"a Run asks for one kind of GPU: {mapped} is used")
    return partitions[mapped] if mapped else Partition()


def _whole_nodes(request: ScriptRequest, shape: GpuRequest) -> GpuRequest:
    """With --exclusive a pod has all GPUs of a node, if the mapping says how many that are."""
    setting, all_gpus = request.setting("exclusive"), request.partition.gpus_per_node
    if setting is None:
        return shape
    if not shape.gpus and all_gpus and shape.nodes:
        return replace(shape, gpus=shape.nodes * all_gpus, per_node=all_gpus)
    if all_gpus is None or all_gpus != shape.per_node:
        request.note(setting, "other pods may use the rest of the node: ask for all of its GPUs")
    return shape


def _place(request: ScriptRequest) -> tuple[str | None, dict[str, str]]:
    """The flavor (None without GPUs) and the node labels that the script asks for."""
    selector, flavors = dict(request.partition.node_selector), list[str]()
    setting = request.setting("constraint")
    for name in _FEATURES.split(setting.value) if setting else ():
        feature = request.mapping.constraints.get(name.strip("[]()\"' "))
        if feature:
            selector |= feature.node_selector
            flavors += [feature.gpu_type] if feature.gpu_type else []
        elif setting:
            why = "is a choice of features" if "|" in name else "is not under constraints: in the mapping"
            request.note(setting, f"{why}, and is ignored", f"--constraint={name}")
    return _flavor(request, flavors) if request.shape.gpus else None, selector


def _flavor(request: ScriptRequest, flavors: list[str]) -> str:
    kind, options = request.shape.type, request.options
    candidates = [request.mapping.gpus.get(kind), *flavors, request.partition.gpu_type]
    flavor = next((name for name in (*candidates, options.gpu_type, request.mapping.gpu_type) if name), None)
    if flavor:
        return flavor
    if not kind:
        rule = "has no GPU type: give --gpu-type, or gpuType of its partition in the mapping"
        raise InputError(request.script.source, [rule])
    hint = "the type is used as the flavor (node label gpu.flavor): if the flavor differs, add it under gpus:"
    request.out.remark(request.script.source, f"GPUs of type {kind}", hint)
    return kind


def _resources(shape: GpuRequest, flavor: str | None) -> dict[str, Any]:
    if not shape.gpus:
        return {"totalGPUs": 0, "pods": shape.nodes or 1}
    sized = {"gpusPerPod": shape.per_node} if shape.per_node else {}
    return {"gpuType": flavor, "totalGPUs": shape.gpus, **sized}


def _locality(request: ScriptRequest, *, fixed: bool) -> dict[str, Any]:
    """Groups from --switches, the number of domains that the job may use."""
    setting, shape = request.setting("switches"), request.shape
    if setting is None or not shape.gpus:
        return {}
    number, at, wait = setting.value.partition("@")
    switches = parse_count(setting._replace(value=number))
    if at:
        hint = "the limit has no end in Jobtree: 'kubectl runs plan' shows when the Run can start"
        request.note(setting, hint, f"--switches={number}@{wait}")
    group, rest = divmod(shape.gpus, switches)
    if not fixed or rest or (shape.per_node and group % shape.per_node):
        request.note(setting, f"{shape.gpus} GPUs cannot be split into {switches} groups of whole pods")
        return {}
    return {"groupGPUs": group}


def _malleable(request: ScriptRequest) -> dict[str, int]:
    """The widths of a malleable Run, from ``--nodes=2-4``."""
    shape, setting = request.shape, request.setting("nodes")
    if not setting or not shape.per_node or not shape.nodes or not shape.least_nodes:
        return {}
    if shape.least_nodes == shape.nodes:
        return {}
    request.note(setting, "the Run may also shrink and grow in this range while it runs")
    least, most = shape.least_nodes * shape.per_node, shape.nodes * shape.per_node
    return {"minTotalGPUs": least, "maxTotalGPUs": most, "stepGPUs": shape.per_node}


def _runtime(request: ScriptRequest) -> dict[str, Any]:
    runtime: dict[str, Any] = {}
    checkpoint = _checkpoint(request)
    if checkpoint:
        runtime["checkpoint"] = checkpoint
    if request.setting("signal"):
        runtime["onNotice"] = "Checkpoint"
    limit = _limit(request)
    if limit:
        runtime["maxDuration"] = format_duration(limit)
    if request.setting("no-requeue"):
        runtime["requeue"] = False
    return runtime


def _checkpoint(request: ScriptRequest) -> str | None:
    """The caller's --checkpoint, or the time between the signal of --signal and the end."""
    setting = request.setting("signal")
    signal = signal_of(setting)
    if setting and signal and signal.seconds > signal.grace:
        rule = f"a pod has at most {MAX_GRACE_SECONDS} seconds between the signal and its end (maxGrace)"
        request.note(setting, rule)
    if request.options.checkpoint:
        return request.options.checkpoint
    if signal:
        return format_duration(max(signal.seconds, 1) * SECOND)
    restarts = request.setting("requeue") or _appending(request)
    if restarts and not request.setting("no-requeue"):
        hint = (
            "give --checkpoint 30m if it saves its state that often: it can then also start on promised GPUs"
        )
        request.note(restarts, hint)
    return None


def _appending(request: ScriptRequest) -> OptionSetting | None:
    setting = request.setting("open-mode")
    if setting and setting.value not in ("append", "truncate"):
        raise refuse(setting, "must be append or truncate")
    return setting if setting and setting.value == "append" else None


def _limit(request: ScriptRequest) -> int | None:
    setting, default = request.setting("time"), request.partition.default_time
    if setting:
        return time_limit(setting)
    if default is not None:
        return duration_ms(str(default))
    hint = "the Run has no maxDuration: with one it could also use GPUs that are promised for later"
    request.out.remark(request.script.source, "no --time", hint)
    return None
