"""Kueue's objects as Budgets and Runs, with the labels that the nodes need.

Documents may come in any order. What is no part of the answer is remarked on: nothing is dropped in silence.
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
from jobtree.importers.kueue.job_reader import KueueJob, job_names, work_of
from jobtree.importers.kueue.job_runs import KueueSite, run_of
from jobtree.importers.kueue.kueue_kinds import KINDS, Admission, KueueStruct, Workload
from jobtree.importers.kueue.queue_budgets import Team, budgets, read_teams
from jobtree.importers.kueue.resource_flavors import Flavors, label_lines, read_flavors
from jobtree.importers.kueue.unsupported_features import note_kind, note_policies

# What to ask a live cluster for, by the names that the API server has for them.
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
class _Found:
    """The objects by kind, in the order in which they came."""

    of: dict[str, list[Any]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    nodes: list[Node] = field(default_factory=list)


def flavor_names(given: Iterable[str]) -> dict[str, str]:
    """``OLD=NEW`` from the command line. Raises InputError."""
    names: dict[str, str] = {}
    for text in given:
        old, equals, new = text.partition("=")
        if not equals or not old or flavor_name(new) != new:
            rule = "must be OLD=NEW: a ResourceFlavor, and the value of gpu.flavor that it stands for"
            raise InputError("the command line", [f"--flavor: {text!r} {rule}"])
        names[old] = new
    return names


def convert_kueue(
    documents: Iterable[Document],
    names: Mapping[str, str],
    checkpoint: str | None = None,
) -> Converted:
    """All objects of Kueue among the documents. Raises InputError."""
    out = Converted()
    found = _read(documents, out)
    flavors = read_flavors(found.of["ResourceFlavor"], found.of["Topology"], names, out)
    teams = read_teams(
        {queue.metadata.name: queue for queue in found.of["ClusterQueue"]},
        {cohort.metadata.name: cohort for cohort in found.of["Cohort"]},
        out,
    )
    used = {share.flavor for team in teams.values() for share in team.shares}
    out.labels += label_lines(flavors, used, found.nodes)
    out.add(budgets(teams, flavors, out), "Kueue")
    note_policies(teams, out)
    for work, run in _runs(found, teams, flavors, checkpoint, out):
        out.add([run], work.where)
    return out


def _read(documents: Iterable[Document], out: Converted) -> _Found:
    found = _Found()
    for where, body in documents:
        kind = body.get("kind")
        if kind == "Node":
            found.nodes.append(read_node(body, where))
        elif isinstance(kind, str) and kind in KINDS:
            read: KueueStruct = decode_struct(body, KINDS[kind], f"{where}, {kind}")
            found.of[kind].append(read)
        else:
            note_kind(kind if isinstance(kind, str) and kind else "an object without a kind", where, out)
    if not any(found.of.values()):
        raise InputError("Kueue", [f"there is nothing to convert: no {', '.join(KINDS)}"])
    return found


def _runs(
    found: _Found, teams: Mapping[str, Team], flavors: Flavors, checkpoint: str | None, out: Converted
) -> Iterable[tuple[KueueJob, dict[str, Any]]]:
    """A Workload that belongs to a job here says what that job was given; any other is a job by itself."""
    works = [
        work for kind in WORK[:-1] for one in found.of[kind] if (work := work_of(one, flavors.islands, out))
    ]
    known, admissions = set(job_names(works)), dict[tuple[str, str, str], Admission]()
    for workload in found.of["Workload"]:
        owner = _owner(workload, known) or ("Workload", workload.metadata.namespace, workload.metadata.name)
        if workload.status.admission:
            admissions[owner] = workload.status.admission
        if owner[0] == "Workload" and (work := work_of(workload, flavors.islands, out)):
            works.append(work)
    local = {(one.metadata.namespace, one.metadata.name): one for one in found.of["LocalQueue"]}
    site = KueueSite(teams, local, flavors, admissions, checkpoint)
    taken: set[tuple[str, str]] = set()
    for work in works:
        run = run_of(work, site, out)
        if run:
            metadata = run["metadata"]
            others = {name for namespace, name in taken if namespace == metadata["namespace"]}
            metadata["name"] = unused(metadata["name"], others)
            taken.add((metadata["namespace"], metadata["name"]))
            yield work, run


def _owner(workload: Workload, known: set[tuple[str, str, str]]) -> tuple[str, str, str] | None:
    for reference in workload.metadata.owner_references:
        owner = (reference.kind, workload.metadata.namespace, reference.name)
        if owner in known:
            return owner
    return None
