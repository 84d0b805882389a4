"""The ledger over years on the command line: what left the file is still in every answer about its time."""

import csv
import io
from pathlib import Path

import pytest

from tests.unit.cli.desk import SIM, Answer, Body, Desk, budget, envelope, lasting, nodes, run

POLICY = {
    "apiVersion": SIM,
    "kind": "Policy",
    "spec": {"leaseRetention": "7d", "prices": {"H100-80GB": "2.5"}},
}
DAY_1 = "leases-2026-01-05.jsonl.gz"


@pytest.fixture
def old(desk: Desk) -> Desk:
    """Two jobs of January, long over: their leases are in the archive, one of February is not."""
    desk.cluster(
        POLICY,
        *nodes(2),
        budget("lab", envelope(16, maxGPUHours=1000)),
        budget("org", envelope(8), owner="org"),
    )
    desk.submit(lasting(run("early"), "1h40m"), lasting(run("late", owner="org"), "40h"))
    assert desk.runs("advance", "30d", "--archive", archive(desk)).code == 0
    desk.submit(lasting(run("now"), "2h"))
    assert desk.runs("advance", "1h", "--archive", archive(desk)).code == 0
    return desk


def archive(desk: Desk) -> str:
    return str(desk.directory / "archive")


def rows(answer: Answer) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(answer.out)))


def leases_in_file(desk: Desk) -> int:
    return desk.state.read_text().count("kind: Lease")


def test_old_leases_leave_the_file_for_the_archive(old: Desk) -> None:
    assert leases_in_file(old) == 1
    assert sorted(path.name for path in Path(archive(old)).glob("*.gz")) == [
        DAY_1,
        "leases-2026-01-07.jsonl.gz",
    ]
    shown = old.runs("leases", "--owner", "org:lab")
    assert ("early" in shown.out, "--since TIME reads" in shown.err) == (False, True)
    shown = old.runs("leases", "--owner", "org:lab", "--archive", archive(old))
    assert ("early" in shown.out, shown.err) == (True, "")


def test_without_an_archive_nothing_leaves(desk: Desk) -> None:
    desk.cluster(POLICY, *nodes(1), budget("lab", envelope(16)))
    desk.submit(lasting(run("early"), "1h"))
    desk.runs("advance", "300d")
    assert leases_in_file(desk) == 1


def test_csv_has_a_row_for_every_lease_with_its_cost_in_the_period(old: Desk) -> None:
    answer = old.runs(
        "leases", "--since", "2026-01-05", "--until", "2026-01-06", "--archive", archive(old), "-o", "csv"
    )
    assert answer.code == 0
    early, late = rows(answer)
    assert early == {
        **early,
        "run": "default/early",
        "owner": "org:lab",
        "payer": "org:lab",
        "budget": "lab",
        "envelope": "own",
        "flavor": "H100-80GB",
        "class": "Owned",
        "role": "Active",
        "gpus": "8",
        "rate": "1",
        "start": "2026-01-05T09:00:00Z",
        "end": "2026-01-05T10:40:00Z",
        "from": "2026-01-05T09:00:00Z",
        "to": "2026-01-05T10:40:00Z",
        "gpu_seconds": "48000",
        "gpu_hours": "13.333333333",
        "charged_gpu_hours": "13.333333333",
        "credits": "33.333333333",
        "opened": "Start",
        "closed": "Completed",
    }
    assert (late["end"], late["to"], late["gpu_hours"]) == (
        "2026-01-07T01:00:00Z",
        "2026-01-06T00:00:00Z",
        "120",
    )


def test_an_open_lease_counts_up_to_now(old: Desk) -> None:
    (now,) = rows(old.runs("leases", "--since", "2026-02-01", "--archive", archive(old), "-o", "csv"))
    assert (now["run"], now["end"], now["gpu_hours"], now["closed"]) == ("default/now", "", "8", "")


def test_usage_of_a_period_is_the_sum_of_its_leases(old: Desk) -> None:
    words = ("budgets", "usage", "--since", "2026-01-06", "--until", "2027-01-01", "--archive", archive(old))
    assert [
        (row["budget"], row["gpu_seconds"], row["credits"]) for row in rows(old.runs(*words, "-o", "csv"))
    ] == [
        ("lab", "28800", "20"),
        ("org", "720000", "500"),
    ]
    (lab,) = old.runs(*words, "--owner", "org:lab", "-o", "json").json()["items"]
    assert lab["status"]["envelopes"][0]["usedGPUHours"] == "8"
    assert lab["metadata"]["annotations"]["rq.davidlangworthy.io/since"] == "2026-01-06T00:00:00Z"
    assert "lab/own" in old.runs(*words).out


