"""Reads the ledger of a cluster as a trace: its Runs, and the GPU-time of their leases.

A file of ``kubectl get runs,gpuleases -A -o yaml`` is enough. Each finished Run becomes a job: its submission
is the creation of the Run, and its duration is the GPU-time of its closed leases at the full width. A deleted
Run becomes a job by its leases: its submission is their first start, its GPUs are the most that they held at
one time. Runs that wait or run, and Runs that never had a GPU, have no known duration; they are skipped and
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
ENDED = "ended"  # leases do not say how a Run ended
ENDINGS = (".yaml", ".yml", ".json")
COLUMNS = ("job_id", "user_or_team", "submit_s", "duration_s", "gpus", "gpu_type", "status")


class LeaseJob(NamedTuple):
    """A job with the values of the columns; times are in milliseconds."""

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
            raise BadRowError(
                "status",
                cells["status"],
                "must be that of a Run that has ended",
            )
        return super().checked(cells)


def read_ledger(path: str, most_gpus: int, cut: Cut) -> Trace:
    """Returns the finished Runs of a file of Kubernetes objects. Raises InputError."""
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
    """Yields the Runs that need GPUs: the stages of a tree, but not the tree itself."""
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
    """Yields the deleted Runs, as their leases describe them."""
    present = {run.metadata.uid for run in runs}
    by_deleted_run: dict[str, list[Lease]] = {}
    for lease in leases:
        if lease.spec.run_ref.uid not in present and lease.spec.role != "Spare":
            by_deleted_run.setdefault(lease.spec.run_ref.uid, []).append(lease)
    for uid in sorted(by_deleted_run):
        own = by_deleted_run[uid]
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
    """Returns the most GPUs that were held at one time; at one instant, ends come before starts."""
    changes = []
    for lease in leases:
        changes.append((parse_time(lease.spec.start), requested_gpus(lease)))
        if lease.status.end is not None:
            changes.append((parse_time(lease.status.end), -requested_gpus(lease)))
    return max(accumulate(change for _, change in sorted(changes)), default=0)


def gpu_times(runs: Iterable[Run], leases: Iterable[Lease]) -> dict[str, int]:
    """Returns GPU-milliseconds by the UID of the Run: those of its leases, and its carried usage."""
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
    """Returns the GPU-milliseconds of a closed lease; spares do no work."""
    if lease.status.end is None or lease.spec.role == "Spare":
        return 0
    return requested_gpus(lease) * (parse_time(lease.status.end) - parse_time(lease.spec.start))


def requested_gpus(lease: Lease) -> int:
    return sum(mask.bit_count() for mask in parse_slots(lease.spec.slots).values())


def format_seconds(milliseconds: int) -> str:
    whole, rest = divmod(milliseconds, SECOND)
    return f"{whole}.{rest:03d}"
