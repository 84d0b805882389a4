"""Reads a page of metrics as a scraper does."""

from prometheus_client.parser import text_string_to_metric_families

Labels = tuple[str, ...]


def samples(page: bytes, name: str, *labels: str) -> dict[Labels, float]:
    """Returns every series of that name by the values of its labels, which must be ``labels``."""
    series: dict[Labels, float] = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            if sample.name == name:
                assert set(sample.labels) == set(labels), f"{name} has the labels {sorted(sample.labels)}"
                series[tuple(sample.labels[label] for label in labels)] = sample.value
    return series


def value(page: bytes, name: str) -> float:
    return samples(page, name)[()]


def nonzero(series: dict[Labels, float]) -> dict[Labels, float]:
    return {labels: number for labels, number in series.items() if number}
