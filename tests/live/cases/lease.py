"""Leases: written by Jobtree, and still nothing malformed gets in. SPEC section 2, last paragraph."""

from tests.live.cases.table import Accepted, Refused, RefusedByValidator
from tests.live.manifests import lease

ACCEPTED = [
    Accepted("a lease of 100,000 GPUs", lease(slots=[f"gpu-a-{n:05}#0-7" for n in range(12_500)])),
    Accepted("a spare costs a quarter", lease(role="Spare", rate="0.25")),
    Accepted(
        "an opportunistic one costs nothing",
        lease(**{"class": "Opportunistic"}, role="Opportunistic", rate="0"),
    ),
    Accepted("a lease of several nodes", lease(slots=["gpu-a-01#0-7", "gpu-a-02#0", "gpu-a-02#2-3"])),
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
    Refused("exactly one payer", lease(payer={"owner": "org:ai"}), "spec.payer.budget", "[Rr]equired"),
    Refused("class is one of four", lease(**{"class": "Stolen"}), "spec.class", "Owned.*Opportunistic"),
    Refused("role is one of three", lease(role="Idle"), "spec.role", "Active.*Spare.*Opportunistic"),
    Refused("reason is one of seven", lease(reason="Whim"), "spec.reason", "Start.*Continue"),
    Refused("rate is a decimal string", lease(rate=0.25), "spec.rate", "string"),
    Refused("rate has no sign", lease(rate="-1"), "spec.rate", "should match"),
    Refused("rate counts thousandths", lease(rate="0.0001"), "spec.rate", "should match"),
    Refused("a lease has slots", lease(slots=[]), "spec.slots", "1"),
    Refused("slots have a number", lease(slots=["gpu-a-01"]), "spec.slots[0]", "should match"),
    Refused(
        "slots are named once", lease(slots=["gpu-a-01#0", "gpu-a-01#0"]), "spec.slots", "[Dd]uplicate|once"
    ),
    Refused("group counts from zero", lease(group=-1), "spec.group", "greater than.* 0"),
    Refused("unknown fields", lease(priority=1), "spec.priority", "unknown field"),
]

REFUSED_BY_VALIDATOR = [
    RefusedByValidator(
        "slots run backwards", lease(slots=["gpu-a-01#7-0"]), "spec.slots[0]", "before it begins"
    ),
    RefusedByValidator(
        "slots overlap", lease(slots=["gpu-a-01#0-3", "gpu-a-01#3-7"]), "spec.slots[1]", "only once"
    ),
]
