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


def run_of(job: KueueJob, site: KueueSite, out: Converted) -> ObjectBody | None:
    """The Run of a job; None, with a remark, where nobody would pay. Raises InputError."""
    admission = site.admissions.get((job.kind, job.metadata.namespace, job.metadata.name))
    team = _team(job, admission, site, out)
    if team is None:
        return None
    if not any(pod_set.count for pod_set in job.sets):
        out.remark(job.where, "no pods", "there is nothing to run: it was left out")
        return None
    if priority := job.metadata.labels.get(PRIORITY_LABEL):
        out.remark(
            job.where,
            f"priority class {priority}",
            "there are no priorities: the oldest funded Run goes first",
        )
    spec: dict[str, Any] = {"owner": team.owner}
    case = _Case(job, team, admission, site, out)
    gangs = [_gang(pod_set, case) for pod_set in job.sets]
    funding = _funding(team, [gang for gang in gangs if "gpuType" in gang["resources"]], site)
    runtime = _runtime(job, site, single=len(gangs) == 1)
    gangs = [{**({"runtime": runtime} if runtime else {}), **gang} for gang in gangs]
    if funding:
        spec["funding"] = funding
    spec |= gangs[0] if len(gangs) == 1 else {"stages": _stages(job, gangs, funding)}
    metadata = {"name": short_name(job.metadata.name), "namespace": job.metadata.namespace}
    return {"apiVersion": API_VERSION, "kind": "Run", "metadata": metadata, "spec": spec}


def _team(job: KueueJob, admission: Admission | None, site: KueueSite, out: Converted) -> Team | None:
    name = admission.cluster_queue if admission else ""
    if not name:
        if not job.queue:
            out.remark(
                job.where,
                "no queue",
                "nobody would pay: it was left out; name one with the label queue-name",
            )
            return None
        local = site.local.get((job.metadata.namespace, job.queue))
        name = local.spec.cluster_queue if local else ""
        if local is None:
            hint = "it was left out: convert the queue together with its jobs"
            out.remark(job.where, f"LocalQueue {job.metadata.namespace}/{job.queue} is not here", hint)
            return None
    team = site.teams.get(name)
    if team is None:
        out.remark(
            job.where, f"ClusterQueue {name} is not here", "it was left out: convert the queue with its jobs"
        )
    return team


def _gang(pod_set: JobPodSet, case: _Case) -> dict[str, Any]:
    gpus, count = template_gpus(pod_set.template, case.work.where), _count(pod_set, case)
    if not gpus or not count:
        if not gpus:
            case.note(
                f"{pod_set.name} asks for no GPUs", "it has no payer: the cluster's own scheduler places it"
            )
        template = clean(pod_set.template, (), case.work.where, case.out)
        return {"resources": {"totalGPUs": 0, "pods": max(count, 1)}, "template": template}
    flavor = _flavor(pod_set, case)
    called = case.site.flavors.name(flavor)
    gang: dict[str, Any] = {"resources": {"gpuType": called, "totalGPUs": gpus * count, "gpusPerPod": gpus}}
    if pod_set.least is not None and 0 < pod_set.least < max(count, pod_set.most):
        least, most = min(pod_set.least, count) * gpus, max(count, pod_set.most) * gpus
        gang["malleable"] = {"minTotalGPUs": least, "maxTotalGPUs": most, "stepGPUs": gpus}
    elif pod_set.together:
        gang["locality"] = {"groupGPUs": min(pod_set.together, count) * gpus}
    gang["template"] = clean(pod_set.template, _tolerations(pod_set, called, case), case.work.where, case.out)
    return gang


def _tolerations(pod_set: JobPodSet, called: str, case: _Case) -> tuple[dict[str, Any], ...]:
    """What lets the pods onto the nodes of every ResourceFlavor that could carry and pay for them."""
    flavors, wanted = case.site.flavors, node_selector(pod_set.template, case.work.where)
    names = dict.fromkeys(share.flavor for team in case.site.teams.values() for share in team.shares)
    tolerations = [
        toleration
        for name in names
        if name in flavors.by_name and flavors.name(name) == called and flavors.matches(name, wanted)
        for toleration in flavors.by_name[name].spec.tolerations
    ]
    return tuple(
        toleration
        for position, toleration in enumerate(tolerations)
        if toleration not in tolerations[:position]
    )


def _count(pod_set: JobPodSet, case: _Case) -> int:
    """The pods of a set; as many as were admitted, where that was less."""
    admitted = (assigned.count for assigned in case.assignments if assigned.name == pod_set.name)
    return next((count for count in admitted if count is not None), pod_set.count)


def _flavor(pod_set: JobPodSet, case: _Case) -> str:
    for assigned in case.assignments:
        admitted = next((assigned.flavors[name] for name in GPU_RESOURCES if name in assigned.flavors), None)
        if admitted and assigned.name in (pod_set.name, "main"):
            return admitted
    wanted, flavors = node_selector(pod_set.template, case.work.where), case.site.flavors
    relatives = (team for team in case.site.teams.values() if team.cohort == case.team.cohort)
    shares = [share for team in (case.team, *relatives) for share in team.shares]
    fitting = [share.flavor for share in shares if flavors.matches(share.flavor, wanted)]
    if not fitting:
        rule = f"asks for GPUs, but {case.team.where} has no flavor for them: add it to the queue"
        raise InputError(case.work.where, [rule])
    chosen, own = flavors.name(fitting[0]), {share.flavor for share in case.team.shares}
    alternatives = {flavors.name(name) for name in fitting if name in own} - {chosen}
    if alternatives:
        instead = f"{chosen} was taken, the first of its queue: set gpuType for another"
        case.note(f"{', '.join(sorted(alternatives))} would do as well", instead)
    return fitting[0]


def _runtime(job: KueueJob, site: KueueSite, *, single: bool) -> dict[str, Any]:
    runtime: dict[str, Any] = {}
    if site.checkpoint:
        runtime["checkpoint"] = site.checkpoint
    if job.seconds:
        runtime["maxDuration"] = format_duration(job.seconds * SECOND)
    if job.restarts is not None:
        runtime["maxRestarts"] = min(job.restarts, MAX_RESTARTS)
    if job.rendezvous and single:
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
    limit = (
        {"maxBorrowGPUs": min(borrowing for borrowing in limits if borrowing is not None)} if limits else {}
    )
    return {"allowBorrow": True, **limit, "sponsors": list(team.sponsors)}


def _stages(job: KueueJob, gangs: list[dict[str, Any]], funding: dict[str, Any]) -> list[dict[str, Any]]:
    """Sets that wait for no other start with the first of their kind."""
    stages: list[dict[str, Any]] = []
    borrowed = (
        {"funding": {key: value for key, value in funding.items() if key != "sponsors"}} if funding else {}
    )
    first = next((pod_set.name for pod_set in job.sets if not pod_set.after), "")
    for pod_set, gang in zip(job.sets, gangs, strict=True):
        stage = {"name": short_name(pod_set.name), **borrowed, **gang}
        if pod_set.after:
            stage["after"] = [short_name(name) for name in pod_set.after]
        elif pod_set.name != first:
            stage["with"] = [short_name(first)]
        stages.append(stage)
    return stages
