"""Converts objects of Kueue to Budgets and Runs, with the labels that the nodes need.

Documents may come in any order. An object that is not converted gets a remark.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jobtree.api.documents.document_stream import Document
from jobtree.api.documents.struct_decoder import decode_struct
from jobtree.api.kubernetes.node import Node, read_node
from jobtree.api.schema.problems import InputError
from jobtree.importers.conversion import Converted
from jobtree.importers.kubernetes_names import flavor_name, unused
from jobtree.importers.kueue.job_reader import KueueJob, job_names, read_job
from jobtree.importers.kueue.job_runs import KueueSite, run_of
from jobtree.importers.kueue.kueue_kinds import KINDS, Admission, KueueStruct, Workload
from jobtree.importers.kueue.queue_budgets import Team, budgets, read_teams
from jobtree.importers.kueue.resource_flavors import Flavors, label_lines, read_flavors
from jobtree.importers.kueue.unsupported_features import note_kind, note_policies

# The resources to read from a live cluster, by their names in the API server.
RESOURCES = (
    "nodes",
    *(f"{name}.kueue.x-k8s.io" for name in ("resourceflavors", "topologies", "cohorts", "clusterqueues")),
    *(f"{name}.kueue.x-k8s.io" for name in ("localqueues", "workloads", "workloadpriorityclasses")),
    "jobs.batch",
    "jobsets.jobset.x-k8s.io",
    "pytorchjobs.kubeflow.org",
)
WORK = ("Job", "JobSet", "PyTorchJob", "Workload")


@dataclass
class _Objects:
    """The objects by kind, in the order of the input."""

    of: dict[str, list[Any]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    nodes: list[Node] = field(default_factory=list)


def flavor_names(given: Iterable[str]) -> dict[str, str]:
    """``OLD=NEW`` from the command line. Raises InputError."""
    names: dict[str, str] = {}
    for text in given:
        old, equals, new = text.partition("=")
        if not equals or not old or flavor_name(new) != new:
            rule = "must be OLD=NEW: a ResourceFlavor, and its value of gpu.flavor"
            raise InputError("the command line", [f"--flavor: {text!r} {rule}"])
        names[old] = new
    return names


def convert_kueue(
    documents: Iterable[Document],
    names: Mapping[str, str],
    checkpoint: str | None = None,
) -> Converted:
    """Converts all objects of Kueue among the documents. Raises InputError."""
    out = Converted()
    objects = _read(documents, out)
    flavors = read_flavors(objects.of["ResourceFlavor"], objects.of["Topology"], names, out)
    teams = read_teams(
        {queue.metadata.name: queue for queue in objects.of["ClusterQueue"]},
        {cohort.metadata.name: cohort for cohort in objects.of["Cohort"]},
        out,
    )
    used = {share.flavor for team in teams.values() for share in team.shares}
    out.labels += label_lines(flavors, used, objects.nodes)
    out.add(budgets(teams, flavors, out), "Kueue")
    note_policies(teams, out)
    for job, run in _runs(objects, teams, flavors, checkpoint, out):
        out.add([run], job.where)
    return out


def _read(documents: Iterable[Document], out: Converted) -> _Objects:
    objects = _Objects()
    for where, body in documents:
        kind = body.get("kind")
        if kind == "Node":
            objects.nodes.append(read_node(body, where))
        elif isinstance(kind, str) and kind in KINDS:
            read: KueueStruct = decode_struct(body, KINDS[kind], f"{where}, {kind}")
            objects.of[kind].append(read)
        else:
            note_kind(kind if isinstance(kind, str) and kind else "an object without a kind", where, out)
    if not any(objects.of.values()):
        raise InputError("Kueue", [f"there is nothing to convert: no {', '.join(KINDS)}"])
    return objects


def _runs(
    objects: _Objects, teams: Mapping[str, Team], flavors: Flavors, checkpoint: str | None, out: Converted
) -> Iterable[tuple[KueueJob, dict[str, Any]]]:
    """The Runs of all jobs. A Workload has the admission of its job; without a job, it is one itself."""
    jobs = [
        job
        for kind in WORK[:-1]
        for item in objects.of[kind]
        if (job := read_job(item, flavors.islands, out))
    ]
    keys, admissions = set(job_names(jobs)), dict[tuple[str, str, str], Admission]()
    for workload in objects.of["Workload"]:
        owner = _owner(workload, keys) or ("Workload", workload.metadata.namespace, workload.metadata.name)
        if workload.status.admission:
            admissions[owner] = workload.status.admission
        if owner[0] == "Workload" and (job := read_job(workload, flavors.islands, out)):
            jobs.append(job)
    local = {(queue.metadata.namespace, queue.metadata.name): queue for queue in objects.of["LocalQueue"]}
    site = KueueSite(teams, local, flavors, admissions, checkpoint)
    taken: set[tuple[str, str]] = set()
    for job in jobs:
        run = run_of(job, site, out)
        if run:
            metadata = run["metadata"]
            names = {name for namespace, name in taken if namespace == metadata["namespace"]}
            metadata["name"] = unused(metadata["name"], names)
            taken.add((metadata["namespace"], metadata["name"]))
            yield job, run


def _owner(workload: Workload, keys: set[tuple[str, str, str]]) -> tuple[str, str, str] | None:
    for reference in workload.metadata.owner_references:
        owner = (reference.kind, workload.metadata.namespace, reference.name)
        if owner in keys:
            return owner
    return None
