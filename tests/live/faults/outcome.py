"""The outcome of a workload: the state of its objects, without anything that may differ from run to run."""

from typing import Any

import msgspec

from jobtree.core.lottery.resolution_record import Record, verify
from tests.live.crds.manifests import API_VERSION, GROUP
from tests.live.manager.tenant import Tenant

Outcome = dict[str, Any]


def outcome_of(tenant: Tenant) -> Outcome:
    """Summarizes a tenant's objects, without times, UIDs, versions and the name of the loser of a lottery."""
    api = f"/apis/{API_VERSION}"
    leases = [
        lease
        for lease in tenant.items(f"{api}/gpuleases")
        if lease["spec"]["runRef"]["namespace"] == tenant.name
    ]
    budgets = [
        budget
        for budget in tenant.items(f"{api}/budgets")
        if budget["metadata"]["name"].startswith(f"{tenant.name}-")
    ]
    return {
        "runs": sorted(map(_run_summary, tenant.items(tenant.runs_path)), key=repr),
        "leases": sorted(map(_lease_summary, leases), key=repr),
        "reservations": sorted(map(_reservation_summary, tenant.reservations()), key=repr),
        "pods": sorted(map(_pod_summary, tenant.items(tenant.pods_path)), key=repr),
        "budgets": [_budget_summary(budget) for budget in budgets],
    }


def is_settled(outcome: Outcome) -> bool:
    """Whether Runs, leases and Budgets agree on the GPUs in use."""
    running = {run["name"]: run["width"]["allocated"] for run in outcome["runs"] if run["phase"] == "Running"}
    open_leases = {lease["run"] for lease in outcome["leases"] if lease["end"] == "open"}
    used = sum(
        int(envelope["usedGPUs"]) for envelopes in outcome["budgets"] for envelope in envelopes.values()
    )
    return open_leases == running.keys() and used == sum(running.values())


def describe_difference(outcome: Outcome, expected: Outcome) -> str:
    """Lists unexpected and missing objects, part by part of the workload."""
    lines = []
    for part, expected_objects in expected.items():
        for kind, wanted in expected_objects.items():
            actual = outcome[part][kind]
            lines += [f"{part}: unexpected {summary}" for summary in actual if summary not in wanted]
            lines += [f"{part}: missing {summary}" for summary in wanted if summary not in actual]
    return "\n".join(lines)


def _without_loser(name: str) -> str:
    """Replaces the names of the two Runs in the lottery, since either may lose."""
    return "left or right" if name in ("left", "right") else name


def _run_summary(run: dict[str, Any]) -> Outcome:
    status = run.get("status", {})
    conditions = sorted(
        (condition["type"], condition["status"], condition["reason"])
        for condition in status.get("conditions", ())
    )
    return {
        "name": _without_loser(run["metadata"]["name"]),
        **{key: status.get(key) for key in ("phase", "width", "attempt", "reason", "restarts")},
        "conditions": conditions,
        "finalizers": run["metadata"].get("finalizers"),
    }


def _lease_summary(lease: dict[str, Any]) -> Outcome:
    spec = lease["spec"]
    return {
        "run": _without_loser(spec["runRef"]["name"]),
        **{key: spec[key] for key in ("class", "role", "group", "reason")},
        "slots": len(spec["slots"]),
        "end": lease.get("status", {}).get("closureReason", "open"),
    }


def _reservation_summary(reservation: dict[str, Any]) -> Outcome:
    status = reservation["status"]
    record = status.get("lottery")
    return {
        "name": reservation["metadata"]["name"],
        "state": status["state"],
        "problems of the record": verify(msgspec.convert(record, Record)) if record else None,
        "slips": [slip["reason"] for slip in status.get("slips", ())],
    }


def _pod_summary(pod: dict[str, Any]) -> Outcome:
    labels = pod["metadata"]["labels"]
    return {
        "run": _without_loser(labels[f"{GROUP}/run"]),
        **{key: labels.get(f"{GROUP}/{key}") for key in ("role", "rank", "attempt")},
        "phase": pod["status"]["phase"],
    }


def _budget_summary(budget: dict[str, Any]) -> Outcome:
    envelopes = budget.get("status", {}).get("envelopes", ())
    return {
        envelope["name"]: {
            key: value for key, value in envelope.items() if "ours" not in key and "redits" not in key
        }
        for envelope in envelopes
    }
