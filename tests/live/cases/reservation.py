"""Reservations: written by Jobtree, and still nothing malformed gets in. SPEC section 2, third paragraph."""

from tests.live.cases.table import Accepted, Refused, RefusedByValidator
from tests.live.manifests import reservation

ACCEPTED = [
    Accepted(
        "a slice of 1,000 domains",
        reservation(
            intendedSlice={
                "domains": [
                    {
                        "domain": f"us-west/gpu-{n}/nv-a",
                        "gpus": 96,
                        "nodes": [f"gpu-{n}-{m}" for m in range(12)],
                    }
                    for n in range(1000)
                ]
            }
        ),
    ),
    Accepted("nothing known will make it start", reservation(earliestStart=None)),
    Accepted("a slice may be empty", reservation(intendedSlice={"domains": []})),
    Accepted("a gang of stages has members", reservation(members=["train", "eval"])),
]

REFUSED = [
    *(
        Refused(f"{field} is required", reservation(**{field: None}), f"spec.{field}", "[Rr]equired")
        for field in ("runRef", "flavor", "commitment")
    ),
    Refused("commitment is hex", reservation(commitment="xyz"), "spec.commitment", "should match"),
    Refused("commitment is lower-case", reservation(commitment="AB" * 32), "spec.commitment", "should match"),
    Refused(
        "earliestStart is a time", reservation(earliestStart="tomorrow"), "spec.earliestStart", "match|least"
    ),
    Refused(
        "promised GPUs are not negative",
        reservation(intendedSlice={"domains": [{"domain": "a", "gpus": -8}]}),
        "spec.intendedSlice.domains[0].gpus",
        "greater than.* 0",
    ),
    Refused("unknown fields", reservation(priority=1), "spec.priority", "unknown field"),
]

REFUSED_BY_VALIDATOR: list[RefusedByValidator] = []
