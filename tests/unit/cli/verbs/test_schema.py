"""``schema`` prints what editors need: the fields of a kind, each with a sentence."""

from typing import Any

import msgspec
import pytest

from jobtree.api.kinds.json_schema import KIND_NAMES
from jobtree.api.kinds.run_plan import RunPlan
from jobtree.cli.verbs.schema import KINDS
from tests.unit.cli.cli_runner import CliRunner
from tests.unit.cli.manifests import run


def fields_without_text(path: str, schema: Any) -> list[str]:  # noqa: ANN401  any part of a schema
    """Returns the fields below a schema without a description; those of pod templates are not Jobtree's."""
    if not isinstance(schema, dict):
        return []
    found = []
    for name, field in schema.get("properties", {}).items():
        if not field.get("description"):
            found.append(f"{path}.{name}")
        if name != "template":
            found += fields_without_text(f"{path}.{name}", field)
    return found + fields_without_text(f"{path}[]", schema.get("items"))


def schema_of(cli: CliRunner, kind: str) -> Any:  # noqa: ANN401
    return cli.without_state("schema", kind).json()


@pytest.mark.parametrize("kind", KINDS)
def test_schema_has_a_sentence_for_every_field(cli: CliRunner, kind: str) -> None:
    schema = schema_of(cli, kind)
    parts = {part: schema["properties"][part] for part in ("spec", "status") if part in schema["properties"]}
    assert parts
    assert [name for part in parts.items() for name in fields_without_text(*part)] == []
    assert "x-kubernetes" not in str(schema)
    assert set(KINDS) == set(KIND_NAMES)


def test_schema_refuses_other_fields_and_knows_the_required_ones(cli: CliRunner) -> None:
    schema = schema_of(cli, "run")
    spec = schema["properties"]["spec"]
    assert schema["required"] == ["apiVersion", "kind", "metadata", "spec"]
    assert schema["properties"]["kind"] == {"const": "Run"}
    assert (spec["additionalProperties"], spec["required"]) == (False, ["owner"])
    assert spec["properties"]["resources"]["required"] == ["totalGPUs"]
    assert spec["properties"]["owner"]["description"].startswith("The team ")
    assert "$schema" in cli.without_state("schema", "Run", "-o", "yaml").out
    assert cli.without_state("schema", "Pod").code == 2


def test_plan_prints_what_its_schema_says(cli: CliRunner) -> None:
    """The shape of the answers of plan is published: a change of it is a change for its users."""
    schema = schema_of(cli, "RunPlan")
    status = schema["properties"]["status"]
    assert set(status["properties"]) == {
        *("answer", "phase", "message", "width", "causes", "otherWaysToPay", "leases"),
        *("reservation", "immuneUntil", "endsBy", "risks", "killProbability", "cost", "effects"),
    }
    assert set(status["properties"]["causes"]["items"]["properties"]) == {
        *("reason", "message", "where", "have", "need", "remedies"),
    }
    assert status["properties"]["answer"]["enum"] == ["StartsNow", "Running", "Waits", "Finished"]
    cli.submit(run("train"))
    planned = cli.runs("plan", "-f", cli.write_file("new.yaml", run("new")), "-o", "json").json()
    (answer,) = (body for body in planned["items"] if body["kind"] == "RunPlan")
    assert set(answer) == set(schema["required"])
    assert set(answer["status"]) <= set(status["properties"])
    assert msgspec.convert({part: answer[part] for part in ("metadata", "status")}, RunPlan).status.causes
