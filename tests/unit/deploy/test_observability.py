"""The dashboard and the alert rules use metrics that exist, and have descriptions."""

import re

import pytest

from jobtree.manager.metrics import METRICS
from tests.queries import alert_rules, metric_name, panel_queries, panels, selectors

LABELS = {metric.name: {*metric.labels} for metric in METRICS}
BUCKETS = {metric.name: {"+Inf", *(str(float(bucket)) for bucket in metric.buckets)} for metric in METRICS}
QUERIES = [*panel_queries(), *((rule["alert"], rule["expr"]) for rule in alert_rules())]
MATCHER = re.compile(r"([a-z]+)(=~|!=|!~|=)\"([^\"]*)\"")


@pytest.mark.parametrize(("title", "query"), QUERIES)
def test_query_uses_existing_metrics_labels_and_buckets(title: str, query: str) -> None:
    query_selectors = selectors(query)
    assert query_selectors, title
    for series, matchers in query_selectors:
        name = metric_name(series, {*LABELS})
        assert name in LABELS, f"{title}: there is no metric {series}"
        for label, _, value in MATCHER.findall(matchers):
            if label == "le":
                assert value in BUCKETS[name], f"{title}: {name} has no bucket {value}"
            else:
                assert label in LABELS[name], f"{title}: {name} has no label {label}"


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {metric_name(series, {*LABELS}) for _, query in panel_queries() for series, _ in selectors(query)}
    assert {*LABELS} - shown == set()


def test_panels_have_descriptions_and_do_not_overlap() -> None:
    places: dict[tuple[int, int], str] = {}
    for panel in panels():
        assert panel["description"]
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert x < 24
                assert (x, y) not in places, f"{panel['title']} covers {places[x, y]}"
                places[x, y] = panel["title"]
    assert len({panel["id"] for panel in panels()}) == len(panels())


@pytest.mark.parametrize("rule", alert_rules(), ids=lambda rule: rule["alert"])
def test_alert_has_a_severity_a_description_and_a_runbook(rule: dict[str, dict[str, str]]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert all(rule["annotations"][text] for text in ("summary", "description", "runbook"))
