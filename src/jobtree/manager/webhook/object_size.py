"""Refuses a Run that is so large that etcd could not store its status with it (H2).

Only the webhook can check this: neither a schema nor CEL knows the size of an object.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from jobtree.api.kinds.run import Gang, Run
from jobtree.api.schema.problems import Problem

MAX_BYTES = 1_500_000  # etcd stores 1.5 MiB by default
STATUS_BYTES = 32_768  # conditions, payers, risks, refusals, messages
STATUS_BYTES_PER_POD = 160  # its rank, and its part of the allocation
USUAL_POD_GPUS = 8


def size_problems(document: dict[str, Any], run: Run) -> Iterator[Problem]:
    size, pods = len(msgspec.json.encode(document)), sum(pods_of(gang) for gang in gangs_in(run))
    status_bytes = STATUS_BYTES + STATUS_BYTES_PER_POD * pods
    if size + status_bytes > MAX_BYTES:
        rule = (
            f"{status_bytes} bytes are kept for the status ({pods} pods), and together they must be at most"
            f" {MAX_BYTES}: move large values of the template to a ConfigMap"
        )
        yield Problem("spec", f"{size} bytes", rule)


def gangs_in(run: Run) -> Iterator[Gang]:
    """Yields the gangs of a Run: of a tree, those of all stages, which the tree starts."""
    branches: list[Gang] = [run.spec]
    for stage in run.spec.stages:
        branches += [stage, *stage.stages]
    yield from (branch for branch in branches if branch.resources is not None)


def pods_of(gang: Gang) -> int:
    """Returns about how many pods a gang has at its largest width, spares included."""
    resources, group = gang.resources, gang.locality.group_gpus
    assert resources is not None
    width = gang.malleable.max_total_gpus if gang.malleable else resources.total_gpus
    size = resources.gpus_per_pod or min(USUAL_POD_GPUS, group or USUAL_POD_GPUS)
    groups = -(-width // group) if group else 1
    return -(-width // size) + groups * (gang.spares or gang.spares_per_group or 0) + (resources.pods or 0)
