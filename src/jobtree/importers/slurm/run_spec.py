"""One batch script as the spec of one Run: for what it asks, where, for how long, and what its pods do."""

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


def script_owner(order: ScriptRequest) -> str:
    """The QOS's owner, the account's, or the one the caller names. Raises InputError."""
    account, mapping = order.setting("account"), order.mapping
    mapped = mapping.accounts.get(account.value) if account else None
    owner = _quality(order).owner or mapped or order.wishes.owner or mapping.owner
    if owner:
        return owner
    reason = "it names no account"
    if account:
        reason = f"the account {account.value} is not under accounts: in the mapping"
    raise InputError(order.script.source, [f"which team pays? {reason}: add it there, or say --owner"])


def script_funding(order: ScriptRequest) -> dict[str, Any]:
    """Other ways to pay that the QOS and the partition stand for."""
    quality = _quality(order)
    funding: dict[str, Any] = {}
    if quality.allow_borrow:
        funding["allowBorrow"] = True
        if quality.max_borrow_gpus is not None:
            funding["maxBorrowGPUs"] = quality.max_borrow_gpus
        funding["sponsors"] = list(quality.sponsors)
    if quality.allow_opportunistic or order.partition.allow_opportunistic:
        funding["allowOpportunistic"] = True
    return funding


def _quality(order: ScriptRequest) -> QosMapping:
    setting = order.setting("qos")
    if setting is None:
        return QosMapping()
    if setting.value not in order.mapping.qos:
        hint = "say under qos: in the mapping who pays for it, or that it may run opportunistically"
        order.note(setting, f"there are no priorities: {hint}")
    return order.mapping.qos.get(setting.value, QosMapping())


_FEATURES = re.compile(r"[&*]")


def spec_of(script: Script, wishes: CallerOptions, out: Converted) -> dict[str, Any]:
    """The spec of the script's Run. Raises InputError."""
    order = ScriptRequest(script, wishes, Partition(), GpuRequest(), out)
    order = replace(order, partition=_partition(order))
    order = replace(order, shape=_whole_nodes(order, gpu_request(script.settings, script.source, out)))
    flavor, selector = _place(order)
    malleable = _malleable(order)
    parts = {
        "owner": script_owner(order),
        "resources": _resources(order.shape, flavor),
        "locality": _locality(order, fixed=not malleable),
        "runtime": _runtime(order),
        "malleable": malleable,
        "funding": script_funding(order),
        "template": template_of(order, selector),
    }
    return {field: value for field, value in parts.items() if value}


def _partition(order: ScriptRequest) -> Partition:
    setting, partitions = order.setting("partition"), order.mapping.partitions
    if setting is None:
        return Partition()
    names = setting.value.split(",")
    mapped = next((name for name in names if name in partitions), None)
    if mapped is None and partitions:
        order.note(setting, "is not under partitions: in the mapping: it was left out")
    elif mapped is None:
        order.note(setting, "there are no partitions: say in a mapping (--map) what it stands for")
    elif len(names) > 1:
        order.note(setting, f"a Run asks for one kind of GPU: {mapped} was taken")
    return partitions[mapped] if mapped else Partition()


def _whole_nodes(order: ScriptRequest, shape: GpuRequest) -> GpuRequest:
    """--exclusive takes all GPUs of a node, where the mapping says how many that is."""
    setting, all_gpus = order.setting("exclusive"), order.partition.gpus_per_node
    if setting is None:
        return shape
    if not shape.gpus and all_gpus and shape.nodes:
        return replace(shape, gpus=shape.nodes * all_gpus, per_node=all_gpus)
    if all_gpus is None or all_gpus != shape.per_node:
        order.note(setting, "a pod has its GPUs to itself, not its node: ask for all of a node's GPUs")
    return shape


def _place(order: ScriptRequest) -> tuple[str | None, dict[str, str]]:
    """The flavor (None without GPUs) and the node labels that the script asks for."""
    selector, flavors = dict(order.partition.node_selector), list[str]()
    setting = order.setting("constraint")
    for name in _FEATURES.split(setting.value) if setting else ():
        feature = order.mapping.constraints.get(name.strip("[]()\"' "))
        if feature:
            selector |= feature.node_selector
            flavors += [feature.gpu_type] if feature.gpu_type else []
        elif setting:
            why = "one of several" if "|" in name else "is not under constraints: in the mapping"
            order.note(setting, f"{why}: it was left out", f"--constraint={name}")
    return _flavor(order, flavors) if order.shape.gpus else None, selector


