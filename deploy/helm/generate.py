"""Generates templates of the chart from the plain manifests: ``python deploy/helm/generate.py [CHART]``.

The source are the manifests in ``deploy/kustomize/base`` and ``config/crd``, which can be applied as they are
and have the default of every value. Comments in them say how the chart differs:

- ``key: default # helm: EXPRESSION``: the expression replaces the default and everything indented below it;
  without a key, it replaces the whole item
- ``# helm: TEXT`` on a line of its own: the text replaces the comment, in the same column

The part ``policy`` of the schema of the values is generated from the structs of the manager. ``make
manifests`` runs this script. A test checks that manifests and chart give the same objects. Templates that
only the chart has (the policy, the archive's volume, monitoring, notes) are written by hand.
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
CRDS = REPOSITORY / "config" / "crd"
EXCLUDED = ("namespace.yaml",)  # helm creates it with --create-namespace
GENERATED = "generated"
FILES = {
    "deploy/grafana/dashboards/observability.json": "files/observability.json",
    "deploy/prometheus/alerts.yaml": "files/alerts.yaml",
}
"""Files that are copied to the chart unchanged: a chart can only read its own files."""
SCHEMA = "values.schema.json"
HEADER = "{{{{- /* Made by `make manifests` from {source}: edit that. */ -}}}}\n"
MARK = "# helm: "

_ITEM = re.compile(r"^(?P<indent>\s*)(?P<content>\S.*?)\s*# helm: (?P<replacement>.*)$")
_KEY = re.compile(r"^(- )?[\w./-]+:(?= |$)")


def main(chart: Path) -> None:
    """Replaces all files below templates/generated, the copied files and the schema of the values."""
    target = chart / "templates" / GENERATED
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for original, copy in FILES.items():
        (chart / copy).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / original, chart / copy)
    for source in (*manifests(), *sorted(CRDS.glob("*.yaml"))):
        text = crd_template(source) if source.parent == CRDS else template(source.read_text())
        name = source.name if source.parent.name == "base" else f"{source.parent.name}-{source.name}"
        header = HEADER.format(source=source.relative_to(REPOSITORY))
        (target / name).write_text(header + text)
    (chart / SCHEMA).write_text(json.dumps(values_schema(), indent=2) + "\n")


def values_schema() -> dict[str, Any]:
    """Returns the hand-written schema of the values, with the part ``policy`` from the structs."""
    schema: dict[str, Any] = json.loads((HERE / "gpu-fleet" / SCHEMA).read_text())
    _, parts = msgspec.json.schema_components([PolicySpec], ref_template="{name}")
    policy = helm_schema(parts["PolicySpec"], parts)
    description = schema["properties"]["policy"]["description"]
    schema["properties"]["policy"] = {**policy, "description": description, "additionalProperties": False}
    return schema


def helm_schema(schema: Any, parts: dict[str, Any]) -> Any:  # noqa: ANN401  JSON
    """Converts a schema for helm: without references, defaults, and keywords of the API server."""
    if isinstance(schema, list):
        return [helm_schema(item, parts) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return helm_schema(parts[schema["$ref"]], parts)
    kept = {key: value for key, value in schema.items() if not key.startswith("x-") and key != "default"}
    if isinstance(kept.get("pattern"), str):
        kept["pattern"] = re.sub(r"\\Z$", "$", kept["pattern"])  # helm does not know \Z
    return {key: helm_schema(value, parts) for key, value in kept.items()}


def manifests() -> list[Path]:
    """Returns the files of base/, webhook-rules/ and uninstall/."""
    paths = []
    for folder in ("base", "webhook-rules", "uninstall"):
        names = yaml.safe_load((KUSTOMIZE / folder / "kustomization.yaml").read_text())["resources"]
        paths += [KUSTOMIZE / folder / name for name in names if name not in EXCLUDED]
    return paths


def template(text: str) -> str:
    """Returns the template for a manifest with marks."""
    return "".join(f"{line}\n" for line in _template_lines(text.splitlines()))


def _template_lines(lines: list[str]) -> Iterator[str]:
    replaced = -1  # column of the key whose block is replaced; -1: none
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


def crd_template(source: Path) -> str:
    """Returns the template of a CRD. By default helm keeps it, and so its objects, at an uninstall."""
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
