"""Runs, trees and Budgets at the limits of their fields and one past them, drawn from a seed."""

from collections.abc import Callable
from random import Random
from typing import Any

from tests.live.crds.manifests import API_VERSION, Manifest

WIDTHS = 4096
PODS = 8192
STAGES = 64
GPUS = (0, 1, 7, 8, 9, 64, 1024, 8 * PODS, 8 * PODS + 8, 10**6, 2**31 - 1, 2**63 - 1)
SMALL = (0, 1, 2, 3, 8, 16, 17)
DURATIONS = ("0s", "1s", "10m", "9999h", "x")
TEXT_BYTES = (0, 1_000, 100_000, 1_200_000)
NESTING = (1, 30, 300)


def hostile_object(draw: Random, name: str, namespace: str, owner: str, flavor: str) -> Manifest:
    """Returns an object that the API server may refuse, and the manager must survive."""
    make: Callable[..., Manifest] = draw.choice((run_spec, run_spec, run_spec, wide_spec, tree_spec, budget))
    if make is budget:
        return budget(draw, name, owner, flavor)
    spec = {"owner": owner, **make(draw, flavor)}
    metadata = {"name": name, "namespace": namespace, "labels": {"hunt": "true"}}
    return {"apiVersion": API_VERSION, "kind": "Run", "metadata": metadata, "spec": spec}


def gang(draw: Random, flavor: str) -> dict[str, Any]:
    resources: dict[str, Any] = {"gpuType": flavor, "totalGPUs": draw.choice(GPUS)}
    fields: dict[str, Any] = {"resources": resources}
    if draw.random() < 0.3:
        resources["gpusPerPod"] = draw.choice((1, 2, 8, 9))
    if draw.random() < 0.3:
        fields["locality"] = {
            "groupGPUs": draw.choice((1, 8, 64)),
            "allowCrossGroupSpread": draw.random() < 0.5,
        }
    if draw.random() < 0.3:
        fields["spares"] = draw.choice((0, 1, PODS, PODS + 1))
    if draw.random() < 0.3:
        fields["runtime"] = {
            "maxDuration": draw.choice(DURATIONS),
            "maxRestarts": draw.choice((0, 1000, 1001)),
        }
    return fields


def run_spec(draw: Random, flavor: str) -> dict[str, Any]:
    spec = gang(draw, flavor)
    if draw.random() < 0.3:
        spec["template"] = template(draw)
    if draw.random() < 0.2:
        spec["follow"] = {"after": [f"hunt-{draw.randrange(200)}" for _ in range(draw.choice((1, 64, 65)))]}
    if draw.random() < 0.3:
        spec["funding"] = {
            "allowBorrow": True,
            "allowOpportunistic": draw.random() < 0.5,
            "sponsors": [f"nobody:{number}" for number in range(draw.choice(SMALL))],
        }
    return spec


def wide_spec(draw: Random, flavor: str) -> dict[str, Any]:
    """A Run that could start at thousands of widths."""
    most = draw.choice((8, WIDTHS, WIDTHS + 1, 8 * PODS))
    step = draw.choice((1, 8))
    malleable = {"minTotalGPUs": step, "maxTotalGPUs": most, "stepGPUs": step}
    resources = {"gpuType": flavor, "totalGPUs": draw.choice((step, most))}
    return {"resources": resources, "malleable": malleable, "runtime": {"checkpoint": "10m"}}


def tree_spec(draw: Random, flavor: str) -> dict[str, Any]:
    count = draw.choice((1, 2, STAGES, STAGES + 1))
    stages = []
    for number in range(count):
        stage: dict[str, Any] = {"name": f"s{number}", **gang(draw, flavor)}
        if number and draw.random() < 0.5:
            stage["after"] = [f"s{draw.randrange(number + 1)}"]
        if number and draw.random() < 0.2:
            stage["with"] = [f"s{draw.randrange(number)}"]
        if draw.random() < 0.1:
            del stage["resources"]
            stage["stages"] = [
                {"name": f"t{leaf}", **gang(draw, flavor)} for leaf in range(draw.choice(SMALL))
            ]
        stages.append(stage)
    return {"stages": stages}


def template(draw: Random) -> dict[str, Any]:
    env = [{"name": "TEXT", "value": "x" * draw.choice(TEXT_BYTES)}]
    nested: dict[str, Any] = {}
    for _ in range(draw.choice(NESTING)):
        nested = {"deeper": nested}
    container = {"name": "main", "image": "train:1", "env": env}
    return {"spec": {"containers": [container], **({"affinity": nested} if draw.random() < 0.3 else {})}}


def budget(draw: Random, name: str, owner: str, flavor: str) -> Manifest:
    """A Budget of a team of the attacker: it can pay for nobody else."""
    envelopes = [
        {"name": f"e{number}", "flavor": flavor, "concurrency": draw.choice((0, 1, 8, 2**31 - 1))}
        for number in range(draw.choice((1, 2, 64, 65)))
    ]
    team = f"{owner}:{name}"
    spec: dict[str, Any] = {"owner": team, "envelopes": envelopes}
    if draw.random() < 0.5:
        spec["parents"] = [draw.choice((owner, team, "nobody:else"))]
    return {"apiVersion": API_VERSION, "kind": "Budget", "metadata": {"name": name}, "spec": spec}
