"""What is read of Kueue's kinds, of all their versions; any other field passes unseen."""

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
class Read(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of a document of which some fields are read."""


class Reference(Read):
    kind: str = ""
    name: str = ""


class Metadata(Read):
    name: str
    namespace: str = "default"
    labels: Strings = field(default_factory=dict)
    annotations: Strings = field(default_factory=dict)
    owner_references: tuple[Reference, ...] = ()


class FlavorSpec(Read):
    node_labels: Strings = field(default_factory=dict)
    tolerations: tuple[dict[str, Any], ...] = ()
    topology_name: str = ""


class ResourceFlavor(Read):
    metadata: Metadata
    spec: FlavorSpec = field(default_factory=FlavorSpec)


class Level(Read):
    node_label: str


class TopologySpec(Read):
    levels: tuple[Level, ...] = ()


class Topology(Read):
    metadata: Metadata
    spec: TopologySpec = field(default_factory=TopologySpec)


class Quota(Read):
    name: str
    nominal_quota: Quantity = 0
    borrowing_limit: Quantity | None = None
    lending_limit: Quantity | None = None


class FlavorQuotas(Read):
    name: str
    resources: tuple[Quota, ...] = ()


class ResourceGroup(Read):
    covered_resources: tuple[str, ...] = ()
    flavors: tuple[FlavorQuotas, ...] = ()


class QueueSpec(Read):
    """Of a ClusterQueue and of a Cohort: what both have, then what each alone has."""

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


class Queue(Read):
    metadata: Metadata
    spec: QueueSpec = field(default_factory=QueueSpec)

    @property
    def above(self) -> str:
        """The cohort that it is a member of."""
        spec = self.spec
        return spec.cohort_name or spec.cohort or spec.parent_name or spec.parent


class LocalQueueSpec(Read):
    cluster_queue: str


class LocalQueue(Read):
    metadata: Metadata
    spec: LocalQueueSpec


class TopologyRequest(Read):
    required: str = ""
    preferred: str = ""
    pod_set_slice_required_topology: str = ""
    pod_set_slice_size: Number = 0


class PodSetSpec(Read):
    name: str = "main"
    count: Number = 1
    min_count: Number | None = None
    template: Template = field(default_factory=dict)
    topology_request: TopologyRequest = field(default_factory=TopologyRequest)


class WorkloadSpec(Read):
    pod_sets: tuple[PodSetSpec, ...] = ()
    queue_name: str = ""
    priority_class_name: str = ""
    priority_class_ref: Reference = field(default_factory=Reference)
    maximum_execution_time_seconds: Number = 0
    active: bool = True


class Assignment(Read):
    name: str = "main"
    flavors: Strings = field(default_factory=dict)
    count: Number | None = None


class Admission(Read):
    cluster_queue: str = ""
    pod_set_assignments: tuple[Assignment, ...] = ()


class WorkloadStatus(Read):
    admission: Admission | None = None


class Workload(Read):
    metadata: Metadata
    spec: WorkloadSpec = field(default_factory=WorkloadSpec)
    status: WorkloadStatus = field(default_factory=WorkloadStatus)


class JobSpec(Read):
    template: Template = field(default_factory=dict)
    parallelism: Number = 1
    completions: Number | None = None
    completion_mode: str = ""
    active_deadline_seconds: Number = 0
    backoff_limit: Number | None = None


class Job(Read):
    metadata: Metadata
    spec: JobSpec = field(default_factory=JobSpec)


class JobTemplate(Read):
    spec: JobSpec = field(default_factory=JobSpec)


class DependsOn(Read):
    name: str
    status: str = "Complete"


class ReplicatedJob(Read):
    name: str
    replicas: Number = 1
    template: JobTemplate = field(default_factory=JobTemplate)
    depends_on: tuple[DependsOn, ...] = ()


class FailurePolicy(Read):
    max_restarts: Number | None = None


class JobSetSpec(Read):
    replicated_jobs: tuple[ReplicatedJob, ...] = ()
    failure_policy: FailurePolicy = field(default_factory=FailurePolicy)
    success_policy: Any = None


class JobSet(Read):
    metadata: Metadata
    spec: JobSetSpec = field(default_factory=JobSetSpec)


class Replicas(Read):
    replicas: Number = 1
    template: Template = field(default_factory=dict)


class ElasticPolicy(Read):
    min_replicas: Number = 1
    max_replicas: Number = 1


class RunPolicy(Read):
    active_deadline_seconds: Number = 0
    backoff_limit: Number | None = None


class PyTorchJobSpec(Read):
    pytorch_replica_specs: dict[str, Replicas] = field(default_factory=dict)
    elastic_policy: ElasticPolicy | None = None
    run_policy: RunPolicy = field(default_factory=RunPolicy)


class PyTorchJob(Read):
    metadata: Metadata
    spec: PyTorchJobSpec = field(default_factory=PyTorchJobSpec)


KINDS: dict[str, type[Read]] = {
    "ResourceFlavor": ResourceFlavor,
    "Topology": Topology,
    "ClusterQueue": Queue,
    "Cohort": Queue,
    "LocalQueue": LocalQueue,
    "Workload": Workload,
    "Job": Job,
    "JobSet": JobSet,
    "PyTorchJob": PyTorchJob,
}
