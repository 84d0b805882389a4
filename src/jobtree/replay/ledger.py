"""The ledger of a cluster as a trace: what its Runs asked for, and the GPU-time that their leases used.

A file of ``kubectl get runs,gpuleases -A -o yaml`` is enough. A job is a finished Run: submitted when it was
created, as long as its closed leases together would have lasted at its full width. Runs that still wait or
run, and those that never held a GPU, say nothing about how long they take, and are skipped and counted.
"""

from hashlib import sha256
from pathlib import Path
from typing import Any

from jobtree.api.documents import read_documents
from jobtree.api.lease import Lease
from jobtree.api.parse import parse_object
from jobtree.api.problems import InputError
from jobtree.api.quantities import MILLI, SECOND, parse_micro, parse_slots, parse_time
from jobtree.api.run import Run
from jobtree.replay.trace import Cut, Reader, Trace

FINISHED = ("Completed", "Failed")
ENDINGS = (".yaml", ".yml", ".json")


def is_ledger(path: str) -> bool:
    return path.endswith(ENDINGS)


def read_ledger(path: str, most_gpus: int, cut: Cut) -> Trace:
    """The finished Runs of a file of Kubernetes objects. Raises InputError."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(path, ["there is no such file"]) from None
    except (OSError, UnicodeDecodeError) as broken:
        raise InputError(path, [f"cannot be read: {broken}"]) from None
    runs: list[Run] = []
    leases: list[Lease] = []
    for document in read_documents(text, path):
        if document.body.get("kind") in ("Run", "Lease"):
            parsed = parse_object(document.body, document.where)
            if isinstance(parsed, Run):
                runs.append(parsed)
            elif isinstance(parsed, Lease):
                leases.append(parsed)
    used = gpu_times(runs, leases)
    reader = Reader(path, most_gpus, cut)
    created = [parse_time(run.metadata.creation_timestamp or "1970-01-01T00:00:00Z") for run in runs]
    first = min(created, default=0)
    for number, (run, at) in enumerate(zip(runs, created, strict=True), 1):
        reader.take(number, cells(run, at - first, used.get(run.metadata.uid, 0)))
    return reader.trace(sha256(text.encode()).hexdigest())


def gpu_times(runs: list[Run], leases: list[Lease]) -> dict[str, int]:
    """GPU-milliseconds by Run's UID: what its leases tell, and what it carries of those in the archive."""
    used: dict[str, int] = {}
    counted: set[str] = set()
    for run in runs:
        if (carried := run.status.carried) is not None:
            counted.update(carried.leases)
            held = sum(parse_micro(share.gpu_seconds) for share in carried.funding)
            used[run.metadata.uid] = (held - parse_micro(carried.spare_gpu_seconds)) // MILLI
    for lease in leases:
        if lease.metadata.name not in counted:
            uid = lease.spec.run_ref.uid
            used[uid] = used.get(uid, 0) + gpu_time(lease)
    return used


def gpu_time(lease: Lease) -> int:
    """What an ended lease of working GPUs adds to its Run's work; spares do none."""
    if lease.status.end is None or lease.spec.role == "Spare":
        return 0
    gpus = sum(mask.bit_count() for mask in parse_slots(lease.spec.slots).values())
    return gpus * (parse_time(lease.status.end) - parse_time(lease.spec.start))


def cells(run: Run, submitted: int, used: int) -> dict[str, Any]:
    """The Run as a row of a trace."""
    resources = run.spec.resources
    gpus = resources.total_gpus if resources else 0
    ended = run.status.phase in FINISHED and gpus
    return {
        "job_id": f"{run.metadata.namespace}/{run.metadata.name}",
        "user_or_team": run.spec.owner,
        "submit_s": seconds(submitted),
        "duration_s": seconds(used // gpus) if ended else "",
        "gpus": str(gpus),
    }


def seconds(milliseconds: int) -> str:
    whole, rest = divmod(milliseconds, SECOND)
    return f"{whole}.{rest:03d}"
