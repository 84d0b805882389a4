"""Sets the desired width of a Run in a cluster held in memory."""

from copy import deepcopy

from jobtree.api.documents.document_stream import Document
from jobtree.client.source.width_rules import refuse_width
from jobtree.core import RunKey
from jobtree.snapshot.cluster import Cluster


def set_desired_width(cluster: Cluster, run_key: RunKey, sign: int, by: int | None, width: int | None) -> int:
    """Sets the desired width of a running Run, and returns it. Raises an error if the Run cannot have it."""
    run, key = cluster.world.runs[run_key], ("Run", *run_key)
    wanted = width if width is not None else run.width + sign * (by or 0)
    refuse_width("/".join(run_key), run.shape, run.phase, run.width, sign, wanted)
    body = deepcopy(cluster.objects.get(key) or {})
    body["spec"]["malleable"]["desiredTotalGPUs"] = wanted
    cluster.edit(key, Document(cluster.objects.where(key), body))
    return wanted
