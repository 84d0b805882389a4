"""Makes the documents of a fleet: nodes, a family of budgets with three levels, and closed leases.

They depend only on the scale, so the fleet is the same every time.
"""

from collections.abc import Iterator
from random import Random
from typing import Any

from benchmarks.scale import Scale
from jobtree.api.schema.object_meta import API_VERSION
from jobtree.api.schema.quantities import HOUR, MINUTE, format_time, parse_time

Document = dict[str, Any]

FLAVOR = "H100-80GB"
REGIONS = ("us-east", "us-west")
EPOCH = parse_time("2026-01-05T09:00:00Z")
WINDOW = {"start": "2026-01-01T00:00:00Z", "end": "2026-07-01T00:00:00Z"}
WINDOW_HOURS = 181 * 24
TEAM_GPUS = (256, 384, 512, 768, 1024)
DIVISION_GPUS = 2048


def nodes(scale: Scale) -> Iterator[Document]:
    for number in range(scale.nodes):
        domain = number * scale.domains // scale.nodes
        region = REGIONS[domain % len(REGIONS)]
        name = node_name(number)
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "uid": f"{name}-uid",
                "labels": {
                    "kubernetes.io/hostname": name,
                    "region": region,
                    "cluster": f"{region}-1",
                    "fabric.domain": f"nv-{domain:03d}",
                    "gpu.flavor": FLAVOR,
                },
            },
            "spec": {},
            "status": {
                "allocatable": {
                    "cpu": "190",
                    "memory": "1900Gi",
                    "pods": "110",
                    "nvidia.com/gpu": str(scale.gpus_per_node),
                },
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }


def node_name(number: int) -> str:
    return f"gpu-{number:05d}"


def team(scale: Scale, number: int) -> str:
    return f"org:d{number % scale.divisions:02d}:t{number:03d}"


def team_gpus(number: int) -> int:
    """Returns the GPUs of a team; together the teams have somewhat more than the fleet."""
    return TEAM_GPUS[number % len(TEAM_GPUS)]


def budgets(scale: Scale) -> Iterator[Document]:
    yield _budget("org", [_envelope("main", max(4096, scale.gpus // 25))])
    for number in range(scale.divisions):
        envelope = _envelope("main", DIVISION_GPUS, **({"maxCredits": 4_000_000} if number % 4 == 0 else {}))
        yield _budget(f"org:d{number:02d}", [envelope])
    for number in range(scale.teams):
        yield _team(scale, number)


def _team(scale: Scale, number: int) -> Document:
    """Returns the Budget of a team; some have windows, hours, selectors, a cap, lending, or do not share."""
    gpus, extra = team_gpus(number), {}
    if number % 3 == 0:
        extra = {**WINDOW, "maxGPUHours": gpus * WINDOW_HOURS * 9 // 10}
    if number % 5 == 2:
        extra["lending"] = {"allow": True, "to": ["org:*"], "maxConcurrency": gpus // 4}
    if number % 7 == 3:
        extra["sharing"] = "none"
    if number % 4 != 1:
        return _budget(team(scale, number), [_envelope("main", gpus, **extra)])
    extra.pop("maxGPUHours", None)
    parts = [
        _envelope("main", gpus * 5 // 8, **extra),
        _envelope("west", gpus // 2, selector={"region": REGIONS[1]}, **extra),
    ]
    cap = {"name": "all", "flavor": FLAVOR, "envelopes": ["main", "west"], "maxConcurrency": gpus}
    return _budget(team(scale, number), parts, [{**cap, "maxGPUHours": gpus * WINDOW_HOURS}])


def _envelope(name: str, concurrency: int, **extra: object) -> Document:
    return {"name": name, "flavor": FLAVOR, "concurrency": concurrency, **extra}


def _budget(owner: str, envelopes: list[Document], caps: list[Document] | None = None) -> Document:
    spec: Document = {"owner": owner, "envelopes": envelopes}
    if caps:
        spec["aggregateCaps"] = caps
    name = budget_name(owner)
    metadata = {"name": name, "uid": f"{name}-uid", "creationTimestamp": WINDOW["start"]}
    return {"apiVersion": API_VERSION, "kind": "Budget", "metadata": metadata, "spec": spec}


def budget_name(owner: str) -> str:
    return owner.replace(":", "-")


def closed_leases(scale: Scale, alive: list[Document]) -> Iterator[Document]:
    """Yields leases of earlier Runs; every tenth is of an earlier attempt of an existing Run."""
    random = Random(3)
    for number in range(scale.closed_leases):
        owner = team(scale, random.randrange(scale.teams))
        run = {"namespace": "history", "name": f"old-{number}", "uid": f"{number:08d}-old"}
        if number % 10 == 0:
            previous = alive[random.randrange(len(alive))]
            owner = previous["spec"]["owner"]
            run = {key: previous["metadata"][key] for key in ("namespace", "name", "uid")}
        start = EPOCH - random.randrange(20, 90) * HOUR + number % 60 * MINUTE
        yield {
            "apiVersion": API_VERSION,
            "kind": "Lease",
            "metadata": {"name": f"{run['name']}-{run['uid'][:8]}-{10_000 + number}"},
            "spec": {
                "runRef": run,
                "owner": owner,
                "payer": {"owner": owner, "budget": budget_name(owner), "envelope": "main"},
                "class": "Owned",
                "role": "Active",
                "group": 0,
                "flavor": FLAVOR,
                "slots": [f"{node_name(random.randrange(scale.nodes))}#0-7"],
                "start": format_time(start),
                "rate": "1",
                "reason": "Start",
            },
            "status": {
                "end": format_time(start + random.randrange(1, 20) * HOUR),
                "closureReason": "Completed",
            },
        }
