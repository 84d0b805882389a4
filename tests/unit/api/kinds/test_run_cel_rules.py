"""The CEL rule of a running Run names each field that must stay as it is."""

import re
from collections.abc import Iterator

import msgspec

from jobtree.api.kinds.run import Malleable, RunSpec, Runtime
from jobtree.api.kinds.run_cel_rules import RUN_RULES, RUNNING_RULE

OWN_RULE = {"spec.owner"}  # of every Run, whether it runs or not
PARTLY_FIXED = {"spec.runtime"}
MAY_CHANGE = {"spec.runtime.maxDuration", "spec.malleable.desiredTotalGPUs"}


def paths(struct: type[msgspec.Struct], parent: str) -> Iterator[str]:
    for field in msgspec.structs.fields(struct):
        yield f"{parent}.{field.encode_name}"


def test_rule_of_a_running_run_names_each_field_that_must_stay() -> None:
    (rule,) = [rule for rule in RUN_RULES if rule.message == RUNNING_RULE]
    fixed = set(re.findall(r"has\(self\.([\w.]+)\) == has\(oldSelf\.\1\)", rule.expression))
    fields = {
        *paths(RunSpec, "spec"),
        *paths(Runtime, "spec.runtime"),
        *paths(Malleable, "spec.malleable"),
    }
    assert fixed == fields - OWN_RULE - PARTLY_FIXED - MAY_CHANGE
