"""The ledger of a cluster as a trace: what its Runs asked for, and the GPU-time that their leases used.

A file of ``kubectl get runs,gpuleases -A -o yaml`` is enough. A job is a finished Run: submitted when it was
created, as long as its closed leases together would have lasted at its full width. A Run that was deleted is
told by its leases: submitted when the first of them began, as wide as they ever were together. Runs that
still wait or run, and those that never held a GPU, say nothing about how long they take, and are skipped and
counted.
"""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from jobtree.api.documents.document_stream import read_documents
from jobtree.api.kinds.lease import Lease
from jobtree.api.kinds.run import Run
from jobtree.api.schema.problems import InputError
from jobtree.api.schema.quantities import MILLI, SECOND, parse_micro, parse_slots, parse_time
from jobtree.api.validation.object_parser import parse_object
from jobtree.simulation.inputs.csv_table import BadRowError
from jobtree.simulation.inputs.job_trace import Cut, Trace, TraceReader, TraceRow

FINISHED = ("Completed", "Failed")
ENDED = "ended"  # how, its leases do not say
ENDINGS = (".yaml", ".yml", ".json")
COLUMNS = ("job_id", "user_or_team", "submit_s", "duration_s", "gpus", "gpu_type", "status")


class LeaseJob(NamedTuple):
    """As the columns, times in milliseconds."""

    name: str
    owner: str
    submitted: int
    lasted: int
    gpus: int
    flavor: str
    status: str

    def cells(self, first: int) -> dict[str, str]:
        times = (format_seconds(self.submitted - first), format_seconds(self.lasted))
        values = (self.name, self.owner, *times, str(self.gpus), self.flavor, self.status)
        return dict(zip(COLUMNS, values, strict=True))


def is_ledger(path: str) -> bool:
    return path.endswith(ENDINGS)


class LedgerReader(TraceReader):
    def place(self, number: int, cells: dict[str, str]) -> str:  # noqa: ARG002  the reader's signature
        return f"Run {cells['job_id']}"

    def checked(self, cells: dict[str, str]) -> TraceRow:
        if cells["status"] not in (*FINISHED, ENDED):
            raise BadRowError("status", cells["status"], "only Runs that have ended tell how long they take")
        return super().checked(cells)


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
    reader = LedgerReader(path, COLUMNS, most_gpus, cut)
    jobs = [*of_runs(runs, leases), *of_leases(runs, leases)]
    first = min((job.submitted for job in jobs), default=0)
    for number, job in enumerate(jobs, 1):
        reader.take(number, job.cells(first))
    return reader.trace(sha256(text.encode()).hexdigest())


def of_runs(runs: Iterable[Run], leases: Iterable[Lease]) -> Iterator[LeaseJob]:
    """Every Run that asks for GPUs itself; of a tree, its stages do."""
    used = gpu_times(runs, leases)
    for run in runs:
        if (asked := run.spec.resources) is None:
            continue
        yield LeaseJob(
            f"{run.metadata.namespace}/{run.metadata.name}",
            run.spec.owner,
            parse_time(run.metadata.creation_timestamp or "1970-01-01T00:00:00Z"),
            used.get(run.metadata.uid, 0) // max(1, asked.total_gpus),
            asked.total_gpus,
            asked.gpu_type or "",
            run.status.phase or "Pending",
        )


def of_leases(runs: Iterable[Run], leases: Iterable[Lease]) -> Iterator[LeaseJob]:
    """Runs that are gone, by what their leases tell."""
    present = {run.metadata.uid for run in runs}
    gone: dict[str, list[Lease]] = {}
    for lease in leases:
        if lease.spec.run_ref.uid not in present and lease.spec.role != "Spare":
            gone.setdefault(lease.spec.run_ref.uid, []).append(lease)
    for uid in sorted(gone):
        own = gone[uid]
        first, gpus = own[0].spec, widest(own)
        yield LeaseJob(
            f"{first.run_ref.namespace}/{first.run_ref.name} ({uid})",
            first.owner,
            min(parse_time(lease.spec.start) for lease in own),
            sum(map(gpu_time, own)) // max(1, gpus),
            gpus,
            first.flavor,
            ENDED if all(lease.status.end is not None for lease in own) else "Running",
        )


def widest(leases: Iterable[Lease]) -> int:
    """The most GPUs that were held at one time; at one instant what ends makes room for what begins."""
    changes = []
    for lease in leases:
        changes.append((parse_time(lease.spec.start), requested_gpus(lease)))
        if lease.status.end is not None:
            changes.append((parse_time(lease.status.end), -requested_gpus(lease)))
    return max(accumulate(change for _, change in sorted(changes)), default=0)


def gpu_times(runs: Iterable[Run], leases: Iterable[Lease]) -> dict[str, int]:
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
    return requested_gpus(lease) * (parse_time(lease.status.end) - parse_time(lease.spec.start))


def requested_gpus(lease: Lease) -> int:
    return sum(mask.bit_count() for mask in parse_slots(lease.spec.slots).values())


def format_seconds(milliseconds: int) -> str:
    whole, rest = divmod(milliseconds, SECOND)
    return f"{whole}.{rest:03d}"
