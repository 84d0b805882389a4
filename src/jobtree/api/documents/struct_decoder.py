"""Converting a raw document to its struct, and saying all that is wrong when it does not fit.

msgspec converts fast and stops at the first thing it does not like. Only then is the document walked again,
slowly, along the same types, to collect every misfit with its path, its value and its rule.
A null counts as absent.
"""

import difflib
import re
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from jobtree.api.schema.problems import ABSENT, InputError, Problem

T = TypeVar("T")


def decode_struct(document: object, kind: type[T], where: str) -> T:
    """The document as a struct of this kind. Raises InputError with all that does not fit."""
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError:
        pass
    except RecursionError:
        raise InputError(where, ["is nested too deeply"]) from None
    return _convert_slowly(document, kind, where)


def _convert_slowly(document: object, kind: type[T], where: str) -> T:
    try:
        present = without_nulls(document)
        misfits = list(_misfits("", present, inspect.type_info(kind)))
        if misfits:
            raise InputError(where, misfits)
        return msgspec.convert(present, kind)
    except msgspec.ValidationError as misfit:
        raise InputError(where, [str(misfit)]) from None
    except RecursionError:
        raise InputError(where, ["is nested too deeply"]) from None


def without_nulls(value: object) -> object:
    """The same without the keys whose value is null."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def _misfits(path: str, value: object, kind: inspect.Type, said: str = "") -> Iterator[Problem]:
    match kind:
        case inspect.Metadata():
            yield from _misfits(path, value, kind.type, (kind.extra_json_schema or {}).get("description", ""))
        case inspect.UnionType():
            yield from _union_misfits(path, value, kind, said)
        case inspect.StructType():
            yield from _struct_misfits(path, value, kind)
        case inspect.DictType():
            yield from _dict_misfits(path, value, kind)
        case inspect.VarTupleType():
            yield from _list_misfits(path, value, kind)
        case inspect.AnyType():
            return
        case _:
            rule = _scalar_rule(value, kind, said)
            if rule:
                yield Problem(path, value, rule)


def _union_misfits(path: str, value: object, kind: inspect.UnionType, said: str) -> Iterator[Problem]:
    """Nothing if any member fits. Null is no member here: it counts as absent."""
    members = [member for member in kind.types if not isinstance(member, inspect.NoneType)]
    misfits = [list(_misfits(path, value, member)) for member in members]
    if all(misfits):
        yield from [Problem(path, value, f"must be {said}")] if said else misfits[0]


def _struct_misfits(path: str, value: object, kind: inspect.StructType) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield Problem(path, value, "must be a mapping")
        return
    fields = {field.encode_name: field for field in kind.fields}
    for name, item in value.items():
        field = fields.get(name)
        if field:
            yield from _misfits(_join(path, name), item, field.type)
        elif kind.forbid_unknown_fields:
            refused: dict[str, str] = getattr(kind.cls, "REFUSED", {})
            yield Problem(_join(path, name), ABSENT, refused.get(name) or _unknown(name, list(fields)))
    for name, field in fields.items():
        if field.required and name not in value:
            yield Problem(_join(path, name), ABSENT, "is required")


def _unknown(name: str, known: list[str]) -> str:
    folded = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), folded, n=1)
    return "is not a known field" + (f"; did you mean {folded[near[0]]}?" if near else "")


def _dict_misfits(path: str, value: object, kind: inspect.DictType) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield Problem(path, value, "must be a mapping")
        return
    yield from _length_misfits(path, value, kind, "entries")
    for key, item in value.items():
        for problem in _misfits(f"{path}[{key!r}]", key, kind.key_type):
            yield problem._replace(rule=f"the key {problem.rule}")
        yield from _misfits(f"{path}[{key!r}]", item, kind.value_type)


def _list_misfits(path: str, value: object, kind: inspect.VarTupleType) -> Iterator[Problem]:
    if not isinstance(value, list):
        yield Problem(path, value, "must be a list")
        return
    yield from _length_misfits(path, value, kind, "items")
    for position, item in enumerate(value):
        yield from _misfits(f"{path}[{position}]", item, kind.item_type)


def _length_misfits(path: str, value: Any, kind: Any, unit: str) -> Iterator[Problem]:  # noqa: ANN401  any sized type
    if kind.max_length is not None and len(value) > kind.max_length:
        yield Problem(path, value, f"must have at most {kind.max_length} {unit}, but has {len(value)}")
    if kind.min_length is not None and len(value) < kind.min_length:
        yield Problem(path, value, "must not be empty")


def _scalar_rule(value: object, kind: inspect.Type, said: str) -> str:
    """The rule that a scalar breaks; empty if it breaks none. ``said`` is the type's own description."""
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
            return _str_rule(value, kind, said)
    raise AssertionError(f"the kinds hold no {kind}")


def _int_rule(value: object, kind: inspect.IntType) -> str:
    if not isinstance(value, int) or isinstance(value, bool):
        return "must be a whole number"
    if kind.ge is not None and value < kind.ge:
        return f"must be at least {kind.ge}"
    return f"must be at most {kind.le}" if kind.le is not None and value > kind.le else ""


def _str_rule(value: object, kind: inspect.StrType, said: str) -> str:
    if not isinstance(value, str):
        return f"must be {said or 'a string'}"
    if kind.max_length is not None and len(value) > kind.max_length:
        return f"must have at most {kind.max_length} characters"
    fits = len(value) >= (kind.min_length or 0) and re.search(kind.pattern or "", value)
    return "" if fits else f"must be {said or 'longer'}"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