def _flavor(order: ScriptRequest, flavors: list[str]) -> str:
    kind, wishes = order.shape.type, order.wishes
    candidates = [order.mapping.gpus.get(kind), *flavors, order.partition.gpu_type]
    flavor = next((name for name in (*candidates, wishes.gpu_type, order.mapping.gpu_type) if name), None)
    if flavor:
        return flavor
    if not kind:
        rule = "which kind of GPU? Name the flavor: --gpu-type, or gpuType of its partition in the mapping"
        raise InputError(order.script.source, [rule])
    hint = "the name is taken for the flavor (node label gpu.flavor): map it under gpus: if it has another"
    order.out.remark(order.script.source, f"GPUs of type {kind}", hint)
    return kind


def _resources(shape: GpuRequest, flavor: str | None) -> dict[str, Any]:
    if not shape.gpus:
        return {"totalGPUs": 0, "pods": shape.nodes or 1}
    sized = {"gpusPerPod": shape.per_node} if shape.per_node else {}
    return {"gpuType": flavor, "totalGPUs": shape.gpus, **sized}


def _locality(order: ScriptRequest, *, fixed: bool) -> dict[str, Any]:
    """--switches: how many islands the job may be spread over."""
    setting, shape = order.setting("switches"), order.shape
    if setting is None or not shape.gpus:
        return {}
    number, at, wait = setting.value.partition("@")
    switches = parse_count(setting._replace(value=number))
    if at:
        hint = "islands are a rule here, not a wish that ends: 'kubectl runs plan' says when it can start"
        order.note(setting, hint, f"--switches={number}@{wait}")
    group, rest = divmod(shape.gpus, switches)
    if not fixed or rest or (shape.per_node and group % shape.per_node):
        order.note(setting, f"{shape.gpus} GPUs cannot be kept in {switches} groups of whole pods")
        return {}
    return {"groupGPUs": group}


def _malleable(order: ScriptRequest) -> dict[str, int]:
    """``--nodes=2-4`` is a Run that can work at several widths."""
    shape, setting = order.shape, order.setting("nodes")
    if not setting or not shape.per_node or not shape.nodes or not shape.least_nodes:
        return {}
    if shape.least_nodes == shape.nodes:
        return {}
    order.note(setting, "the Run may shrink and grow in this range while it runs, not only at its start")
    least, most = shape.least_nodes * shape.per_node, shape.nodes * shape.per_node
    return {"minTotalGPUs": least, "maxTotalGPUs": most, "stepGPUs": shape.per_node}


def _runtime(order: ScriptRequest) -> dict[str, Any]:
    runtime: dict[str, Any] = {}
    checkpoint = _checkpoint(order)
    if checkpoint:
        runtime["checkpoint"] = checkpoint
    if order.setting("signal"):
        runtime["onNotice"] = "Checkpoint"
    limit = _limit(order)
    if limit:
        runtime["maxDuration"] = format_duration(limit)
    if order.setting("no-requeue"):
        runtime["requeue"] = False
    return runtime


def _checkpoint(order: ScriptRequest) -> str | None:
    """As the caller says; else a job that asks for a signal can save its state in the time before the end."""
    setting = order.setting("signal")
    signal = signal_of(setting)
    if setting and signal and signal.seconds > signal.grace:
        rule = f"between the signal and its end a pod has {MAX_GRACE_SECONDS} seconds at most (maxGrace)"
        order.note(setting, rule)
    if order.wishes.checkpoint:
        return order.wishes.checkpoint
    if signal:
        return format_duration(max(signal.seconds, 1) * SECOND)
    again = order.setting("requeue") or _appending(order)
    if again and not order.setting("no-requeue"):
        hint = "say how often it saves its state (--checkpoint 30m): then it can also start in promised GPUs"
        order.note(again, hint)
    return None


def _appending(order: ScriptRequest) -> OptionSetting | None:
    setting = order.setting("open-mode")
    if setting and setting.value not in ("append", "truncate"):
        raise refuse(setting, "must be append or truncate")
    return setting if setting and setting.value == "append" else None


def _limit(order: ScriptRequest) -> int | None:
    setting, default = order.setting("time"), order.partition.default_time
    if setting:
        return time_limit(setting)
    if default is not None:
        return duration_ms(str(default))
    hint = "the Run has no limit (maxDuration): with one it could also use GPUs promised to others later"
    order.out.remark(order.script.source, "no --time", hint)
    return None
