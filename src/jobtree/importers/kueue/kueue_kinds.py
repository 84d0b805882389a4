"""The fields of Kueue's kinds, in all their versions, that are read; other fields are ignored."""

from typing import Annotated, Any, dataclass_transform

import msgspec
from msgspec import Meta, field

from jobtree.api.kubernetes.resource_quantities import Quantity

KUEUE_GROUP = "kueue.x-k8s.io"
QUEUE_LABEL = f"{KUEUE_GROUP}/queue-name"
PRIORITY_LABEL = f"{KUEUE_GROUP}/priority-class"

Number = Annotated[int, Meta(ge=0, le=1_000_000)]
Strings = dict[str, str]
Template = dict[str, Any]


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class KueueStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of a document, of which these fields are read."""


class Reference(KueueStruct):
    kind: str = ""
    name: str = ""


class KueueMetadata(KueueStruct):
    name: str
    namespace: str = "default"
    labels: Strings = field(default_factory=dict)
    annotations: Strings = field(default_factory=dict)
    owner_references: tuple[Reference, ...] = ()


class FlavorSpec(KueueStruct):
    node_labels: Strings = field(default_factory=dict)
    tolerations: tuple[dict[str, Any], ...] = ()
    topology_name: str = ""


class ResourceFlavor(KueueStruct):
    metadata: KueueMetadata
    spec: FlavorSpec = field(default_factory=FlavorSpec)


class TopologyLevel(KueueStruct):
    node_label: str


class TopologySpec(KueueStruct):
    levels: tuple[TopologyLevel, ...] = ()


class Topology(KueueStruct):
    metadata: KueueMetadata
    spec: TopologySpec = field(default_factory=TopologySpec)


class ResourceQuota(KueueStruct):
    name: str
    nominal_quota: Quantity = 0
    borrowing_limit: Quantity | None = None
    lending_limit: Quantity | None = None


class FlavorQuotas(KueueStruct):
    name: str
    resources: tuple[ResourceQuota, ...] = ()


class ResourceGroup(KueueStruct):
    covered_resources: tuple[str, ...] = ()
    flavors: tuple[FlavorQuotas, ...] = ()


class QueueSpec(KueueStruct):
    """The spec of a ClusterQueue or a Cohort: fields of both, then those of each."""

    resource_groups: tuple[ResourceGroup, ...] = ()
    fair_sharing: Any = None
    cohort: str = ""
    cohort_name: str = ""
    preemption: dict[str, Any] | None = None
    flavor_fungibility: dict[str, Any] | None = None
    queueing_strategy: str = ""
    stop_policy: str = ""
    admission_checks: Any = None
    admission_checks_strategy: Any = None
    namespace_selector: Any = None
    parent: str = ""
    parent_name: str = ""


class Queue(KueueStruct):
    metadata: KueueMetadata
    spec: QueueSpec = field(default_factory=QueueSpec)

    @property
    def above(self) -> str:
        """The name of its cohort."""
        spec = self.spec
        return spec.cohort_name or spec.cohort or spec.parent_name or spec.parent


class LocalQueueSpec(KueueStruct):
    cluster_queue: str


class LocalQueue(KueueStruct):
    metadata: KueueMetadata
    spec: LocalQueueSpec


class TopologyRequest(KueueStruct):
    required: str = ""
    preferred: str = ""
    pod_set_slice_required_topology: str = ""
    pod_set_slice_size: Number = 0


class PodSetSpec(KueueStruct):
    name: str = "main"
    count: Number = 1
    min_count: Number | None = None
    template: Template = field(default_factory=dict)
    topology_request: TopologyRequest = field(default_factory=TopologyRequest)


class WorkloadSpec(KueueStruct):
    pod_sets: tuple[PodSetSpec, ...] = ()
    queue_name: str = ""
    priority_class_name: str = ""
    priority_class_ref: Reference = field(default_factory=Reference)
    maximum_execution_time_seconds: Number = 0
    active: bool = True


class Assignment(KueueStruct):
    name: str = "main"
    flavors: Strings = field(default_factory=dict)
    count: Number | None = None


class Admission(KueueStruct):
    cluster_queue: str = ""
    pod_set_assignments: tuple[Assignment, ...] = ()


class WorkloadStatus(KueueStruct):
    admission: Admission | None = None


class Workload(KueueStruct):
    metadata: KueueMetadata
    spec: WorkloadSpec = field(default_factory=WorkloadSpec)
    status: WorkloadStatus = field(default_factory=WorkloadStatus)


class JobSpec(KueueStruct):
    template: Template = field(default_factory=dict)
    parallelism: Number = 1
    completions: Number | None = None
    completion_mode: str = ""
    active_deadline_seconds: Number = 0
    backoff_limit: Number | None = None


class BatchJob(KueueStruct):
    metadata: KueueMetadata
    spec: JobSpec = field(default_factory=JobSpec)


class JobTemplate(KueueStruct):
    spec: JobSpec = field(default_factory=JobSpec)


class DependsOn(KueueStruct):
    name: str
    status: str = "Complete"


class ReplicatedJob(KueueStruct):
    name: str
    replicas: Number = 1
    template: JobTemplate = field(default_factory=JobTemplate)
    depends_on: tuple[DependsOn, ...] = ()


class FailurePolicy(KueueStruct):
    max_restarts: Number | None = None


class JobSetSpec(KueueStruct):
    replicated_jobs: tuple[ReplicatedJob, ...] = ()
    failure_policy: FailurePolicy = field(default_factory=FailurePolicy)
    success_policy: Any = None


class JobSet(KueueStruct):
    metadata: KueueMetadata
    spec: JobSetSpec = field(default_factory=JobSetSpec)


class Replicas(KueueStruct):
    replicas: Number = 1
    template: Template = field(default_factory=dict)


class ElasticPolicy(KueueStruct):
    min_replicas: Number = 1
    max_replicas: Number = 1


class KubeflowRunPolicy(KueueStruct):
    active_deadline_seconds: Number = 0
    backoff_limit: Number | None = None


class PyTorchJobSpec(KueueStruct):
    pytorch_replica_specs: dict[str, Replicas] = field(default_factory=dict)
    elastic_policy: ElasticPolicy | None = None
    run_policy: KubeflowRunPolicy = field(default_factory=KubeflowRunPolicy)


class PyTorchJob(KueueStruct):
    metadata: KueueMetadata
    spec: PyTorchJobSpec = field(default_factory=PyTorchJobSpec)


KINDS: dict[str, type[KueueStruct]] = {
    "ResourceFlavor": ResourceFlavor,
    "Topology": Topology,
    "ClusterQueue": Queue,
    "Cohort": Queue,
    "LocalQueue": LocalQueue,
    "Workload": Workload,
    "Job": BatchJob,
    "JobSet": JobSet,
    "PyTorchJob": PyTorchJob,
}
