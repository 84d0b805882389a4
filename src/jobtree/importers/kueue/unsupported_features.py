"""The features of Kueue that have no equivalent, such as priorities, and what happens instead."""

from collections.abc import Mapping

from jobtree.importers.conversion import Converted
from jobtree.importers.kueue.queue_budgets import Team

PREEMPTION = {
    "withinClusterQueue": (
        "Jobtree has no priorities: the oldest funded Run starts first; if funded Runs compete, spares end "
        "first, then malleable Runs shrink, then a lottery decides"
    ),
    "reclaimWithinCohort": (
        "an owner always recalls its charges from its family if a start needs them; those Runs continue as "
        "opportunistic until a funded Run needs the GPUs"
    ),
    "borrowWithinCohort": "a Run that borrows ends no other Run: it waits with a promised start",
}
KINDS = {
    "WorkloadPriorityClass": "Jobtree has no priorities: the oldest funded Run starts first",
    "PriorityClass": "Jobtree has no priorities: the oldest funded Run starts first",
    "AdmissionCheck": "a Run starts as soon as it is funded and fits: there are no other checks",
    "ProvisioningRequestConfig": "Jobtree adds no nodes: forecasts show what is missing (AddCapacity)",
    "MultiKueueCluster": "Jobtree plans one cluster",
    "MultiKueueConfig": "Jobtree plans one cluster",
}
FUNGIBILITY = (
    "a Run asks for one kind of GPU: ResourceFlavors with the same GPU become one flavor, and each can pay; "
    "for another kind of GPU set gpuType"
)


def note_kind(kind: str, where: str, out: Converted) -> None:
    """Adds a remark for an object that is not converted."""
    out.remark(where, kind, KINDS.get(kind, "is ignored: it does not affect who gets GPUs"))


def note_policies(teams: Mapping[str, Team], out: Converted) -> None:
    for team in teams.values():
        spec, where = team.queue.spec, team.where
        for field, value in (spec.preemption or {}).items():
            spelled = value.get("policy", "") if isinstance(value, dict) else value
            if spelled and spelled != "Never":
                instead = PREEMPTION.get(field, "Jobtree has no preemption by policy")
                out.remark(where, f"preemption.{field}: {spelled}", instead)
        if spec.flavor_fungibility:
            out.remark(where, "flavorFungibility", FUNGIBILITY)
        if spec.queueing_strategy == "StrictFIFO":
            hint = "the oldest Run has a promised start; younger Runs start only if it can still be kept"
            out.remark(where, "queueingStrategy: StrictFIFO", hint)
        if spec.stop_policy not in ("", "None"):
            hint = "a queue cannot be stopped: set an end for its envelopes, or remove them"
            out.remark(where, f"stopPolicy: {spec.stop_policy}", hint)
        if spec.admission_checks or spec.admission_checks_strategy:
            out.remark(where, "admissionChecks", KINDS["AdmissionCheck"])
        if spec.fair_sharing:
            out.remark(where, "fairSharing", "Jobtree has no weights: a team is limited by its envelopes")
        if spec.namespace_selector and not team.is_cohort:
            hint = f"use RBAC: allow the verb spend on budgets with the resource name {team.owner}"
            out.remark(where, "namespaceSelector", hint)
    _note_depth(teams, out)


def _note_depth(teams: Mapping[str, Team], out: Converted) -> None:
    nested = {team.cohort for team in teams.values() if team.is_cohort and team.cohort}
    for name in sorted(nested):
        if sum(team.cohort == name for team in teams.values()) > 1:
            hint = "teams below different members pay for each other only as sponsors"
            out.remark(f"Cohort {name}", "borrowing across cohorts", hint)
