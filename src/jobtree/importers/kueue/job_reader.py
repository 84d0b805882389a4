"""Reads Jobs, JobSets, PyTorchJobs and Workloads as pod sets that start together."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from jobtree.api.schema.problems import InputError
from jobtree.importers.conversion import Converted
from jobtree.importers.kueue.kueue_kinds import (
    KUEUE_GROUP,
    QUEUE_LABEL,
    BatchJob,
    ElasticPolicy,
    JobSet,
    KueueMetadata,
    PodSetSpec,
    PyTorchJob,
    Replicas,
    Template,
    TopologyRequest,
    Workload,
)
from jobtree.importers.kueue.resource_flavors import HOSTNAME
from jobtree.importers.kueue.template_cleanup import annotations_of

MIN_PARALLELISM: Final = f"{KUEUE_GROUP}/job-min-parallelism"
DEADLINE: Final = f"{KUEUE_GROUP}/max-exec-time-seconds"
EXCLUSIVE: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
MASTER: Final = "Master"


@dataclass(frozen=True)
class JobPodSet:
    """A pod set, which runs with ``least`` to ``most`` pods; ``together`` pods share a domain (0: any)."""

    name: str
    count: int
    template: Template
    least: int | None = None
    together: int = 0
    most: int = 0
    after: tuple[str, ...] = ()


@dataclass(frozen=True)
class KueueJob:
    kind: str
    metadata: KueueMetadata
    queue: str
    sets: tuple[JobPodSet, ...]
    seconds: int = 0
    restarts: int | None = None
    rendezvous: bool = False

    @property
    def where(self) -> str:
        return f"{self.kind} {self.metadata.namespace}/{self.metadata.name}"


def read_job(read: object, islands: dict[str, str], out: Converted) -> KueueJob | None:
    """The job in an object of a kind that has pods; None for other objects. Raises InputError."""
    match read:
        case BatchJob():
            return _job(read, islands, out)
        case JobSet():
            return _jobset(read, islands, out)
        case PyTorchJob():
            return _pytorch(read, islands, out)
        case Workload():
            return _workload(read, islands, out)
    return None


def _job(job: BatchJob, islands: dict[str, str], out: Converted) -> KueueJob:
    spec, where = job.spec, f"Job {job.metadata.namespace}/{job.metadata.name}"
    pods = spec.parallelism
    if spec.completions is not None and spec.completions != pods:
        pods = min(spec.parallelism, spec.completions)
        if spec.completions > pods:
            hint = "all pods of a Run run at the same time: submit more Runs for the rest"
            out.remark(where, f"completions: {spec.completions}, {pods} at a time", hint)
    if spec.completion_mode == "Indexed":
        out.remark(
            where,
            "JOB_COMPLETION_INDEX",
            "use NODE_RANK for the number of a pod, MASTER_ADDR for the first pod",
        )
    least = _number(job.metadata, MIN_PARALLELISM, where)
    together = _together(spec.template, pods, islands, where, out)
    return KueueJob(
        "Job",
        job.metadata,
        job.metadata.labels.get(QUEUE_LABEL, ""),
        (JobPodSet("main", pods, spec.template, least, together),),
        _number(job.metadata, DEADLINE, where) or spec.active_deadline_seconds,
        spec.backoff_limit,
    )


def _jobset(jobset: JobSet, islands: dict[str, str], out: Converted) -> KueueJob:
    where = f"JobSet {jobset.metadata.namespace}/{jobset.metadata.name}"
    sets = []
    for replicated in jobset.spec.replicated_jobs:
        spec = replicated.template.spec
        pods = spec.parallelism * replicated.replicas
        together = _together(spec.template, pods, islands, where, out)
        if EXCLUSIVE in {**jobset.metadata.annotations, **annotations_of(spec.template)}:
            together = spec.parallelism
        after = tuple(upstream.name for upstream in replicated.depends_on if upstream.status == "Complete")
        sets.append(JobPodSet(replicated.name, pods, spec.template, together=together, after=after))
    if jobset.spec.success_policy:
        out.remark(where, "successPolicy", "a Run is Completed when all its pods have succeeded")
    out.remark(
        where,
        "host names of a JobSet",
        "use MASTER_ADDR for the first pod, NODE_RANK for the number of a pod",
    )
    queue = jobset.metadata.labels.get(QUEUE_LABEL, "")
    deadline = _number(jobset.metadata, DEADLINE, where) or 0
    return KueueJob(
        "JobSet", jobset.metadata, queue, tuple(sets), deadline, jobset.spec.failure_policy.max_restarts
    )


def _pytorch(job: PyTorchJob, islands: dict[str, str], out: Converted) -> KueueJob:
    where = f"PyTorchJob {job.metadata.namespace}/{job.metadata.name}"
    sets, elastic, policy = [], job.spec.elastic_policy, job.spec.run_policy
    for name, replicas in sorted(job.spec.pytorch_replica_specs.items(), key=_master_first):
        together = _together(replicas.template, replicas.replicas, islands, where, out)
        sets += (
            [JobPodSet(name.lower(), replicas.replicas, replicas.template, None, together)]
            if replicas.replicas
            else []
        )
    if sets and all(replicas.template == sets[0].template for replicas in sets):
        sets = [_joined(sets, elastic)]
    elif elastic:
        instead = "master and workers differ, so they become stages, which have a fixed width"
        out.remark(where, "elasticPolicy", instead)
    queue = job.metadata.labels.get(QUEUE_LABEL, "")
    seconds = _number(job.metadata, DEADLINE, where) or policy.active_deadline_seconds
    restarts, rendezvous = policy.backoff_limit, elastic is not None
    return KueueJob("PyTorchJob", job.metadata, queue, tuple(sets), seconds, restarts, rendezvous)


def _master_first(item: tuple[str, Replicas]) -> tuple[bool, str]:
    return item[0] != MASTER, item[0]


def _joined(sets: list[JobPodSet], elastic: ElasticPolicy | None) -> JobPodSet:
    """One gang of master and workers with the same template; its first pod is the master."""
    pods = sum(pod_set.count for pod_set in sets)
    together = pods if sets[0].together else 0
    if elastic is None:
        return JobPodSet("main", pods, sets[0].template, None, together)
    fixed = pods - sets[-1].count
    least = min(elastic.min_replicas + fixed, pods)
    return JobPodSet("main", pods, sets[0].template, least, together, elastic.max_replicas + fixed)


def _workload(workload: Workload, islands: dict[str, str], out: Converted) -> KueueJob:
    where = f"Workload {workload.metadata.namespace}/{workload.metadata.name}"
    sets = tuple(_pod_set(pod_set, islands, where, out) for pod_set in workload.spec.pod_sets)
    priority = workload.spec.priority_class_name or workload.spec.priority_class_ref.name
    if priority:
        instead = "Jobtree has no priorities: the oldest funded Run starts first"
        out.remark(where, f"priority class {priority}", instead)
    if not workload.spec.active:
        out.remark(where, "active: false", "a Run is planned at once: submit it when it may start")
    seconds = workload.spec.maximum_execution_time_seconds
    return KueueJob("Workload", workload.metadata, workload.spec.queue_name, sets, seconds)


def _pod_set(spec: PodSetSpec, islands: dict[str, str], where: str, out: Converted) -> JobPodSet:
    request = spec.topology_request
    together = _grouped(request, spec.count, islands, where, out) or _together(
        spec.template, spec.count, islands, where, out
    )
    return JobPodSet(spec.name, spec.count, spec.template, spec.min_count, together)


def _together(template: Template, pods: int, islands: dict[str, str], where: str, out: Converted) -> int:
    """How many pods must share a domain, by the annotations of the template."""
    annotations = annotations_of(template)
    slice_size = annotations.get(f"{KUEUE_GROUP}/podset-slice-size", "0")
    request = TopologyRequest(
        required=annotations.get(f"{KUEUE_GROUP}/podset-required-topology", ""),
        preferred=annotations.get(f"{KUEUE_GROUP}/podset-preferred-topology", ""),
        pod_set_slice_required_topology=annotations.get(f"{KUEUE_GROUP}/podset-slice-required-topology", ""),
        pod_set_slice_size=int(slice_size[:6]) if slice_size.isascii() and slice_size.isdecimal() else 0,
    )
    return _grouped(request, pods, islands, where, out)


def _grouped(request: TopologyRequest, pods: int, islands: dict[str, str], where: str, out: Converted) -> int:
    """How many pods must share a domain. A preference has no effect, since Jobtree packs all gangs."""
    wanted = [(request.required, pods), (request.pod_set_slice_required_topology, request.pod_set_slice_size)]
    island = islands.get("fabric.domain", "")
    for level, size in reversed(wanted):
        if level == HOSTNAME:
            out.remark(where, f"required topology {level}", "use one pod with all the GPUs (gpusPerPod)")
        elif level and island and level != island:
            out.remark(
                where,
                f"required topology {level}",
                f"Jobtree can only place groups in one {island}, which is its domain",
            )
        elif level and size:
            return size
    return 0


def _number(metadata: KueueMetadata, key: str, where: str) -> int | None:
    text = metadata.labels.get(key) or metadata.annotations.get(key)
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 9:  # noqa: PLR2004  digits
        raise InputError(where, [f"metadata[{key!r}]: {text!r} must be a whole number"])
    return int(text)


def job_names(jobs: list[KueueJob]) -> Iterator[tuple[str, str, str]]:
    """The kind, namespace and name of each job, as the owner of a Workload has them."""
    for job in jobs:
        yield job.kind, job.metadata.namespace, job.metadata.name
