"""Builds rules in CEL, which the API server enforces even when Jobtree is down.

A rule belongs to a struct and states the same as ``jobtree.api.validation.object_rules``, as far as CEL and
the API server permit: the server estimates the cost of each rule for the largest object that the schema
allows, and refuses a CRD whose rules could cost too much. The rules use the features of Kubernetes 1.27 only
(no optional types, no ``fieldPath``).
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

# For a list without repeated values.
SET = {"x-kubernetes-list-type": "set"}


class Rule(NamedTuple):
    """An expression that must be true for ``self``, and the message if it is not."""

    expression: str
    message: str


def unchanged(parent: str, *fields: str) -> str:
    """Returns the expression that these fields did not change. An absent field must stay absent."""
    new, old = f"self{parent}", f"oldSelf{parent}"
    return " && ".join(
        f"has({new}.{field}) == has({old}.{field}) && (!has({new}.{field}) || {new}.{field} == {old}.{field})"
        for field in fields
    )


def if_has(path: str, rule: str, root: str = "self") -> str:
    """Returns the rule for objects that have the path, and true for others. Tests each field on the path."""
    steps = path.split(".")
    absent = [f"!has({'.'.join([root, *steps[: count + 1]])})" for count in range(len(steps))]
    return " || ".join([*absent, rule])


def cel_seconds(text: str) -> str:
    """Returns the expression for the seconds of a duration such as ``7d12h``; durations of CEL lack days."""
    at = f"{text}.indexOf('d')"
    days = f"({text}.contains('d') ? int({text}.substring(0, {at})) * 86400 : 0)"
    rest = f"({text}.endsWith('d') ? 0 : duration({text}.substring({at} + 1)).getSeconds())"
    return f"{days} + {rest}"


def validations(rules: Iterable[Rule]) -> list[dict[str, str]]:
    """Returns the rules in the form of a CRD."""
    return [{"rule": rule.expression, "message": rule.message} for rule in rules]


def open_object(properties: dict[str, Any], *rules: Rule) -> dict[str, Any]:
    """Returns the schema of an object that checks these properties and accepts any others."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": properties}
    return {**schema, "x-kubernetes-validations": validations(rules)} if rules else schema
