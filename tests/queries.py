"""The queries of the dashboard and the alert rules, as tests read them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).parents[1]
DASHBOARD = REPOSITORY / "deploy" / "grafana" / "dashboards" / "observability.json"
ALERTS = REPOSITORY / "deploy" / "prometheus" / "alerts.yaml"
SELECTOR = re.compile(r"(jobtree_[a-z_]+)(\{[^}]*\})?")
PARTS = ("_bucket", "_count", "_sum")


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def panel_queries(window: str = "5m") -> Iterator[tuple[str, str]]:
    """Title and query of every panel, with everything chosen and that window."""
    for panel in panels():
        for target in panel["targets"]:
            query = re.sub(r"\$__(rate_interval|range)", window, target["expr"])
            yield panel["title"], re.sub(r"\$(flavor|owner|domain)\b", ".*", query)


def alert_rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def selectors(query: str) -> list[tuple[str, str]]:
    """Every series that a query asks for: its name, and its matchers in braces (or nothing)."""
    return SELECTOR.findall(query)


def metric_name(series: str, known: set[str]) -> str:
    """The metric that a series belongs to: histograms have three kinds of them."""
    for part in PARTS:
        if series not in known and series.endswith(part):
            return series.removesuffix(part)
    return series
