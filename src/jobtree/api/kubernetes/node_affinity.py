"""Required node affinity: the nodes that a pod may run on, by labels and names, as Kubernetes reads it."""

from collections.abc import Mapping
from typing import Literal

import msgspec

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
NAME_FIELD = "metadata.name"


class NodeRule(msgspec.Struct, frozen=True):
    """A rule about one label of a node, or about one of its fields."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def holds(self, value: str | None) -> bool:
        """Whether the rule holds for this value; None: the node has no such label."""
        if self.operator in ("Exists", "DoesNotExist"):
            return (value is not None) == (self.operator == "Exists")
        if self.operator == "In":
            return value is not None and value in self.values
        if self.operator == "NotIn":
            return value is None or value not in self.values
        numbers = (value or "", *self.values)
        if len(numbers) != 2 or not all(is_integer(number) for number in numbers):  # noqa: PLR2004  a pair
            return False
        label, bound = map(int, numbers)
        return label > bound if self.operator == "Gt" else label < bound


class NodeTerm(msgspec.Struct, frozen=True, rename="camel"):
    """Rules that must all hold; a term without rules matches no node."""

    match_expressions: tuple[NodeRule, ...] = ()
    match_fields: tuple[NodeRule, ...] = ()

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        return (
            bool(self.match_expressions or self.match_fields)
            and all(rule.holds(labels.get(rule.key)) for rule in self.match_expressions)
            and all(rule.holds(name if rule.key == NAME_FIELD else None) for rule in self.match_fields)
        )


def is_integer(text: str) -> bool:
    return text.removeprefix("-").isdecimal()
