"""Converts a raw document to a struct, and reports every problem of a document that does not fit.

msgspec converts fast and stops at the first problem. After an error the document is checked again along the
same types, which is slow, to collect every problem with its path, its value and its rule. A null counts as
absent.
"""

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from jobtree.api.schema.packed_template import pack
from jobtree.api.schema.problems import ABSENT, InputError, Problem

T = TypeVar("T")


def decode_struct(document: object, kind: type[T], where: str) -> T:
    """Returns the document as a struct of this kind. Raises InputError with all problems."""
    try:
        return msgspec.convert(document, kind, dec_hook=pack)
    except msgspec.ValidationError:
        pass
    except RecursionError:
        raise InputError(where, ["is nested too deeply"]) from None
    return _convert_slowly(document, kind, where)


def _convert_slowly(document: object, kind: type[T], where: str) -> T:
    try:
        present = without_nulls(document)
        problems = list(_problems("", present, inspect.type_info(kind)))
        if problems:
            raise InputError(where, problems)
        return msgspec.convert(present, kind, dec_hook=pack)
    except msgspec.ValidationError as error:
        raise InputError(where, [str(error)]) from None
    except RecursionError:
        raise InputError(where, ["is nested too deeply"]) from None


def without_nulls(value: object) -> object:
    """Returns the value without keys whose value is null."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def _problems(path: str, value: object, kind: inspect.Type, description: str = "") -> Iterator[Problem]:
    match kind:
        case inspect.Metadata():
            yield from _problems(
                path, value, kind.type, (kind.extra_json_schema or {}).get("description", "")
            )
        case inspect.UnionType():
            yield from _union_problems(path, value, kind, description)
        case inspect.StructType():
            yield from _struct_problems(path, value, kind)
        case inspect.DictType():
            yield from _dict_problems(path, value, kind)
        case inspect.VarTupleType():
            yield from _list_problems(path, value, kind)
        case inspect.CustomType():
            if not isinstance(value, dict):
                yield Problem(path, value, "must be a mapping")
        case inspect.AnyType():
            return
        case _:
            rule = _scalar_rule(value, kind, description)
            if rule:
                yield Problem(path, value, rule)


def _union_problems(path: str, value: object, kind: inspect.UnionType, description: str) -> Iterator[Problem]:
    """Yields the problems of a value that fits no member of a union. Null is not a member: it is absent."""
    members = [member for member in kind.types if not isinstance(member, inspect.NoneType)]
    problems = [list(_problems(path, value, member)) for member in members]
    if all(problems):
        yield from [Problem(path, value, f"must be {description}")] if description else problems[0]


def _struct_problems(path: str, value: object, kind: inspect.StructType) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield Problem(path, value, "must be a mapping")
        return
    fields = {field.encode_name: field for field in kind.fields}
    for name, item in value.items():
        field = fields.get(name)
        if field:
            yield from _problems(_join(path, name), item, field.type)
        elif kind.forbid_unknown_fields:
            refused: dict[str, str] = getattr(kind.cls, "REFUSED", {})
            yield Problem(_join(path, name), ABSENT, refused.get(name) or _unknown_field(name, fields))
    for name, field in fields.items():
        if field.required and name not in value:
            yield Problem(_join(path, name), ABSENT, "is required")


def _unknown_field(name: str, fields: Iterable[str]) -> str:
    by_lower_case = {field.lower(): field for field in fields}
    similar = difflib.get_close_matches(name.lower(), by_lower_case, n=1)
    return "is not a known field" + (f"; did you mean {by_lower_case[similar[0]]}?" if similar else "")


def _dict_problems(path: str, value: object, kind: inspect.DictType) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield Problem(path, value, "must be a mapping")
        return
    yield from _length_problems(path, value, kind, "entries")
    for key, item in value.items():
        for problem in _problems(f"{path}[{key!r}]", key, kind.key_type):
            yield problem._replace(rule=f"the key {problem.rule}")
        yield from _problems(f"{path}[{key!r}]", item, kind.value_type)


def _list_problems(path: str, value: object, kind: inspect.VarTupleType) -> Iterator[Problem]:
    if not isinstance(value, list):
        yield Problem(path, value, "must be a list")
        return
    yield from _length_problems(path, value, kind, "items")
    for position, item in enumerate(value):
        yield from _problems(f"{path}[{position}]", item, kind.item_type)


def _length_problems(path: str, value: Any, kind: Any, unit: str) -> Iterator[Problem]:  # noqa: ANN401  any sized type
    if kind.max_length is not None and len(value) > kind.max_length:
        yield Problem(path, value, f"must have at most {kind.max_length} {unit}, but has {len(value)}")
    if kind.min_length is not None and len(value) < kind.min_length:
        yield Problem(path, value, "must not be empty")


def _scalar_rule(value: object, kind: inspect.Type, description: str) -> str:
    """Returns the rule that a scalar breaks, or an empty string. ``description`` is that of its type."""
    match kind:
        case inspect.LiteralType():
            return "" if value in kind.values else f"must be one of {', '.join(map(str, kind.values))}"
        case inspect.BoolType():
            return "" if isinstance(value, bool) else "must be true or false"
        case inspect.IntType():
            return _int_rule(value, kind)
        case inspect.FloatType():
            return "" if isinstance(value, float) else "must be a number"
        case inspect.StrType():
            return _str_rule(value, kind, description)
    raise AssertionError(f"no field of a kind is a {kind}")


def _int_rule(value: object, kind: inspect.IntType) -> str:
    if not isinstance(value, int) or isinstance(value, bool):
        return "must be a whole number"
    if kind.ge is not None and value < kind.ge:
        return f"must be at least {kind.ge}"
    return f"must be at most {kind.le}" if kind.le is not None and value > kind.le else ""


def _str_rule(value: object, kind: inspect.StrType, description: str) -> str:
    if not isinstance(value, str):
        return f"must be {description or 'a string'}"
    if kind.max_length is not None and len(value) > kind.max_length:
        return f"must have at most {kind.max_length} characters"
    fits = len(value) >= (kind.min_length or 0) and re.search(kind.pattern or "", value)
    return "" if fits else f"must be {description or 'longer'}"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
