"""What Kueue has and Jobtree has not (priorities, evictions, stopped queues), and what happens instead."""

from collections.abc import Mapping

from jobtree.importers.conversion import Converted
from jobtree.importers.kueue.queue_budgets import Team

PREEMPTION = {
    "withinClusterQueue": (
        "there are no priorities: the oldest funded Run goes first; when funded work collides, spares are "
        "dropped, elastic Runs shrink, then a lottery decides"
    ),
    "reclaimWithinCohort": (
        "always, and softer: an owner whose start needs it takes its money back from relatives; their Runs "
        "go on unpaid until somebody funded needs the GPUs"
    ),
    "borrowWithinCohort": "a Run that borrows ends nobody's work: it waits with a promised start",
}
KINDS = {
    "WorkloadPriorityClass": "there are no priorities: the oldest Run that is funded goes first",
    "PriorityClass": "there are no priorities: the oldest Run that is funded goes first",
    "AdmissionCheck": "a Run is admitted when it is paid for and fits: nothing else is asked",
    "ProvisioningRequestConfig": "nodes are taken as they are: a forecast says what is missing (AddCapacity)",
    "MultiKueueCluster": "one cluster is planned at a time",
    "MultiKueueConfig": "one cluster is planned at a time",
}
FUNGIBILITY = (
    "a Run asks for one kind of GPU: ResourceFlavors with the same GPU are one flavor, and any of them pays; "
    "between different GPUs the Run has to choose"
)


def note_kind(kind: str, where: str, out: Converted) -> None:
    """A remark on an object that becomes nothing."""
    out.remark(where, kind, KINDS.get(kind, "is not read: it has no part in who gets GPUs"))


def note_policies(teams: Mapping[str, Team], out: Converted) -> None:
    for team in teams.values():
        spec, where = team.queue.spec, team.where
        for field, value in (spec.preemption or {}).items():
            spelled = value.get("policy", "") if isinstance(value, dict) else value
            if spelled and spelled != "Never":
                instead = PREEMPTION.get(field, "there is no preemption by policy")
                out.remark(where, f"preemption.{field}: {spelled}", instead)
        if spec.flavor_fungibility:
            out.remark(where, "flavorFungibility", FUNGIBILITY)
        if spec.queueing_strategy == "StrictFIFO":
            hint = "the oldest has a promised start; younger Runs start only where that does not break it"
            out.remark(where, "queueingStrategy: StrictFIFO", hint)
        if spec.stop_policy not in ("", "None"):
            hint = "a queue cannot be stopped: set the envelopes' end, or take them out"
            out.remark(where, f"stopPolicy: {spec.stop_policy}", hint)
        if spec.admission_checks or spec.admission_checks_strategy:
            out.remark(where, "admissionChecks", KINDS["AdmissionCheck"])
        if spec.fair_sharing:
            out.remark(
                where, "fairSharing", "there are no weights: what a team may hold is written in its envelopes"
            )
        if spec.namespace_selector and not team.is_cohort:
            hint = (
                f"who may charge {team.owner} is RBAC: the verb spend on budgets, resource name {team.owner}"
            )
            out.remark(where, "namespaceSelector", hint)
    _note_depth(teams, out)


def _note_depth(teams: Mapping[str, Team], out: Converted) -> None:
    nested = {team.cohort for team in teams.values() if team.is_cohort and team.cohort}
    for name in sorted(nested):
        if sum(team.cohort == name for team in teams.values()) > 1:
            hint = "teams below different members are cousins: they pay for each other only as sponsors"
            out.remark(f"Cohort {name}", "borrowing across cohorts", hint)
