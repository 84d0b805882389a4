"""Rules in CEL, which the API server enforces when everything else is down.

Each stands with the struct it is about and says the same as ``jobtree.api.validation.object_rules``, as far
as CEL can and the API server lets it: the server estimates what a rule costs at the largest object the schema
allows, and refuses a CRD whose rules could cost too much. Only what Kubernetes 1.27 knows is used (no
optional types, no ``fieldPath``).
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

# Of a list: no value comes twice.
SET = {"x-kubernetes-list-type": "set"}


class Rule(NamedTuple):
    """An expression that must be true of ``self``, and what to tell whoever broke it."""

    expression: str
    message: str


def unchanged(parent: str, *fields: str) -> str:
    """That these fields are what they were before. An absent one must stay absent."""
    new, old = f"self{parent}", f"oldSelf{parent}"
    return " && ".join(
        f"has({new}.{field}) == has({old}.{field}) && (!has({new}.{field}) || {new}.{field} == {old}.{field})"
        for field in fields
    )


def if_has(path: str, rule: str, root: str = "self") -> str:
    """The rule, asked only where the path is there: each step of it is tested before it is taken."""
    steps = path.split(".")
    absent = [f"!has({'.'.join([root, *steps[: count + 1]])})" for count in range(len(steps))]
    return " || ".join([*absent, rule])


def cel_seconds(text: str) -> str:
    """A duration such as ``7d12h`` in seconds; CEL's own durations know no days."""
    at = f"{text}.indexOf('d')"
    days = f"({text}.contains('d') ? int({text}.substring(0, {at})) * 86400 : 0)"
    rest = f"({text}.endsWith('d') ? 0 : duration({text}.substring({at} + 1)).getSeconds())"
    return f"{days} + {rest}"


def validations(rules: Iterable[Rule]) -> list[dict[str, str]]:
    """Rules as a CRD writes them."""
    return [{"rule": rule.expression, "message": rule.message} for rule in rules]


def open_object(properties: dict[str, Any], *rules: Rule) -> dict[str, Any]:
    """The schema of an object of which only some properties are looked at, and the others pass."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": properties}
    return {**schema, "x-kubernetes-validations": validations(rules)} if rules else schema
