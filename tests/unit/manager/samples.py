"""Metrics as a scraper reads them, for tests to compare with the cluster."""

from prometheus_client.parser import text_string_to_metric_families

Labels = tuple[str, ...]


def samples(page: bytes, name: str, *labels: str) -> dict[Labels, float]:
    """Every series of that name, by the values of these labels, which must be all that it has."""
    found: dict[Labels, float] = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            if sample.name == name:
                assert set(sample.labels) == set(labels), f"{name} has the labels {sorted(sample.labels)}"
                found[tuple(sample.labels[label] for label in labels)] = sample.value
    return found


def value(page: bytes, name: str) -> float:
    return samples(page, name)[()]


def nonzero(found: dict[Labels, float]) -> dict[Labels, float]:
    return {labels: number for labels, number in found.items() if number}
