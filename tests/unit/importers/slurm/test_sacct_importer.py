import csv
import io

import pytest

from jobtree.api.schema.problems import InputError
from jobtree.importers.slurm.sacct_importer import convert_sacct
from jobtree.importers.slurm.site_mapping import SlurmMap

HEADER = "JobID|User|Account|Submit|Elapsed|AllocTRES|State|\n"


def trace(text: str) -> list[dict[str, str]]:
    mapping = SlurmMap(accounts={"phys": "org:phys"}, gpus={"a100": "A100-80GB"})
    return list(csv.DictReader(io.StringIO(convert_sacct("jobs", text.encode(), mapping, "H100")[0])))


def test_jobs_with_gpus_become_a_trace_in_the_order_of_submission() -> None:
    rows = trace(
        HEADER + "11|eva|phys|2026-01-05T09:10:00|01:00:00|cpu=8,gres/gpu:a100=4,gres/gpu=4|COMPLETED|\n"
        "11.batch||phys|2026-01-05T09:10:00|01:00:00|cpu=8,gres/gpu=4|COMPLETED|\n"
        "10|ben|chem|2026-01-05T09:00:00|1-02:00:00|gres/gpu=8|CANCELLED by 1000|\n"
        "12_3|ben|chem|2026-01-05T09:20:00|00:00:30|cpu=4|FAILED|\n"
    )
    assert rows == [
        {
            "job_id": "10",
            "user_or_team": "chem",
            "submit_s": "0",
            "duration_s": "93600",
            "gpus": "8",
            "gpu_type": "H100",
            "status": "CANCELLED",
        },
        {
            "job_id": "11",
            "user_or_team": "org:phys",
            "submit_s": "600",
            "duration_s": "3600",
            "gpus": "4",
            "gpu_type": "A100-80GB",
            "status": "COMPLETED",
        },
    ]


def test_header_has_the_columns_of_a_trace() -> None:
    text, _ = convert_sacct(
        "jobs", (HEADER + "1|a|b|2026-01-05T09:00:00|5|gres/gpu=1|RUNNING|\n").encode(), SlurmMap(), None
    )
    assert text.splitlines()[0] == "job_id,user_or_team,submit_s,duration_s,gpus,gpu_type,status"


def test_raw_seconds_and_requested_gpus_are_accepted() -> None:
    header = "JobID|Submit|ElapsedRaw|AllocTRES|ReqTRES|State\n"
    text = f"{header}5|2026-01-05T09:00:00|77||gres/gpu=2|PENDING\n"
    (job,) = trace(text)
    assert (job["duration_s"], job["gpus"], job["user_or_team"]) == ("77", "2", "unknown")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER, "has no job with GPUs"),
        (HEADER + "1|a|b|yesterday|5|gres/gpu=1|X|\n", "jobs, line 2: Invalid isoformat"),
        (HEADER + "1|a|b|2026-01-05T09:00:00|long|gres/gpu=1|X|\n", "jobs, line 2: must be M, M:S"),
        ("JobID|State|\n", "has no column Submit"),
    ],
)
def test_mistake_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        trace(text)
