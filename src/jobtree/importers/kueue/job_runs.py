"""Converts pod sets to Runs: one set becomes one gang, several become stages that start together.

The flavor of a job is the one that Kueue assigned at its admission; before that, the first flavor of its
queue that its node selector allows.
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
    """What the conversion of jobs needs of the other objects."""

    teams: Mapping[str, Team]
    local: Mapping[tuple[str, str], LocalQueue]
    flavors: Flavors
    admissions: Mapping[tuple[str, str, str], Admission]
    checkpoint: str | None


@dataclass(frozen=True)
class _JobContext:
    """One job, the team that pays for it, and its admission by Kueue."""

    job: KueueJob
    team: Team
    admission: Admission | None
    site: KueueSite
    out: Converted

    @property
    def assignments(self) -> tuple[Assignment, ...]:
        return self.admission.pod_set_assignments if self.admission else ()

    def note(self, what: str, instead: str) -> None:
        self.out.remark(self.job.where, what, instead)


def run_of(job: KueueJob, site: KueueSite, out: Converted) -> ObjectBody | None:
    """The Run of a job, or None, with a remark, if no team would pay for it. Raises InputError."""
    admission = site.admissions.get((job.kind, job.metadata.namespace, job.metadata.name))
    team = _team(job, admission, site, out)
    if team is None:
        return None
    if not any(pod_set.count for pod_set in job.sets):
        out.remark(job.where, "no pods", "there is nothing to run: the job is not converted")
        return None
    if priority := job.metadata.labels.get(PRIORITY_LABEL):
        out.remark(
            job.where,
            f"priority class {priority}",
            "Jobtree has no priorities: the oldest funded Run starts first",
        )
    spec: dict[str, Any] = {"owner": team.owner}
    context = _JobContext(job, team, admission, site, out)
    gangs = [_gang(pod_set, context) for pod_set in job.sets]
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
                "no team would pay, so the job is not converted: name a queue with the label queue-name",
            )
            return None
        local = site.local.get((job.metadata.namespace, job.queue))
        name = local.spec.cluster_queue if local else ""
        if local is None:
            hint = "the job is not converted: convert the queue together with its jobs"
            out.remark(job.where, f"LocalQueue {job.metadata.namespace}/{job.queue} is missing", hint)
            return None
    team = site.teams.get(name)
    if team is None:
        out.remark(
            job.where,
            f"ClusterQueue {name} is missing",
            "the job is not converted: convert the queue with its jobs",
        )
    return team


def _gang(pod_set: JobPodSet, context: _JobContext) -> dict[str, Any]:
    gpus, count = template_gpus(pod_set.template, context.job.where), _count(pod_set, context)
    if not gpus or not count:
        if not gpus:
            context.note(
                f"{pod_set.name} asks for no GPUs",
                "it needs no payer: the cluster's own scheduler places its pods",
            )
        template = clean(pod_set.template, (), context.job.where, context.out)
        return {"resources": {"totalGPUs": 0, "pods": max(count, 1)}, "template": template}
    resource_flavor = _flavor(pod_set, context)
    flavor = context.site.flavors.name(resource_flavor)
    gang: dict[str, Any] = {"resources": {"gpuType": flavor, "totalGPUs": gpus * count, "gpusPerPod": gpus}}
    if pod_set.least is not None and 0 < pod_set.least < max(count, pod_set.most):
        least, most = min(pod_set.least, count) * gpus, max(count, pod_set.most) * gpus
        gang["malleable"] = {"minTotalGPUs": least, "maxTotalGPUs": most, "stepGPUs": gpus}
    elif pod_set.together:
        gang["locality"] = {"groupGPUs": min(pod_set.together, count) * gpus}
    gang["template"] = clean(
        pod_set.template, _tolerations(pod_set, flavor, context), context.job.where, context.out
    )
    return gang


def _tolerations(pod_set: JobPodSet, flavor: str, context: _JobContext) -> tuple[dict[str, Any], ...]:
    """The tolerations of all ResourceFlavors on which the pods may run."""
    flavors, wanted = context.site.flavors, node_selector(pod_set.template, context.job.where)
    names = dict.fromkeys(share.flavor for team in context.site.teams.values() for share in team.shares)
    tolerations = [
        toleration
        for name in names
        if name in flavors.by_name and flavors.name(name) == flavor and flavors.matches(name, wanted)
        for toleration in flavors.by_name[name].spec.tolerations
    ]
    return tuple(
        toleration
        for position, toleration in enumerate(tolerations)
        if toleration not in tolerations[:position]
    )


def _count(pod_set: JobPodSet, context: _JobContext) -> int:
    """The pods of a set, or fewer if Kueue admitted fewer."""
    admitted = (assigned.count for assigned in context.assignments if assigned.name == pod_set.name)
    return next((count for count in admitted if count is not None), pod_set.count)


def _flavor(pod_set: JobPodSet, context: _JobContext) -> str:
    for assigned in context.assignments:
        admitted = next((assigned.flavors[name] for name in GPU_RESOURCES if name in assigned.flavors), None)
        if admitted and assigned.name in (pod_set.name, "main"):
            return admitted
    wanted, flavors = node_selector(pod_set.template, context.job.where), context.site.flavors
    relatives = (team for team in context.site.teams.values() if team.cohort == context.team.cohort)
    shares = [share for team in (context.team, *relatives) for share in team.shares]
    fitting = [share.flavor for share in shares if flavors.matches(share.flavor, wanted)]
    if not fitting:
        rule = f"asks for GPUs, but {context.team.where} has no flavor for them: add one to the queue"
        raise InputError(context.job.where, [rule])
    chosen, own = flavors.name(fitting[0]), {share.flavor for share in context.team.shares}
    alternatives = {flavors.name(name) for name in fitting if name in own} - {chosen}
    if alternatives:
        instead = f"{chosen} is used, the first of its queue: set gpuType for another"
        context.note(f"{', '.join(sorted(alternatives))} would fit as well", instead)
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
    """The funding of a Run that may borrow from sponsors, since its team or theirs has a borrowing limit."""
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
    """The stages of a job. Sets that wait for no other start with the first of them."""
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
