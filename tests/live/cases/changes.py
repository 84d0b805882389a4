"""Changes to objects that exist: what SPEC section 2 says may change, and what never does."""

from dataclasses import dataclass, field
from typing import Any

from tests.live.manifests import Manifest, budget, elastic, envelope, gang, lease, reservation, run

ALLOCATION = {"since": "2026-01-05T09:00:00Z", "gpusPerPod": 8}
RUNNING = {"phase": "Running", "allocation": ALLOCATION}
CLOSED = {"end": "2026-01-05T12:00:00Z", "closureReason": "Completed"}
ELASTIC = run(resources=gang(128), malleable=elastic(96, 160, 32), runtime={"maxDuration": "2h"})


@dataclass(frozen=True)
class Change:
    """A merge patch to an object of this status. ``says`` is what a refusal must say; none: it is allowed."""

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
    Change("an envelope is retuned", budget(), _spec(envelopes=[envelope(concurrency=64)])),
    # Runs
    Change("the owner of a waiting run", run(), _spec(owner="org:vision"), says="owner never changes"),
    Change(
        "the owner of a running run", run(), _spec(owner="org:vision"), RUNNING, says="owner never changes"
    ),
    Change("a waiting run is edited", run(), _spec(resources={"totalGPUs": 16}, spares=1)),
    Change(
        "a waiting run is edited into nonsense",
        ELASTIC,
        _spec(resources={"totalGPUs": 100}),
        says="step",
    ),
    Change("a finished run", run(), _spec(spares=1), {"phase": "Completed"}),
    Change(
        "the width of a running run",
        ELASTIC,
        _spec(resources={"totalGPUs": 96}),
        RUNNING,
        says="only.*may change",
    ),
    Change("spares of a running run", run(), _spec(spares=1), RUNNING, says="only.*may change"),
    Change(
        "a run that was admitted a moment ago",
        run(),
        _spec(spares=1),
        {"phase": "Pending", "allocation": ALLOCATION},
        says="only.*may change",
    ),
    Change("the desired width", ELASTIC, _spec(malleable={"desiredTotalGPUs": 96}), RUNNING),
    Change(
        "a desired width that is none",
        ELASTIC,
        _spec(malleable={"desiredTotalGPUs": 100}),
        RUNNING,
        says="desired.*step|step.*desired",
    ),
    Change(
        "the steps of a running run",
        ELASTIC,
        _spec(malleable={"stepGPUs": 64}),
        RUNNING,
        says="only.*may change",
    ),
    Change("a lower maxDuration", ELASTIC, _spec(runtime={"maxDuration": "90m"}), RUNNING),
    Change("a first maxDuration", run(), _spec(runtime={"maxDuration": "90m"}), RUNNING),
    Change("the same maxDuration in other words", ELASTIC, _spec(runtime={"maxDuration": "120m"}), RUNNING),
    Change(
        "a higher maxDuration",
        ELASTIC,
        _spec(runtime={"maxDuration": "3h"}),
        RUNNING,
        says="only.*may change",
    ),
    Change("no maxDuration", ELASTIC, _spec(runtime={"maxDuration": None}), RUNNING, says="only.*may change"),
    Change(
        "another checkpoint", ELASTIC, _spec(runtime={"checkpoint": "1m"}), RUNNING, says="only.*may change"
    ),
    Change("a phase nobody knows", run(), _status(phase="Dreaming"), says="Pending.*Failed"),
    Change(
        "odds that are no decimal string",
        run(),
        _status(risk=[{"reservation": "other-1", "at": "2026-01-05T09:00:00Z", "killProbability": 0.5}]),
        says="string",
    ),
    Change("a status nobody knows", run(), _status(mood="good"), says="unknown field"),
    # Reservations
    Change("a promise moves", reservation(), _spec(earliestStart="2026-01-05T11:00:00Z")),
    Change("a promise is withdrawn", reservation(), _spec(earliestStart=None)),
    Change("a slice moves", reservation(), _spec(intendedSlice={"domains": []})),
    Change("whose promise it is", reservation(), _spec(runRef={"name": "other"}), says="earliestStart"),
    Change("the commitment", reservation(), _spec(commitment="cd" * 32), says="earliestStart"),
    Change("the flavor promised", reservation(), _spec(flavor="A100-40GB"), says="earliestStart"),
    Change("a promise is kept", reservation(), _status(state="Activated"), {"state": "Pending"}),
    Change("a state nobody knows", reservation(), _status(state="Broken"), says="Pending.*Cancelled"),
    Change(
        "a remedy nobody knows",
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
    Change("a lease is closed", lease(), _status(**CLOSED)),
    Change("at once", lease(), _status(**CLOSED | {"end": "2026-01-05T09:00:00Z"})),
    Change("a lease is closed again, alike", lease(), _status(**CLOSED), CLOSED),
    Change("when it ended", lease(), _status(end="2026-01-05T13:00:00Z"), CLOSED, says="written once"),
    Change("why it ended", lease(), _status(closureReason="Failed"), CLOSED, says="written once"),
    Change(
        "a lease is opened again", lease(), _status(end=None, closureReason=None), CLOSED, says="written once"
    ),
    Change("status is taken away", lease(), {"status": None}, CLOSED, says="written once"),
    Change("a lease ends for no reason", lease(), _status(end=CLOSED["end"]), says="closureReason"),
    Change("a reason without an end", lease(), _status(closureReason="Failed"), says="end"),
    Change(
        "a lease ends before it starts",
        lease(),
        _status(**CLOSED | {"end": "2026-01-05T08:59:59Z"}),
        says="start",
    ),
    Change("a reason nobody knows", lease(), _status(**CLOSED | {"closureReason": "Whim"}), says="Completed"),
]
