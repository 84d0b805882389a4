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


def schema(definition: Definition) -> Schema:
    (version,) = custom_resource_definition(definition)["spec"]["versions"]
    root: Schema = version["schema"]["openAPIV3Schema"]
    return root


def walk(path: str, one: Schema) -> Iterator[tuple[str, Schema]]:
    """Every schema below this one, apart from what the API server itself defines."""
    yield path, one
    for name, below in one.get("properties", {}).items():
        if (path, name) not in (("", "apiVersion"), ("", "kind"), ("", "metadata")):
            yield from walk(f"{path}.{name}", below)
    for name in ("items", "additionalProperties"):
        if name in one:
            yield from walk(f"{path}.{name}", one[name])


EVERY = [(f"{one.plural}{path}", below) for one in DEFINITIONS for path, below in walk("", schema(one))]


def test_what_is_committed_is_what_is_generated(tmp_path: Path) -> None:
    main(str(tmp_path))
    generated = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert {path.name: path.read_text() for path in COMMITTED.iterdir()} == generated, "run make crds"


def test_the_files_read_back_as_they_were_generated() -> None:
    for definition in DEFINITIONS:
        text = (COMMITTED / f"{definition.plural}.yaml").read_text()
        assert [one.body for one in read_documents(text, "crd")] == [custom_resource_definition(definition)]


def test_names_and_scopes() -> None:
    specs = [custom_resource_definition(definition)["spec"] for definition in DEFINITIONS]
    assert [
        (one["names"]["kind"], one["names"]["plural"], one["names"]["singular"], one["scope"])
        for one in specs
    ] == [
        ("Budget", "budgets", "budget", "Cluster"),
        ("Run", "runs", "run", "Namespaced"),
        ("Reservation", "reservations", "reservation", "Namespaced"),
        ("Lease", "gpuleases", "gpulease", "Cluster"),
    ]
    assert specs[3]["names"]["shortNames"] == ["gl"]
    assert all(one["versions"][0]["subresources"] == {"status": {}} for one in specs)


@pytest.mark.parametrize(("path", "one"), EVERY, ids=[path for path, _ in EVERY])
def test_every_part_is_typed_and_bounded(path: str, one: Schema) -> None:
    if "x-kubernetes-int-or-string" in one:
        return
    assert one["type"] in ("object", "array", "string", "integer", "boolean"), path
    bound = BOUNDS.get(one["type"])
    assert bound is None or bound in one or "enum" in one, path
    if one["type"] == "integer":
        assert {"minimum", "maximum"} <= one.keys()
    if "additionalProperties" in one:
        assert "maxProperties" in one
    assert "nullable" not in one
    assert "$ref" not in one
    assert "\\Z" not in one.get("pattern", "")


@pytest.mark.parametrize(("path", "one"), EVERY, ids=[path for path, _ in EVERY])
def test_rules_have_messages_and_lists_a_kind(path: str, one: Schema) -> None:
    for rule in one.get("x-kubernetes-validations", []):
        assert rule["message"].strip(), path
        assert "\n" not in rule["rule"] + rule["message"]
    if one["type"] == "array" if "type" in one else False:
        assert path.endswith("finalizers") or "x-kubernetes-list-type" in one


def test_rules_use_nothing_that_kubernetes_1_27_does_not_know() -> None:
    for path, one in EVERY:
        for rule in one.get("x-kubernetes-validations", []):
            assert rule.keys() == {"rule", "message"}, path
            assert ".?" not in rule["rule"], path
            assert "optional" not in rule["rule"], path


def test_only_what_people_write_has_defaults() -> None:
    for path, one in EVERY:
        assert "default" not in one or ".spec" in path, path
    assert all("default" not in one for path, one in EVERY if ".status" in path)
    defaults = {path: one["default"] for path, one in EVERY if "default" in one}
    assert defaults["budgets.spec.envelopes.items.sharing"] == "family"
    assert defaults["runs.spec.runtime"] == {}
    assert defaults["runs.spec.runtime.maxRestarts"] == 3
    assert defaults["runs.spec.runtime.requeue"] is True
    assert defaults["runs.spec.locality.allowCrossGroupSpread"] is True
    assert defaults["runs.spec.follow.upstreamFailureGrace"] == "30m"


def test_what_jobtree_alone_writes_is_one_piece_to_the_server() -> None:
    whole = {path for path, one in EVERY if one.get("x-kubernetes-map-type") == "atomic"}
    statuses = {f"{one.plural}.status" for one in DEFINITIONS}
    assert whole == statuses | {"gpuleases.spec", "reservations.spec"}


def test_enums_are_in_the_order_of_the_specification() -> None:
    by_path = dict(EVERY)
    assert by_path["gpuleases.spec.class"]["enum"] == ["Owned", "Shared", "Borrowed", "Opportunistic"]
    assert by_path["runs.spec.runtime.onResize"]["enum"] == ["Restart", "Rendezvous"]


@pytest.mark.parametrize("document", SAMPLES, ids=lambda one: f"{one['kind']}-{one['metadata']['name']}")
def test_the_schema_knows_every_field_of_the_samples(document: dict[str, Any]) -> None:
    (definition,) = (one for one in DEFINITIONS if document["kind"] == one.kind.KIND)
    assert unknown(document["spec"], schema(definition)["properties"]["spec"]) == []


def unknown(value: object, one: Schema) -> list[str]:
    if isinstance(value, list):
        return [field for item in value for field in unknown(item, one["items"])]
    if not isinstance(value, dict) or "properties" not in one:
        return []
    found = [field for field in value if field not in one["properties"]]
    return found + [
        deeper
        for field, item in value.items()
        if field in one["properties"]
        for deeper in unknown(item, one["properties"][field])
    ]
