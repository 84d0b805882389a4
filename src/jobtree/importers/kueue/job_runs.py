"""Sets of pods as Runs: one set is one gang, several are a tree whose stages start together.

A job's flavor is the one that Kueue admitted it to; before that, the first of its queue that its node
selector allows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobtree.api.schema.gpu_resources import GPU_RESOURCES
from jobtree.api.schema.object_meta import API_VERSION
from jobtree.api.schema.problems import InputError
from jobtree.api.schema.quantities import SECOND, format_duration
from jobtree.importers.conversion import Converted, ObjectBody
from jobtree.importers.kubernetes_names import short_name
from jobtree.importers.kueue.job_reader import JobPodSet, KueueJob
from jobtree.importers.kueue.kueue_kinds import PRIORITY_LABEL, Admission, Assignment, LocalQueue
from jobtree.importers.kueue.queue_budgets import Team
from jobtree.importers.kueue.resource_flavors import Flavors
from jobtree.importers.kueue.template_cleanup import clean, node_selector, template_gpus

MAX_RESTARTS = 1000


@dataclass(frozen=True)
class KueueSite:
    """All that is known besides the jobs."""

    teams: Mapping[str, Team]
    local: Mapping[tuple[str, str], LocalQueue]
    flavors: Flavors
    admissions: Mapping[tuple[str, str, str], Admission]
    checkpoint: str | None


@dataclass(frozen=True)
class _Case:
    """One job, who pays for it, and what Kueue has given it."""

    work: KueueJob
    team: Team
    admission: Admission | None
    site: KueueSite
    out: Converted

    @property
    def assignments(self) -> tuple[Assignment, ...]:
        return self.admission.pod_set_assignments if self.admission else ()

    def note(self, what: str, instead: str) -> None:
        self.out.remark(self.work.where, what, instead)


def run_of(work: KueueJob, site: KueueSite, out: Converted) -> ObjectBody | None:
    """The Run of a job; None, with a remark, where nobody would pay. Raises InputError."""
    admission = site.admissions.get((work.kind, work.metadata.namespace, work.metadata.name))
    team = _team(work, admission, site, out)
    if team is None:
        return None
    if not any(one.count for one in work.sets):
        out.remark(work.where, "no pods", "there is nothing to run: it was left out")
        return None
    if priority := work.metadata.labels.get(PRIORITY_LABEL):
        out.remark(
            work.where,
            f"priority class {priority}",
            "there are no priorities: the oldest funded Run goes first",
        )
    spec: dict[str, Any] = {"owner": team.owner}
    case = _Case(work, team, admission, site, out)
    gangs = [_gang(one, case) for one in work.sets]
    funding = _funding(team, [gang for gang in gangs if "gpuType" in gang["resources"]], site)
    runtime = _runtime(work, site, single=len(gangs) == 1)
    gangs = [{**({"runtime": runtime} if runtime else {}), **gang} for gang in gangs]
    if funding:
        spec["funding"] = funding
    spec |= gangs[0] if len(gangs) == 1 else {"stages": _stages(work, gangs, funding)}
    metadata = {"name": short_name(work.metadata.name), "namespace": work.metadata.namespace}
    return {"apiVersion": API_VERSION, "kind": "Run", "metadata": metadata, "spec": spec}


def _team(work: KueueJob, admission: Admission | None, site: KueueSite, out: Converted) -> Team | None:
    name = admission.cluster_queue if admission else ""
    if not name:
        if not work.queue:
            out.remark(
                work.where,
                "no queue",
                "nobody would pay: it was left out; name one with the label queue-name",
            )
            return None
        local = site.local.get((work.metadata.namespace, work.queue))
        name = local.spec.cluster_queue if local else ""
        if local is None:
            hint = "it was left out: convert the queue together with its jobs"
            out.remark(work.where, f"LocalQueue {work.metadata.namespace}/{work.queue} is not here", hint)
            return None
    team = site.teams.get(name)
    if team is None:
        out.remark(
            work.where, f"ClusterQueue {name} is not here", "it was left out: convert the queue with its jobs"
        )
    return team


def _gang(one: JobPodSet, case: _Case) -> dict[str, Any]:
    gpus, count = template_gpus(one.template, case.work.where), _count(one, case)
    if not gpus or not count:
        if not gpus:
            case.note(
                f"{one.name} asks for no GPUs", "it has no payer: the cluster's own scheduler places it"
            )
        template = clean(one.template, (), case.work.where, case.out)
        return {"resources": {"totalGPUs": 0, "pods": max(count, 1)}, "template": template}
    flavor = _flavor(one, case)
    called = case.site.flavors.name(flavor)
    gang: dict[str, Any] = {"resources": {"gpuType": called, "totalGPUs": gpus * count, "gpusPerPod": gpus}}
    if one.least is not None and 0 < one.least < max(count, one.most):
        least, most = min(one.least, count) * gpus, max(count, one.most) * gpus
        gang["malleable"] = {"minTotalGPUs": least, "maxTotalGPUs": most, "stepGPUs": gpus}
    elif one.together:
        gang["locality"] = {"groupGPUs": min(one.together, count) * gpus}
    gang["template"] = clean(one.template, _tolerations(one, called, case), case.work.where, case.out)
    return gang


def _tolerations(one: JobPodSet, called: str, case: _Case) -> tuple[dict[str, Any], ...]:
    """What lets the pods onto the nodes of every ResourceFlavor that could carry and pay for them."""
    flavors, wanted = case.site.flavors, node_selector(one.template, case.work.where)
    fitting = dict.fromkeys(share.flavor for team in case.site.teams.values() for share in team.shares)
    found = [
        toleration
        for name in fitting
        if name in flavors.by_name and flavors.name(name) == called and flavors.matches(name, wanted)
        for toleration in flavors.by_name[name].spec.tolerations
    ]
    return tuple(one for position, one in enumerate(found) if one not in found[:position])


def _count(one: JobPodSet, case: _Case) -> int:
    """The pods of a set; as many as were admitted, where that was less."""
    admitted = (assigned.count for assigned in case.assignments if assigned.name == one.name)
    return next((count for count in admitted if count is not None), one.count)


def _flavor(one: JobPodSet, case: _Case) -> str:
    for assigned in case.assignments:
        found = next((assigned.flavors[name] for name in GPU_RESOURCES if name in assigned.flavors), None)
        if found and assigned.name in (one.name, "main"):
            return found
    wanted, flavors = node_selector(one.template, case.work.where), case.site.flavors
    relatives = (team for team in case.site.teams.values() if team.cohort == case.team.cohort)
    shares = [share for team in (case.team, *relatives) for share in team.shares]
    fitting = [share.flavor for share in shares if flavors.matches(share.flavor, wanted)]
    if not fitting:
        rule = f"asks for GPUs, but {case.team.where} has no flavor for them: add it to the queue"
        raise InputError(case.work.where, [rule])
    taken, own = flavors.name(fitting[0]), {share.flavor for share in case.team.shares}
    others = {flavors.name(name) for name in fitting if name in own} - {taken}
    if others:
        instead = f"{taken} was taken, the first of its queue: set gpuType for another"
        case.note(f"{', '.join(sorted(others))} would do as well", instead)
    return fitting[0]


def _runtime(work: KueueJob, site: KueueSite, *, single: bool) -> dict[str, Any]:
    runtime: dict[str, Any] = {}
    if site.checkpoint:
        runtime["checkpoint"] = site.checkpoint
    if work.seconds:
        runtime["maxDuration"] = format_duration(work.seconds * SECOND)
    if work.restarts is not None:
        runtime["maxRestarts"] = min(work.restarts, MAX_RESTARTS)
    if work.rendezvous and single:
        runtime["onResize"] = "Rendezvous"
    return runtime


def _funding(team: Team, gangs: list[dict[str, Any]], site: KueueSite) -> dict[str, Any]:
    """Borrowing from sponsors: of those that stand apart, or as one that does."""
    limits = {
        share.borrowing
        for share in team.shares
        if any(site.flavors.name(share.flavor) == gang["resources"]["gpuType"] for gang in gangs)
    } - {None}
    if not team.sponsors or limits == {0}:
        return {}
    limit = {"maxBorrowGPUs": min(one for one in limits if one is not None)} if limits else {}
    return {"allowBorrow": True, **limit, "sponsors": list(team.sponsors)}


def _stages(work: KueueJob, gangs: list[dict[str, Any]], funding: dict[str, Any]) -> list[dict[str, Any]]:
    """Sets that wait for no other start with the first of their kind."""
    stages: list[dict[str, Any]] = []
    borrowed = (
        {"funding": {key: value for key, value in funding.items() if key != "sponsors"}} if funding else {}
    )
    first = next((one.name for one in work.sets if not one.after), "")
    for one, gang in zip(work.sets, gangs, strict=True):
        stage = {"name": short_name(one.name), **borrowed, **gang}
        if one.after:
            stage["after"] = [short_name(name) for name in one.after]
        elif one.name != first:
            stage["with"] = [short_name(first)]
        stages.append(stage)
    return stages
