"""Builds manifests. Each function returns a valid object; arguments replace fields of its spec.

Arguments have the names of the API's fields: ``run(resources={"gpuType": "H100-80GB", "totalGPUs": 8})``.
A field that is ``None`` is left out.
"""

from typing import Any

GROUP = "rq.davidlangworthy.io"
API_VERSION = f"{GROUP}/v1"
BUDGETS_PATH = f"/apis/{API_VERSION}/budgets"
LEASES_PATH = f"/apis/{API_VERSION}/gpuleases"
NAMESPACE = "default"
FLAVOR = "H100-80GB"

Manifest = dict[str, Any]


def _object(kind: str, spec: Manifest, fields: Manifest, name: str, **metadata: object) -> Manifest:
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": name, **metadata},
        "spec": _merged(spec, fields),
    }


def _merged(base: Manifest, fields: Manifest) -> Manifest:
    return {name: value for name, value in {**base, **fields}.items() if value is not None}


def envelope(**fields: object) -> Manifest:
    return _merged({"name": "west", "flavor": FLAVOR, "concurrency": 8}, fields)


def cap(**fields: object) -> Manifest:
    return _merged({"name": "all", "flavor": FLAVOR, "envelopes": ["west"], "maxConcurrency": 8}, fields)


def budget(*envelopes: Manifest, **fields: object) -> Manifest:
    """Returns a Budget with these envelopes, or with one if none is given."""
    spec = {"owner": "org:ai:rai", "envelopes": list(envelopes) or [envelope()]}
    return _object("Budget", spec, fields, "rai")


def run(**fields: object) -> Manifest:
    """Returns a Run of 8 GPUs."""
    spec = {"owner": "org:ai:rai:sys", "resources": {"gpuType": FLAVOR, "totalGPUs": 8}}
    return _object("Run", spec, fields, "train", namespace=NAMESPACE)


def gang(total: int, **resources: object) -> Manifest:
    return {"gpuType": FLAVOR, "totalGPUs": total, **resources}


def elastic(least: int, most: int, step: int, **fields: object) -> Manifest:
    return {"minTotalGPUs": least, "maxTotalGPUs": most, "stepGPUs": step, **fields}


def stage(name: str, **fields: object) -> Manifest:
    return _merged({"name": name, "resources": gang(8)}, fields)


def tree(*stages: Manifest, **fields: object) -> Manifest:
    """Returns a Run with these stages instead of a gang."""
    return run(resources=None, stages=list(stages), **fields)


def lease(**fields: object) -> Manifest:
    spec = {
        "runRef": {"namespace": NAMESPACE, "name": "train", "uid": "5f0c9a3e-0000-4000-8000-000000000001"},
        "owner": "org:ai:rai:sys",
        "payer": {"owner": "org:ai:rai", "budget": "rai", "envelope": "west"},
        "class": "Shared",
        "role": "Active",
        "group": 0,
        "flavor": FLAVOR,
        "slots": ["gpu-a-01#0-7"],
        "start": "2026-01-05T09:00:00Z",
        "rate": "1",
        "reason": "Start",
    }
    return _object("Lease", spec, fields, "default-train-1")


def reservation(**fields: object) -> Manifest:
    spec = {
        "runRef": {"namespace": NAMESPACE, "name": "train", "uid": "5f0c9a3e-0000-4000-8000-000000000001"},
        "flavor": FLAVOR,
        "commitment": "ab" * 32,
        "earliestStart": "2026-01-05T10:00:00Z",
        "intendedSlice": {"domains": [{"domain": "us-west/gpu-a/nv-a", "gpus": 8, "nodes": ["gpu-a-01"]}]},
    }
    return _object("Reservation", spec, fields, "train-1", namespace=NAMESPACE)
