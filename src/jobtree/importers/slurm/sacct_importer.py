"""Converts past jobs (``sacct -p``) to a trace, with a CSV line for each job that had GPUs.

``submit_s`` counts from the first submission. A job that still runs has its duration so far. The steps of
jobs are left out.
"""

import csv
import io
from datetime import datetime
from typing import Final, NamedTuple

from jobtree.api.schema.problems import InputError
from jobtree.api.schema.quantities import SECOND
from jobtree.importers.conversion import Converted
from jobtree.importers.slurm.parsable_table import TableRow, gpus_in, read_table
from jobtree.importers.slurm.script.option_values import duration_ms
from jobtree.importers.slurm.site_mapping import SlurmMap

COMMAND: Final = "sacct -p -o JobID,User,Account,Submit,Elapsed,AllocTRES,State"
NEEDED: Final = ("JobID", "Submit", "State")
HEADER: Final = ("job_id", "user_or_team", "submit_s", "duration_s", "gpus", "gpu_type", "status")
UNKNOWN: Final = ("", "Unknown", "None", "N/A")


class SacctJob(NamedTuple):
    id: str
    team: str
    submit: datetime
    seconds: int
    gpus: int
    gpu_type: str
    status: str


def convert_sacct(source: str, raw: bytes, mapping: SlurmMap, gpu_type: str | None) -> tuple[str, Converted]:
    """Returns the trace as CSV, and the remarks. Raises InputError."""
    out = Converted()
    jobs: list[SacctJob] = []
    omitted = 0
    for where, row in read_table(raw, source, NEEDED, COMMAND):
        if "." in row["JobID"]:
            continue
        job = _job(row, where, mapping, gpu_type)
        if job is None:
            omitted += 1
        else:
            jobs.append(job)
    if omitted:
        out.remark(source, f"{omitted} jobs without GPUs or without a time", "are not in the trace")
    if not jobs:
        raise InputError(source, [f"has no job with GPUs: give the output of '{COMMAND}'"])
    jobs.sort(key=lambda job: (job.submit, job.id))
    return _written(jobs), out


def _job(row: TableRow, where: str, mapping: SlurmMap, gpu_type: str | None) -> SacctJob | None:
    try:
        gpus_by_type = gpus_in(row.get("AllocTRES") or row.get("ReqTRES", "")) or gpus_in(
            row.get("ReqTRES", "")
        )
        seconds = _seconds(row)
        submit = (
            None if row["Submit"] in UNKNOWN else datetime.fromisoformat(row["Submit"]).replace(tzinfo=None)
        )
    except ValueError as broken:
        raise InputError(where, [str(broken)]) from None
    kind = next((kind for kind in sorted(gpus_by_type) if kind), "")
    gpus = gpus_by_type.get("", sum(gpus_by_type.values()))
    if not gpus or submit is None:
        return None
    account = row.get("Account", "")
    team = mapping.accounts.get(account) or account or row.get("User") or "unknown"
    flavor = mapping.gpus.get(kind) or kind or gpu_type or mapping.gpu_type or ""
    return SacctJob(
        row["JobID"], team, submit, seconds, gpus, flavor, row["State"].split()[0] if row["State"] else ""
    )


def _seconds(row: TableRow) -> int:
    raw = row.get("ElapsedRaw", "")
    if raw.isascii() and raw.isdecimal():
        return int(raw[:12])
    text = row.get("Elapsed", "")
    return 0 if text in UNKNOWN else (duration_ms(text) or 0) // SECOND


def _written(jobs: list[SacctJob]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for job in jobs:
        submit = int((job.submit - jobs[0].submit).total_seconds())
        writer.writerow([job.id, job.team, submit, job.seconds, job.gpus, job.gpu_type, job.status])
    return text.getvalue()
