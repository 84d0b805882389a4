"""Valid documents of the four kinds, and a function that changes fields of them."""

import copy
import re
from typing import Any

from jobtree.api.schema.problems import InputError
from jobtree.api.validation.object_parser import parse_object

API_VERSION = "rq.davidlangworthy.io/v1"
T0 = "2026-01-05T09:00:00Z"
DAY_LATER = "2026-01-06T09:00:00Z"

Doc = dict[str, Any]

BUDGET: Doc = {
    "apiVersion": API_VERSION,
    "kind": "Budget",
    "metadata": {"name": "rai"},
    "spec": {
        "owner": "org:ai:rai",
        "envelopes": [{"name": "west", "flavor": "H100-80GB", "concurrency": 8}],
    },
}
RUN: Doc = {
    "apiVersion": API_VERSION,
    "kind": "Run",
    "metadata": {"name": "train", "namespace": "rai-sys"},
    "spec": {"owner": "org:ai:rai:sys", "resources": {"gpuType": "H100-80GB", "totalGPUs": 128}},
}
TREE: Doc = {
    "apiVersion": API_VERSION,
    "kind": "Run",
    "metadata": {"name": "tree", "namespace": "rai-sys"},
    "spec": {
        "owner": "org:ai:rai:sys",
        "stages": [
            {"name": "prep", "resources": {"totalGPUs": 0, "pods": 2}},
            {"name": "train", "after": ["prep"], "resources": {"gpuType": "H100-80GB", "totalGPUs": 64}},
            {"name": "eval", "with": ["train"], "resources": {"gpuType": "H100-80GB", "totalGPUs": 8}},
        ],
    },
}
RESERVATION: Doc = {
    "apiVersion": API_VERSION,
    "kind": "Reservation",
    "metadata": {"name": "train-1", "namespace": "rai-sys"},
    "spec": {
        "runRef": {"namespace": "rai-sys", "name": "train", "uid": "u1"},
        "flavor": "H100-80GB",
        "commitment": "ab" * 32,
        "earliestStart": T0,
        "intendedSlice": {"domains": [{"domain": "us-west/gpu-a/nv-a", "gpus": 8, "nodes": ["gpu-a-01"]}]},
    },
}
LEASE: Doc = {
    "apiVersion": API_VERSION,
    "kind": "Lease",
    "metadata": {"name": "rai-sys-train-1"},
    "spec": {
        "runRef": {"namespace": "rai-sys", "name": "train", "uid": "u1"},
        "owner": "org:ai:rai:sys",
        "payer": {"owner": "org:ai:rai", "budget": "rai", "envelope": "west"},
        "class": "Shared",
        "role": "Active",
        "group": 0,
        "flavor": "H100-80GB",
        "slots": ["gpu-a-01#0-7"],
        "start": T0,
        "rate": "1",
        "reason": "Start",
    },
}
SAMPLES = [BUDGET, RUN, TREE, RESERVATION, LEASE]


def changed(document: Doc, changes: dict[str, object]) -> Doc:
    """Returns a copy with other values at some paths: ``{"spec.envelopes[0].concurrency": 0}``.

    None removes a field.
    """
    result = copy.deepcopy(document)
    for path, value in changes.items():
        *parents, last = re.findall(r"[^.\[\]]+", path)
        target: Any = result
        for step in parents:
            target = target[int(step)] if isinstance(target, list) else target.setdefault(step, {})
        if isinstance(target, list):
            target[int(last) : int(last) + 1] = [value]
        elif value is None:
            target.pop(last, None)
        else:
            target[last] = value
    return result


def refusals(document: Doc) -> list[str]:
    """Returns the problems of a document."""
    try:
        parse_object(document, "test")
    except InputError as error:
        return [str(problem) for problem in error.problems]
    return []
