"""Builds the environment of a rank: its number, the number of ranks, the address of rank 0.

``PET_*`` are read by torchrun. A Run with ``onResize: Rendezvous`` gets the range of its width and a
rendezvous point, so that ranks may join and leave; any other Run gets fixed ranks.
"""

from jobtree.api.kinds.run import Run
from jobtree.api.schema.quantities import SECOND, parse_duration
from jobtree.manager.pods.pod_names import hostname, service_name
from jobtree.manager.pods.pod_set import PodPlacement, PodSet

MASTER_PORT = "29500"


def environment(run: Run, pod_set: PodSet, placement: PodPlacement) -> dict[str, str]:
    """Returns the environment variables of one rank."""
    processes = str(max(1, pod_set.pod_size))
    master = master_address(run, pod_set)
    variables = {
        "MASTER_ADDR": master,
        "MASTER_PORT": MASTER_PORT,
        "WORLD_SIZE": str(pod_set.ranks * max(1, pod_set.pod_size)),
        "NNODES": str(pod_set.ranks),
        "NODE_RANK": str(placement.rank),
        "NPROC_PER_NODE": processes,
        "PET_NPROC_PER_NODE": processes,
        **torchrun(run, pod_set, placement, master),
        "JOBTREE_RUN": run.metadata.name,
        "JOBTREE_GROUP": str(placement.group),
        "JOBTREE_GROUP_RANK": str(placement.group_rank),
        "JOBTREE_ATTEMPT": str(pod_set.attempt),
    }
    if run.spec.runtime.checkpoint:
        variables["JOBTREE_CHECKPOINT_SECONDS"] = str(parse_duration(run.spec.runtime.checkpoint) // SECOND)
    return variables


def torchrun(run: Run, pod_set: PodSet, placement: PodPlacement, master: str) -> dict[str, str]:
    flexible = run.spec.malleable
    if run.spec.runtime.on_resize != "Rendezvous" or flexible is None:
        return {
            "PET_NNODES": str(pod_set.ranks),
            "PET_NODE_RANK": str(placement.rank),
            "PET_MASTER_ADDR": master,
            "PET_MASTER_PORT": MASTER_PORT,
        }
    least, most = (gpus // pod_set.pod_size for gpus in (flexible.min_total_gpus, flexible.max_total_gpus))
    return {
        "PET_NNODES": f"{least}:{most}",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"{master}:{MASTER_PORT}",
        "PET_RDZV_ID": run.metadata.uid,
    }


def master_address(run: Run, pod_set: PodSet) -> str:
    """Returns the address of rank 0; a single pod needs no Service and uses its hostname."""
    host = hostname(run.metadata.name, pod_set.first.host)
    if not needs_service(run, pod_set):
        return host
    return f"{host}.{service_name(run.metadata.name, run.metadata.uid)}.{run.metadata.namespace}.svc"


def needs_service(run: Run, pod_set: PodSet) -> bool:
    """Whether the Run can have more than one rank, now or after it has grown."""
    flexible = run.spec.malleable
    widest = flexible.max_total_gpus if flexible else 0
    return pod_set.ranks > 1 or widest > pod_set.pod_size