def test_usage_without_a_period_still_has_every_hour(old: Desk) -> None:
    items: list[Body] = old.runs("budgets", "usage", "-o", "json").json()["items"]
    used = {item["metadata"]["name"]: item["status"]["envelopes"][0]["usedGPUHours"] for item in items}
    assert used == {"lab": "21.333", "org": "320"}
    assert old.saved("Run", "late")["status"]["funding"][0]["gpuHours"] == "320"


def test_a_damaged_file_is_named_the_rest_is_read_and_the_answer_is_no(old: Desk) -> None:
    path = Path(archive(old)) / DAY_1
    path.write_bytes(path.read_bytes()[:60])
    answer = old.runs("leases", "--since", "2026-01-01", "--archive", archive(old), "-o", "csv")
    assert answer.code == 1
    assert [row["run"] for row in rows(answer)] == ["default/late", "default/now"]
    assert f"warning: {DAY_1}: cut short or damaged" in answer.err
    assert "archived leases are missing" in answer.err
    assert f"Archive: {DAY_1}" in old.runs("check", "--archive", archive(old)).out
    usage = old.runs("budgets", "usage", "--since", "2026-01-01", "--archive", archive(old))
    assert (usage.code, DAY_1 in usage.err) == (1, True)


def test_check_adds_the_archive_up(old: Desk) -> None:
    assert old.runs("check", "--archive", archive(old)).code == 0
    (Path(archive(old)) / DAY_1).unlink()
    answer = old.runs("check", "--archive", archive(old))
    assert answer.code == 1
    assert "I10: lab/own carries 48000 GPU-seconds (owned), but its archived leases add up to 0" in answer.out


def test_an_archive_that_cannot_be_written_leaves_the_file_as_it_was(old: Desk) -> None:
    before = old.state.read_bytes()
    (old.directory / "file").write_text("in the way")
    answer = old.runs("advance", "30d", "--archive", str(old.directory / "file" / "x"))
    assert answer.code == 74
    assert "cannot write to" in answer.err
    assert "stays as it was, with all its leases" in answer.err
    assert old.state.read_bytes() == before


def test_a_crash_after_the_archive_was_written_counts_nothing_twice(old: Desk) -> None:
    before = old.state.read_bytes()
    assert old.runs("advance", "30d", "--archive", archive(old)).code == 0
    old.state.write_bytes(before)  # as if the file had not been saved
    answer = old.runs("leases", "--since", "2026-01-01", "--archive", archive(old), "-o", "csv")
    assert sorted(row["run"] for row in rows(answer)) == ["default/early", "default/late", "default/now"]
    assert old.runs("advance", "30d", "--archive", archive(old)).code == 0
    assert old.runs("check", "--archive", archive(old)).code == 0
    usage = rows(
        old.runs("budgets", "usage", "--since", "2026-01-01", "--archive", archive(old), "-o", "csv")
    )
    assert [row["gpu_hours"] for row in usage] == ["29.333333333", "320"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--since", "yesterday"), 2, "--since yesterday: must be a day such as 2026-02-01"),
        (("--since", "2026-02-30"), 2, "--since 2026-02-30: must be a day"),
        (
            ("--since", "2026-02-01", "--until", "2026-01-01"),
            2,
            "--until 2026-01-01 must be later than --since 2026-02-01",
        ),
        (
            ("--since", "2026-02-01", "--archive", "nowhere"),
            3,
            "--archive nowhere: there is no such directory",
        ),
        ((), 2, "with --since TIME, neither is needed"),
    ],
)
def test_bad_input(old: Desk, words: tuple[str, ...], code: int, says: str) -> None:
    answer = old.runs("leases", *words)
    assert (answer.code, says in answer.err) == (code, True), answer.err


def test_csv_is_for_rows_of_figures(old: Desk) -> None:
    assert old.runs("state", "--all", "-o", "csv").code == 2
