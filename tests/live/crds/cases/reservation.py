"""Manifests of Reservations, which the API server checks although only Jobtree writes them (section 2)."""

from tests.live.crds.cases.case_types import Accepted, Refused, RefusedByValidator
from tests.live.crds.manifests import reservation

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
    Accepted("a promise may have no date", reservation(earliestStart=None)),
    Accepted("a slice may be empty", reservation(intendedSlice={"domains": []})),
    Accepted("a gang of stages has members", reservation(members=["train", "eval"])),
]

REFUSED = [
    *(
        Refused(f"{field} is required", reservation(**{field: None}), f"spec.{field}", "[Rr]equired")
        for field in ("runRef", "flavor", "commitment")
    ),
    Refused("commitment is hex", reservation(commitment="xyz"), "spec.commitment", "should match"),
    Refused("commitment is lower case", reservation(commitment="AB" * 32), "spec.commitment", "should match"),
    Refused(
        "earliestStart is a time", reservation(earliestStart="tomorrow"), "spec.earliestStart", "match|least"
    ),
    Refused(
        "promised GPUs are not negative",
        reservation(intendedSlice={"domains": [{"domain": "a", "gpus": -8}]}),
        "spec.intendedSlice.domains[0].gpus",
        "greater than.* 0",
    ),
    Refused("a reservation has no unknown fields", reservation(priority=1), "spec.priority", "unknown field"),
]

REFUSED_BY_VALIDATOR: list[RefusedByValidator] = []
