"""Reads the queries of the dashboard and of the alert rules."""

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
    all_panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return [panel for panel in all_panels if panel["type"] != "row"]


def panel_queries(window: str = "5m") -> Iterator[tuple[str, str]]:
    """Yields the title and each query of every panel, with all values selected."""
    for panel in panels():
        for target in panel["targets"]:
            query = re.sub(r"\$__(rate_interval|range)", window, target["expr"])
            yield panel["title"], re.sub(r"\$(flavor|owner|domain)\b", ".*", query)


def alert_rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def selectors(query: str) -> list[tuple[str, str]]:
    """Returns the name of every series in a query, with its matchers in braces or an empty text."""
    return SELECTOR.findall(query)


def metric_name(series: str, metrics: set[str]) -> str:
    """Returns the metric of a series; a histogram has three kinds of series."""
    for part in PARTS:
        if series not in metrics and series.endswith(part):
            return series.removesuffix(part)
    return series
