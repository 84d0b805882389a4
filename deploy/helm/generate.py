"""Writes the chart's templates from the plain manifests: ``python deploy/helm/generate.py [CHART]``.

There is one source: ``deploy/kustomize/base`` and ``config/crd``, manifests that can be applied as they are
and hold the default of every value. Comments in them say what the chart makes of a line:

- ``key: default # helm: EXPRESSION``: the chart has the expression in place of the default, and of all that
  is indented below it; in place of a whole item, where there is no key
- ``# helm: TEXT`` on a line of its own: the chart has the text, in the same column

What the schema of the values says of ``policy`` is what the manager takes. ``make manifests`` runs this, and
a test that both give the same objects. What is in the chart alone (the policy, the archive's volume,
monitoring, notes) is written there by hand.
"""

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from jobtree.api.kinds.policy import PolicySpec

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
KUSTOMIZE = REPOSITORY / "deploy" / "kustomize"
DEFINITIONS = REPOSITORY / "config" / "crd"
LEFT_OUT = ("namespace.yaml",)  # helm makes it, where it is told --create-namespace
GENERATED = "generated"
FILES = {
    "deploy/grafana/dashboards/observability.json": "files/observability.json",
    "deploy/prometheus/alerts.yaml": "files/alerts.yaml",
}
"""What the chart carries as it is: a chart cannot read files that are not in it."""
SCHEMA = "values.schema.json"
HEADER = "{{{{- /* Made by `make manifests` from {source}: edit that. */ -}}}}\n"
MARK = "# helm: "

_ITEM = re.compile(r"^(?P<indent>\s*)(?P<content>\S.*?)\s*# helm: (?P<replacement>.*)$")
_KEY = re.compile(r"^(- )?[\w./-]+:(?= |$)")


def main(chart: Path) -> None:
    """Writes all templates that have a source, and no others, below templates/generated."""
    target = chart / "templates" / GENERATED
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for original, copy in FILES.items():
        (chart / copy).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / original, chart / copy)
    for source in (*manifests(), *sorted(DEFINITIONS.glob("*.yaml"))):
        made = definition(source) if source.parent == DEFINITIONS else template(source.read_text())
        name = source.name if source.parent.name == "base" else f"{source.parent.name}-{source.name}"
        header = HEADER.format(source=source.relative_to(REPOSITORY))
        (target / name).write_text(header + made)
    (chart / SCHEMA).write_text(json.dumps(schema_of_values(), indent=2) + "\n")


def schema_of_values() -> dict[str, Any]:
    """The schema as it is written by hand, with the policy's part as the manager reads it."""
    schema: dict[str, Any] = json.loads((HERE / "gpu-fleet" / SCHEMA).read_text())
    _, parts = msgspec.json.schema_components([PolicySpec], ref_template="{name}")
    policy = plain(parts["PolicySpec"], parts)
    described = schema["properties"]["policy"]["description"]
    schema["properties"]["policy"] = {**policy, "description": described, "additionalProperties": False}
    return schema


def plain(schema: Any, parts: dict[str, Any]) -> Any:  # noqa: ANN401  JSON
    """A schema as helm reads it: in one piece, with nothing that only an API server understands."""
    if isinstance(schema, list):
        return [plain(item, parts) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return plain(parts[schema["$ref"]], parts)
    kept = {key: value for key, value in schema.items() if not key.startswith("x-") and key != "default"}
    if isinstance(kept.get("pattern"), str):
        kept["pattern"] = re.sub(r"\\Z$", "$", kept["pattern"])  # the end, as other languages write it
    return {key: plain(value, parts) for key, value in kept.items()}


def manifests() -> list[Path]:
    """The files of the base, what takes the place of policies on old clusters, what precedes an uninstall."""
    documents = []
    for folder in ("base", "webhook-rules", "uninstall"):
        listed = yaml.safe_load((KUSTOMIZE / folder / "kustomization.yaml").read_text())["resources"]
        documents += [KUSTOMIZE / folder / name for name in listed if name not in LEFT_OUT]
    return documents


def template(text: str) -> str:
    """The template that a manifest with marks describes."""
    return "".join(f"{line}\n" for line in _lines(text.splitlines()))


def _lines(lines: list[str]) -> Iterator[str]:
    replaced = -1
    """The column of a key whose block is replaced; -1 where none is."""
    for line in lines:
        column = len(line) - len(line.lstrip())
        if replaced >= 0 and line.strip() and column > replaced:
            continue
        replaced = -1
        if line.lstrip().startswith(MARK):
            yield line.replace(MARK, "", 1)
        elif (marked := _ITEM.match(line)) is not None:
            key = _KEY.match(marked["content"])
            replaced = column if key and key.end() == len(marked["content"]) else -1
            yield marked["indent"] + (f"{key[0]} " if key else "") + marked["replacement"]
        else:
            yield line


def definition(source: Path) -> str:
    """A definition of a kind: kept when the chart goes, for all its objects would go with it."""
    text = source.read_text()
    assert "{{" not in text, f"{source.name} would be read as a template"
    assert text.count("\n  annotations:\n") == 0, f"{source.name} has annotations of its own"
    head, match, rest = text.partition("\nmetadata:\n")
    assert match, f"{source.name} has no metadata"
    return (
        "{{- if .Values.crds.enabled }}\n"
        f"{head}{match}"
        "  {{- if .Values.crds.keep }}\n  annotations:\n    helm.sh/resource-policy: keep\n  {{- end }}\n"
        f"{rest}{{{{- end }}}}\n"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "gpu-fleet")
