"""What threatens a Run: promises to others whose start might stop it (R11)."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jobtree.api.schema.quantities import parse_time
from jobtree.cli.shell.wording import age
from jobtree.cli.views.place_names import Places


class RiskEntry(NamedTuple):
    reservation: str
    at: str
    kill_probability: str


def risks_of(body: dict[str, Any]) -> list[RiskEntry]:
    """The risks in the status of a Run's document."""
    found = (body.get("status") or {}).get("risk") or []
    return [RiskEntry(one["reservation"], one["at"], one["killProbability"]) for one in found]


def threats(places: Places, risks: Sequence[RiskEntry]) -> Iterator[str]:
    """A line for each: when, for which reservation, how likely it is to be stopped."""
    if risks:
        yield "At risk:"
    for risk in risks:
        ahead = age(parse_time(risk.at) - places.world.now)
        outcome = outcome_text(risk.kill_probability)
        yield f"  {risk.at} (in {ahead})  reservation {risk.reservation}: {outcome}"


def outcome_text(probability: str) -> str:
    """What is likely to come of it."""
    match probability:
        case "0":
            return "it gives up spares or GPUs, but is not stopped"
        case "1":
            return "it is stopped then, for certain (kill probability 1)"
    return f"it is stopped with probability {probability}"


def short(risks: Sequence[RiskEntry]) -> str:
    """For a line among others: the most likely one that comes first."""
    if not risks:
        return ""
    worst = max(risks, key=lambda risk: (float(risk.kill_probability), risk.at))
    return f"at risk: {worst.reservation} at {worst.at}, kill probability {worst.kill_probability}"
