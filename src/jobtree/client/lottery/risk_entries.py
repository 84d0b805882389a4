"""Reads the risks of a Run: promised starts that might stop it (R11)."""

from typing import Any, NamedTuple


class RiskEntry(NamedTuple):
    reservation: str
    at: str
    kill_probability: str


def risks_of(body: dict[str, Any]) -> list[RiskEntry]:
    """Returns the risks in the status of a Run."""
    risks = (body.get("status") or {}).get("risk") or []
    return [RiskEntry(risk["reservation"], risk["at"], risk["killProbability"]) for risk in risks]
