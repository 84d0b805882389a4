"""JSON schemas of the kinds, for editors: the schema of the CRD in the dialect that they read."""

from typing import Any

from jobtree.api.kinds.crd import DEFINITIONS, root_schema
from jobtree.api.kinds.field_sentences import sentence
from jobtree.api.kinds.run_plan import PLAN_API_VERSION, RunPlan
from jobtree.api.schema.object_meta import API_VERSION
from jobtree.api.schema.openapi_schema import schema_of

DIALECT = "https://json-schema.org/draft/2020-12/schema"
API_VERSIONS = {definition.kind.KIND: API_VERSION for definition in DEFINITIONS} | {
    RunPlan.KIND: PLAN_API_VERSION
}
KIND_NAMES = tuple(API_VERSIONS)


def json_schema(kind: str) -> dict[str, Any]:
    """Returns the schema of a kind by its name. Fields that it does not have are refused."""
    schema = strict(_schema(kind))
    properties = schema["properties"]
    properties["apiVersion"] = {"const": API_VERSIONS[kind]}
    properties["kind"] = {"const": kind}
    if kind != RunPlan.KIND:
        properties["metadata"] = {"type": "object", "required": ["name"]}
    required = sorted({"apiVersion", "kind", "metadata", *schema.get("required", ())})
    return {"$schema": DIALECT, "title": kind, **schema, "required": required}


def _schema(kind: str) -> dict[str, Any]:
    if kind == RunPlan.KIND:
        return schema_of(RunPlan, defaults=False, describe=sentence)
    return root_schema(next(definition for definition in DEFINITIONS if kind == definition.kind.KIND))


def strict(schema: Any) -> Any:  # noqa: ANN401  a schema, or a part of one
    """Returns a copy without the words of Kubernetes, in which objects have no other fields than declared."""
    if isinstance(schema, list):
        return list(map(strict, schema))
    if not isinstance(schema, dict):
        return schema
    words = {name: strict(value) for name, value in schema.items() if not name.startswith("x-kubernetes-")}
    if schema.get("type") == "object" and isinstance(schema.get("properties"), dict):
        words.setdefault("additionalProperties", False)
    return words
