"""The schema of a pod template, which accepts any PodTemplateSpec except what Jobtree refuses.

Kubernetes checks the rest when the pods are created. The rules are those of
``jobtree.api.kubernetes.pod_template_rules``.
"""

from typing import Any

from jobtree.api.schema.cel_rules import Rule, open_object
from jobtree.api.schema.gpu_resources import GPU_CLAIMS, GPU_RESOURCES

MAX_CONTAINERS = 32


def _escaped(name: str) -> str:
    """Returns the name of a field as it is escaped in CEL."""
    return name.replace(".", "__dot__").replace("/", "__slash__")


_RESOURCES = (*GPU_RESOURCES, *GPU_CLAIMS)
_GPUS = open_object(
    {name: {"x-kubernetes-int-or-string": True} for name in _RESOURCES},
    Rule(
        " && ".join(f"!has(self.{_escaped(name)})" for name in _RESOURCES),
        "Jobtree gives a pod its GPUs (gpusPerPod): a template may not request them",
    ),
)
_CONTAINERS = {
    "type": "array",
    "maxItems": MAX_CONTAINERS,
    "x-kubernetes-list-type": "atomic",
    "items": open_object({"resources": open_object({"requests": _GPUS, "limits": _GPUS})}),
}
_METADATA = open_object(
    {"finalizers": {"type": "array", "maxItems": 16, "items": {"type": "string", "maxLength": 317}}},
    Rule("!has(self.finalizers) || size(self.finalizers) == 0", "pods may not have finalizers"),
)
_SPEC = open_object(
    {
        "nodeName": {"type": "string", "maxLength": 253},
        "containers": _CONTAINERS,
        "initContainers": _CONTAINERS,
    },
    Rule("!has(self.nodeName) || self.nodeName == ''", "Jobtree chooses the node: nodeName may not be set"),
    Rule("has(self.containers) && size(self.containers) > 0", "must name at least one container"),
)

TEMPLATE_SCHEMA: dict[str, Any] = {
    **open_object({"metadata": _METADATA, "spec": _SPEC}),
    "required": ["spec"],
}
