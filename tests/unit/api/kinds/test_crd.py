from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobtree.api.documents.document_stream import read_documents
from jobtree.api.kinds.crd import DEFINITIONS, Definition, custom_resource_definition, main
from tests.unit.api.samples import SAMPLES

COMMITTED = Path(__file__).parents[4] / "config" / "crd"
BOUNDS = {"string": "maxLength", "array": "maxItems"}

Schema = dict[str, Any]


def root_schema(definition: Definition) -> Schema:
    (version,) = custom_resource_definition(definition)["spec"]["versions"]
    root: Schema = version["schema"]["openAPIV3Schema"]
    return root


def walk(path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Yields this schema and every nested schema, except those that the API server defines."""
    yield path, schema
    for name, nested in schema.get("properties", {}).items():
        if (path, name) not in (("", "apiVersion"), ("", "kind"), ("", "metadata")):
            yield from walk(f"{path}.{name}", nested)
    for name in ("items", "additionalProperties"):
        if name in schema:
            yield from walk(f"{path}.{name}", schema[name])


SCHEMAS = [
    (f"{definition.plural}{path}", schema)
    for definition in DEFINITIONS
    for path, schema in walk("", root_schema(definition))
]


def test_committed_definitions_are_generated(tmp_path: Path) -> None:
    main(str(tmp_path))
    generated = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert {path.name: path.read_text() for path in COMMITTED.iterdir()} == generated, "run make crds"


def test_committed_definitions_can_be_read() -> None:
    for definition in DEFINITIONS:
        text = (COMMITTED / f"{definition.plural}.yaml").read_text()
        (document,) = read_documents(text, "crd")
        assert document.body == custom_resource_definition(definition)


def test_definitions_have_names_and_scopes() -> None:
    specs = [custom_resource_definition(definition)["spec"] for definition in DEFINITIONS]
    assert [
        (spec["names"]["kind"], spec["names"]["plural"], spec["names"]["singular"], spec["scope"])
        for spec in specs
    ] == [
        ("Budget", "budgets", "budget", "Cluster"),
        ("Run", "runs", "run", "Namespaced"),
        ("Reservation", "reservations", "reservation", "Namespaced"),
        ("Lease", "gpuleases", "gpulease", "Cluster"),
    ]
    assert specs[3]["names"]["shortNames"] == ["gl"]
    assert all(spec["versions"][0]["subresources"] == {"status": {}} for spec in specs)


@pytest.mark.parametrize(("path", "schema"), SCHEMAS, ids=[path for path, _ in SCHEMAS])
def test_schema_has_a_type_and_bounds(path: str, schema: Schema) -> None:
    if "x-kubernetes-int-or-string" in schema:
        return
    assert schema["type"] in ("object", "array", "string", "integer", "boolean"), path
    bound = BOUNDS.get(schema["type"])
    assert bound is None or bound in schema or "enum" in schema, path
    if schema["type"] == "integer":
        assert {"minimum", "maximum"} <= schema.keys()
    if "additionalProperties" in schema:
        assert "maxProperties" in schema
    assert "nullable" not in schema
    assert "$ref" not in schema
    assert "\\Z" not in schema.get("pattern", "")


@pytest.mark.parametrize(("path", "schema"), SCHEMAS, ids=[path for path, _ in SCHEMAS])
def test_rule_has_a_message_and_list_has_a_type(path: str, schema: Schema) -> None:
    for rule in schema.get("x-kubernetes-validations", []):
        assert rule["message"].strip(), path
        assert "\n" not in rule["rule"] + rule["message"]
    if schema["type"] == "array" if "type" in schema else False:
        assert path.endswith("finalizers") or "x-kubernetes-list-type" in schema


def test_rules_use_features_of_kubernetes_1_27_only() -> None:
    for path, schema in SCHEMAS:
        for rule in schema.get("x-kubernetes-validations", []):
            assert rule.keys() == {"rule", "message"}, path
            assert ".?" not in rule["rule"], path
            assert "optional" not in rule["rule"], path


def test_only_spec_has_defaults() -> None:
    for path, schema in SCHEMAS:
        assert "default" not in schema or ".spec" in path, path
    assert all("default" not in schema for path, schema in SCHEMAS if ".status" in path)
    defaults = {path: schema["default"] for path, schema in SCHEMAS if "default" in schema}
    assert defaults["budgets.spec.envelopes.items.sharing"] == "family"
    assert defaults["runs.spec.runtime"] == {}
    assert defaults["runs.spec.runtime.maxRestarts"] == 3
    assert defaults["runs.spec.runtime.requeue"] is True
    assert defaults["runs.spec.locality.allowCrossGroupSpread"] is True
    assert defaults["runs.spec.follow.upstreamFailureGrace"] == "30m"


def test_parts_that_only_jobtree_writes_are_atomic() -> None:
    atomic = {path for path, schema in SCHEMAS if schema.get("x-kubernetes-map-type") == "atomic"}
    statuses = {f"{definition.plural}.status" for definition in DEFINITIONS}
    assert atomic == statuses | {"gpuleases.spec", "reservations.spec"}


def test_enums_are_in_the_order_of_the_specification() -> None:
    by_path = dict(SCHEMAS)
    assert by_path["gpuleases.spec.class"]["enum"] == ["Owned", "Shared", "Borrowed", "Opportunistic"]
    assert by_path["runs.spec.runtime.onResize"]["enum"] == ["Restart", "Rendezvous"]


@pytest.mark.parametrize(
    "document", SAMPLES, ids=lambda document: f"{document['kind']}-{document['metadata']['name']}"
)
def test_schema_has_every_field_of_the_samples(document: dict[str, Any]) -> None:
    (definition,) = (definition for definition in DEFINITIONS if document["kind"] == definition.kind.KIND)
    assert unknown_fields(document["spec"], root_schema(definition)["properties"]["spec"]) == []


def unknown_fields(value: object, schema: Schema) -> list[str]:
    if isinstance(value, list):
        return [field for item in value for field in unknown_fields(item, schema["items"])]
    if not isinstance(value, dict) or "properties" not in schema:
        return []
    unknown = [field for field in value if field not in schema["properties"]]
    return unknown + [
        nested
        for field, item in value.items()
        if field in schema["properties"]
        for nested in unknown_fields(item, schema["properties"][field])
    ]
