"""Formats the risks of a Run: promised starts that might stop it (R11)."""

from collections.abc import Iterator, Sequence

from jobtree.api.schema.quantities import MILLI, format_milli, parse_milli, parse_time
from jobtree.cli.views.place_names import Places
from jobtree.client.lottery.risk_entries import RiskEntry
from jobtree.messages.wording import age


def risk_lines(places: Places, risks: Sequence[RiskEntry]) -> Iterator[str]:
    """Yields a line for each risk: when, for which Reservation, and the kill probability."""
    if risks:
        yield "At risk:"
    for risk in risks:
        ahead = age(parse_time(risk.at) - places.world.now)
        outcome = outcome_text(risk.kill_probability)
        yield f"  {risk.at} (in {ahead})  reservation {risk.reservation}: {outcome}"
    if len(risks) > 1:
        total = min(MILLI, sum(parse_milli(risk.kill_probability) for risk in risks))
        yield f"  in all: {outcome_text(format_milli(total))}"


def outcome_text(probability: str) -> str:
    """Returns what a kill probability means for the Run."""
    match probability:
        case "0":
            return "it gives up spares or GPUs, but is not stopped"
        case "1":
            return "it is certain to be stopped (kill probability 1)"
    return f"it is stopped with probability {probability}"


def worst_risk_text(risks: Sequence[RiskEntry]) -> str:
    """Returns the risk with the highest kill probability as one clause; empty without risks."""
    if not risks:
        return ""
    worst = max(risks, key=lambda risk: (float(risk.kill_probability), risk.at))
    return f"at risk: {worst.reservation} at {worst.at}, kill probability {worst.kill_probability}"
