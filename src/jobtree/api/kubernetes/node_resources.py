"""Resources besides CPU, memory and GPUs: extended ones, ephemeral storage, huge pages, host ports.

A host port is a resource of which each node has one. A node that is written by hand may leave out what
Kubernetes itself counts, which is unlimited then, as CPU and memory are. It has no extended resource that it
does not name.
"""

from collections.abc import Callable, Mapping
from operator import add

from jobtree.api.kubernetes.resource_quantities import Quantity, whole
from jobtree.api.schema.gpu_resources import GPU_RESOURCES

Resources = tuple[tuple[str, int], ...]  # name and amount in units, sorted by name

COUNTED_APART = frozenset({"cpu", "memory", "pods", *GPU_RESOURCES})
HOST_PORT = "hostPort "


def other_resources(quantities: Mapping[str, Quantity]) -> Resources:
    """Returns the resources that are not counted apart. Raises ValueError for an invalid quantity."""
    names = sorted(name for name in quantities if name not in COUNTED_APART)
    return tuple((name, whole(quantities[name])) for name in names)


def host_port(port: int, protocol: str) -> str:
    """The name of a host port as a resource."""
    return f"{HOST_PORT}{port}/{protocol or 'TCP'}"


def capacity_of(resources: Resources, name: str) -> int | None:
    """Returns how much of a resource a node has that reports these; None: unlimited."""
    for known, amount in resources:
        if known == name:
            return amount
    if name.startswith(HOST_PORT):
        return 1
    return None if name == "ephemeral-storage" or name.startswith("hugepages-") else 0


def _merged(first: Resources, second: Resources, merge: Callable[[int, int], int]) -> Resources:
    if not (first and second):
        return first or second
    merged: dict[str, int] = {}
    for name, amount in (*first, *second):
        merged[name] = merge(merged[name], amount) if name in merged else amount
    return tuple(sorted(merged.items()))


def added(first: Resources, second: Resources) -> Resources:
    """Adds amounts by name."""
    return _merged(first, second, add)


def larger(first: Resources, second: Resources) -> Resources:
    """Returns the larger amount of each name."""
    return _merged(first, second, max)
