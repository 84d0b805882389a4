"""The template of a Run is kept as JSON: large ones take little more memory than their size."""

import tracemalloc
from typing import Any

import msgspec
import pytest

from jobtree.api.kinds.run import Run
from jobtree.api.schema.packed_template import LARGE_BYTES, PackedTemplate
from jobtree.api.schema.problems import InputError
from jobtree.api.validation.object_parser import parse_object, to_document
from jobtree.kube.watch.object_decoder import read_run
from tests.unit.core.build import run


def template_of(variables: int) -> dict[str, Any]:
    env = [{"name": f"VARIABLE_{number}", "value": f"value {number}"} for number in range(variables)]
    return {"spec": {"containers": [{"name": "main", "image": "train", "env": env}]}}


def encoded_run(template: dict[str, Any]) -> bytes:
    document = to_document(run("r", "org", 8, template=template))
    document["metadata"]["resourceVersion"] = "1"
    return msgspec.json.encode(document)


@pytest.mark.parametrize("variables", [0, 1, 10_000])
def test_template_comes_back_as_it_was_written(variables: int) -> None:
    template = template_of(variables)
    packed = read_run(encoded_run(template)).value.spec.template
    assert packed is not None
    assert (packed.document(), packed.size > LARGE_BYTES) == (template, variables > 100)
    assert to_document(read_run(encoded_run(template)).value)["spec"]["template"] == template


def test_order_of_keys_makes_no_other_template() -> None:
    assert PackedTemplate({"a": 1, "b": {"c": 2, "d": 3}}) == PackedTemplate({"b": {"d": 3, "c": 2}, "a": 1})
    assert PackedTemplate({"a": 1}) != PackedTemplate({"a": 2})


def test_large_template_takes_no_more_memory_than_its_size() -> None:
    """Decoded, it takes many times as much; so do twelve Runs of 1.26 MB with a gigabyte and less."""
    encoded = encoded_run(template_of(25_000))
    assert len(encoded) > 1_000_000
    read_run(encoded)
    tracemalloc.start()
    try:
        stored = read_run(encoded)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert stored.value.metadata.name == "r"
    assert kept < len(encoded)


@pytest.mark.parametrize("template", ["text", ["a", "list"], 7])
def test_template_that_is_no_mapping_is_refused_with_its_field(template: object) -> None:
    document = to_document(run("r", "org", 8))
    document["spec"]["template"] = template
    with pytest.raises(InputError, match=r"spec\.template.*must be a mapping"):
        parse_object(document, "test")


def test_null_template_counts_as_absent() -> None:
    document = to_document(run("r", "org", 8))
    document["spec"]["template"] = None
    parsed = parse_object(document, "test")
    assert isinstance(parsed, Run)
    assert parsed.spec.template is None
