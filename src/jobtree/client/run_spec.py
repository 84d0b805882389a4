"""Builds the manifest of a Run from keywords."""

from collections.abc import Mapping
from typing import Any

from jobtree.api.schema.object_meta import API_VERSION

# The path of each keyword in the spec.
FIELDS: dict[str, tuple[str, ...]] = {
    "owner": ("owner",),
    "gpus": ("resources", "totalGPUs"),
    "gpu_type": ("resources", "gpuType"),
    "gpus_per_pod": ("resources", "gpusPerPod"),
    "group_gpus": ("locality", "groupGPUs"),
    "checkpoint": ("runtime", "checkpoint"),
    "max_duration": ("runtime", "maxDuration"),
    "min_gpus": ("malleable", "minTotalGPUs"),
    "max_gpus": ("malleable", "maxTotalGPUs"),
    "step_gpus": ("malleable", "stepGPUs"),
    "spares": ("spares",),
    "allow_borrow": ("funding", "allowBorrow"),
    "max_borrow_gpus": ("funding", "maxBorrowGPUs"),
    "sponsors": ("funding", "sponsors"),
    "allow_opportunistic": ("funding", "allowOpportunistic"),
    "after": ("follow", "after"),
    "template": ("template",),
}


def run_document(
    name: str,
    namespace: str,
    spec: Mapping[str, Any] | None = None,
    **fields: Any,  # noqa: ANN401  any field
) -> dict[str, Any]:
    """Returns the manifest; a keyword that is None, False or empty is left out."""
    metadata: dict[str, Any] = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    metadata |= {part: dict(fields[part]) for part in ("labels", "annotations") if fields.get(part)}
    merged = as_json(spec or {})
    for field, path in FIELDS.items():
        value = fields[field]
        if value is not None and value is not False and value != ():
            put(merged, path, as_json(value))
    return {"apiVersion": API_VERSION, "kind": "Run", "metadata": metadata, "spec": merged}


def put(spec: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    *groups, last = path
    for group in groups:
        spec = spec.setdefault(group, {})
    spec[last] = value


def as_json(value: Any) -> Any:  # noqa: ANN401  any value of a manifest
    """Returns a copy of a value with dicts and lists alone."""
    if isinstance(value, Mapping):
        return {key: as_json(item) for key, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, (list, tuple)) else value
