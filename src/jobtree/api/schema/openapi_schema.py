"""Derives the OpenAPI schema of a struct, in the form of a CustomResourceDefinition.

The schema follows from the annotations that msgspec enforces (bounds, patterns, enums, defaults, required
fields, descriptions) and from the CEL rules in ``RULES`` of a class. Everything is bounded and nothing may be
null.
"""

import inspect
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta

from jobtree.api.schema.cel_rules import validations
from jobtree.api.schema.packed_template import PackedTemplate

Schema = dict[str, Any]
Describe = Callable[[type[msgspec.Struct], str], str]

_BOUNDS = {
    str: {"min_length": "minLength", "max_length": "maxLength"},
    int: {"ge": "minimum", "le": "maximum"},
    tuple: {"min_length": "minItems", "max_length": "maxItems"},
    dict: {"min_length": "minProperties", "max_length": "maxProperties"},
}


def schema_of(annotation: Any, *, defaults: bool, describe: Describe) -> Schema:  # noqa: ANN401  annotations have no common type
    """Returns the schema of a type. With ``defaults``, for ``spec``, the server fills in defaults.

    ``describe`` returns the meaning of a field of a struct.
    """
    annotation, metas = _unwrap(annotation)
    origin = get_origin(annotation) or annotation
    if isinstance(origin, type) and issubclass(origin, msgspec.Struct):
        schema = _object(origin, defaults=defaults, describe=describe)
    elif origin is tuple:
        schema = _array(get_args(annotation)[0], defaults=defaults, describe=describe)
    elif origin is dict:
        schema = _map(get_args(annotation)[1], defaults=defaults, describe=describe)
    elif origin is PackedTemplate:
        schema = _map(Any, defaults=defaults, describe=describe)
    elif origin is Literal:
        schema = {"type": "string", "enum": list(get_args(annotation))}
    else:
        schema = {"type": {str: "string", int: "integer", bool: "boolean"}[origin]}
        if origin is int:
            schema["format"] = "int64"
    for meta in metas:
        _bound(schema, origin, meta)
    return schema


def _unwrap(annotation: Any) -> tuple[Any, list[Meta]]:  # noqa: ANN401
    """Returns the type inside ``Annotated`` and ``| None``, with its ``Meta`` annotations."""
    metas: list[Meta] = []
    while True:
        if get_origin(annotation) is Annotated:
            annotation, *annotations = get_args(annotation)
            metas += [meta for meta in annotations if isinstance(meta, Meta)]
        elif get_origin(annotation) in (Union, UnionType):
            (annotation,) = (member for member in get_args(annotation) if member is not NoneType)
        else:
            return annotation, metas


def _bound(schema: Schema, origin: Any, meta: Meta) -> None:  # noqa: ANN401
    for name, keyword in _BOUNDS.get(origin, {}).items():
        if getattr(meta, name) is not None:
            schema[keyword] = getattr(meta, name)
    if meta.pattern is not None:
        schema["pattern"] = meta.pattern.replace(r"\Z", "$")
    if meta.description is not None:
        schema["description"] = meta.description[0].upper() + meta.description[1:] + "."
    schema.update(meta.extra_json_schema or {})


def _object(kind: type[msgspec.Struct], *, defaults: bool, describe: Describe) -> Schema:
    properties: Schema = {}
    required = []
    for field in msgspec.structs.fields(kind):
        property_schema = schema_of(field.type, defaults=defaults, describe=describe)
        format_of_value = property_schema.get("description", "")
        property_schema["description"] = f"{describe(kind, field.encode_name)} {format_of_value}".rstrip()
        if field.required:
            required.append(field.encode_name)
        elif defaults:
            _set_default(property_schema, field.default)
        properties[field.encode_name] = property_schema
    schema: Schema = {"type": "object", **_described(kind), "properties": properties}
    if required:
        schema["required"] = required
    rules = getattr(kind, "RULES", ())
    if rules:
        schema["x-kubernetes-validations"] = validations(rules)
    return schema


def _set_default(schema: Schema, default: object) -> None:
    """Sets the default of a field. That of a struct is an empty object, which the server then fills in."""
    if isinstance(default, msgspec.Struct):
        schema["default"] = {}
    elif isinstance(default, (bool, int, str)):
        schema["default"] = default


def _described(kind: type) -> Schema:
    text = kind.__dict__.get("__doc__")
    return {"description": inspect.cleandoc(text)} if text else {}


def _array(item: Any, *, defaults: bool, describe: Describe) -> Schema:  # noqa: ANN401
    items = schema_of(item, defaults=defaults, describe=describe)
    key = next((key for key in ("name", "type") if key in items.get("required", ())), None)
    if items["type"] == "object" and key:
        merged = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}
        return {"type": "array", **merged, "items": items}
    return {"type": "array", "x-kubernetes-list-type": "atomic", "items": items}


def _map(value: Any, *, defaults: bool, describe: Describe) -> Schema:  # noqa: ANN401
    if value is Any:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {"type": "object", "additionalProperties": schema_of(value, defaults=defaults, describe=describe)}
