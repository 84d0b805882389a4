"""Updates of objects: fields that may change, and fields that never do (specification, section 2)."""

from dataclasses import dataclass, field
from typing import Any

from tests.live.crds.manifests import Manifest, budget, elastic, envelope, gang, lease, reservation, run

ALLOCATION = {"since": "2026-01-05T09:00:00Z", "gpusPerPod": 8}
RUNNING = {"phase": "Running", "allocation": ALLOCATION}
CLOSED = {"end": "2026-01-05T12:00:00Z", "closureReason": "Completed"}
ELASTIC = run(resources=gang(128), malleable=elastic(96, 160, 32), runtime={"maxDuration": "2h"})


@dataclass(frozen=True)
class Change:
    """A merge patch of an object with this status. A refusal must match ``says``; empty: it is allowed."""

    claim: str
    manifest: Manifest
    patch: dict[str, Any]
    status: dict[str, Any] = field(default_factory=dict)
    says: str = ""

    @property
    def is_of_status(self) -> bool:
        return "status" in self.patch


def _spec(**fields: object) -> dict[str, Any]:
    return {"spec": fields}


def _status(**fields: object) -> dict[str, Any]:
    return {"status": fields}


CHANGES = [
    # Budgets
    Change("concurrency of an envelope", budget(), _spec(envelopes=[envelope(concurrency=64)])),
    # Runs
    Change("owner of a waiting run", run(), _spec(owner="org:vision"), says="owner never changes"),
    Change("owner of a running run", run(), _spec(owner="org:vision"), RUNNING, says="owner never changes"),
    Change("resources of a waiting run", run(), _spec(resources={"totalGPUs": 16}, spares=1)),
    Change(
        "an invalid edit of a waiting run",
        ELASTIC,
        _spec(resources={"totalGPUs": 100}),
        says="step",
    ),
    Change("spec of a finished run", run(), _spec(spares=1), {"phase": "Completed"}),
    Change(
        "width of a running run",
        ELASTIC,
        _spec(resources={"totalGPUs": 96}),
        RUNNING,
        says="only.*may change",
    ),
    Change("spares of a running run", run(), _spec(spares=1), RUNNING, says="only.*may change"),
    Change(
        "spec of a run that was just admitted",
        run(),
        _spec(spares=1),
        {"phase": "Pending", "allocation": ALLOCATION},
        says="only.*may change",
    ),
    Change("desired width of a running run", ELASTIC, _spec(malleable={"desiredTotalGPUs": 96}), RUNNING),
    Change(
        "invalid desired width of a running run",
        ELASTIC,
        _spec(malleable={"desiredTotalGPUs": 100}),
        RUNNING,
        says="desired.*step|step.*desired",
    ),
    Change(
        "step of a running run",
        ELASTIC,
        _spec(malleable={"stepGPUs": 64}),
        RUNNING,
        says="only.*may change",
    ),
    Change("a lower maxDuration", ELASTIC, _spec(runtime={"maxDuration": "90m"}), RUNNING),
    Change("a first maxDuration", run(), _spec(runtime={"maxDuration": "90m"}), RUNNING),
    Change("the same maxDuration in another unit", ELASTIC, _spec(runtime={"maxDuration": "120m"}), RUNNING),
    Change(
        "a higher maxDuration",
        ELASTIC,
        _spec(runtime={"maxDuration": "3h"}),
        RUNNING,
        says="only.*may change",
    ),
    Change(
        "removal of maxDuration",
        ELASTIC,
        _spec(runtime={"maxDuration": None}),
        RUNNING,
        says="only.*may change",
    ),
    Change(
        "another checkpoint", ELASTIC, _spec(runtime={"checkpoint": "1m"}), RUNNING, says="only.*may change"
    ),
    Change("unknown phase", run(), _status(phase="Dreaming"), says="Pending.*Failed"),
    Change(
        "kill probability that is no decimal text",
        run(),
        _status(risk=[{"reservation": "other-1", "at": "2026-01-05T09:00:00Z", "killProbability": 0.5}]),
        says="string",
    ),
    Change("unknown field of a status", run(), _status(mood="good"), says="unknown field"),
    # Reservations
    Change("another date of a promise", reservation(), _spec(earliestStart="2026-01-05T11:00:00Z")),
    Change("removal of the date of a promise", reservation(), _spec(earliestStart=None)),
    Change("another slice of a promise", reservation(), _spec(intendedSlice={"domains": []})),
    Change("another run of a promise", reservation(), _spec(runRef={"name": "other"}), says="earliestStart"),
    Change("another commitment", reservation(), _spec(commitment="cd" * 32), says="earliestStart"),
    Change("another flavor of a promise", reservation(), _spec(flavor="A100-40GB"), says="earliestStart"),
    Change("activation of a promise", reservation(), _status(state="Activated"), {"state": "Pending"}),
    Change("unknown state of a promise", reservation(), _status(state="Broken"), says="Pending.*Cancelled"),
    Change(
        "unknown remedy",
        reservation(),
        _status(forecast={"remedies": [{"kind": "Bribe", "gpus": 8}]}),
        says="Reclaim.*AddCapacity",
    ),
    Change(
        "a forecast",
        reservation(),
        _status(
            forecast={
                "deficitGPUs": 8,
                "scope": "us-west/gpu-a/nv-a",
                "conflictSet": ["demo"],
                "remedies": [{"kind": "Shrink", "gpus": 8, "runs": ["demo"]}],
                "confidence": "guaranteed",
                "expectedStart": {"p50": "2026-01-05T10:00:00Z", "p90": "2026-01-05T10:00:00Z"},
            }
        ),
    ),
    # Leases
    *(
        Change(f"a lease's {name}", lease(), _spec(**{name: value}), says="spec never changes")
        for name, value in {
            "owner": "org:vision",
            "payer": {"envelope": "east"},
            "class": "Owned",
            "role": "Spare",
            "group": 1,
            "slots": ["gpu-a-01#0-3"],
            "start": "2026-01-05T08:00:00Z",
            "rate": "0.5",
            "reason": "Grow",
        }.items()
    ),
    Change("closing a lease", lease(), _status(**CLOSED)),
    Change("closing a lease at its start", lease(), _status(**CLOSED | {"end": "2026-01-05T09:00:00Z"})),
    Change("closing a closed lease with equal values", lease(), _status(**CLOSED), CLOSED),
    Change(
        "another end of a closed lease",
        lease(),
        _status(end="2026-01-05T13:00:00Z"),
        CLOSED,
        says="written once",
    ),
    Change(
        "another closure reason of a closed lease",
        lease(),
        _status(closureReason="Failed"),
        CLOSED,
        says="written once",
    ),
    Change(
        "opening a closed lease", lease(), _status(end=None, closureReason=None), CLOSED, says="written once"
    ),
    Change("removal of the status of a closed lease", lease(), {"status": None}, CLOSED, says="written once"),
    Change("closing a lease without a reason", lease(), _status(end=CLOSED["end"]), says="closureReason"),
    Change("a closure reason without an end", lease(), _status(closureReason="Failed"), says="end"),
    Change(
        "closing a lease before its start",
        lease(),
        _status(**CLOSED | {"end": "2026-01-05T08:59:59Z"}),
        says="start",
    ),
    Change(
        "unknown closure reason", lease(), _status(**CLOSED | {"closureReason": "Whim"}), says="Completed"
    ),
]
