"""Manifests of Leases, which the API server checks although only Jobtree writes them (section 2)."""

from tests.live.crds.cases.case_types import Accepted, Refused, RefusedByValidator
from tests.live.crds.manifests import lease

ACCEPTED = [
    Accepted("a lease of 100,000 GPUs", lease(slots=[f"gpu-a-{n:05}#0-7" for n in range(12_500)])),
    Accepted("a spare with rate 0.25", lease(role="Spare", rate="0.25")),
    Accepted(
        "an opportunistic lease with rate 0",
        lease(**{"class": "Opportunistic"}, role="Opportunistic", rate="0"),
    ),
    Accepted("a lease on several nodes", lease(slots=["gpu-a-01#0-7", "gpu-a-02#0", "gpu-a-02#2-3"])),
    *(
        Accepted(f"opened for {reason}", lease(reason=reason))
        for reason in ("Start", "Grow", "Swap", "Recover", "Repay", "Demote", "Continue")
    ),
]

REFUSED = [
    *(
        Refused(f"{field} is required", lease(**{field: None}), f"spec.{field}", "[Rr]equired")
        for field in (
            "runRef",
            "owner",
            "payer",
            "class",
            "role",
            "group",
            "flavor",
            "slots",
            "start",
            "rate",
            "reason",
        )
    ),
    Refused("a payer names its budget", lease(payer={"owner": "org:ai"}), "spec.payer.budget", "[Rr]equired"),
    Refused(
        "class has one of four values", lease(**{"class": "Stolen"}), "spec.class", "Owned.*Opportunistic"
    ),
    Refused("role has one of three values", lease(role="Idle"), "spec.role", "Active.*Spare.*Opportunistic"),
    Refused("reason has one of seven values", lease(reason="Whim"), "spec.reason", "Start.*Continue"),
    Refused("rate is a decimal string", lease(rate=0.25), "spec.rate", "string"),
    Refused("rate is not negative", lease(rate="-1"), "spec.rate", "should match"),
    Refused("rate has at most three decimals", lease(rate="0.0001"), "spec.rate", "should match"),
    Refused("a lease has slots", lease(slots=[]), "spec.slots", "1"),
    Refused("a slot has a number", lease(slots=["gpu-a-01"]), "spec.slots[0]", "should match"),
    Refused(
        "slots are named once", lease(slots=["gpu-a-01#0", "gpu-a-01#0"]), "spec.slots", "[Dd]uplicate|once"
    ),
    Refused("group is not negative", lease(group=-1), "spec.group", "greater than.* 0"),
    Refused("a lease has no unknown fields", lease(priority=1), "spec.priority", "unknown field"),
]

REFUSED_BY_VALIDATOR = [
    RefusedByValidator(
        "a slot range does not run backwards",
        lease(slots=["gpu-a-01#7-0"]),
        "spec.slots[0]",
        "before it begins",
    ),
    RefusedByValidator(
        "slots do not overlap", lease(slots=["gpu-a-01#0-3", "gpu-a-01#3-7"]), "spec.slots[1]", "only once"
    ),
]
