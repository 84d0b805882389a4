"""Leases that were moved to the archive are still in every answer about their time."""

import csv
import io
from pathlib import Path

import pytest

from tests.unit.cli.cli_runner import CliRunner, CommandResult
from tests.unit.cli.manifests import SIM, Body, budget, envelope, lasting, nodes, run

POLICY = {
    "apiVersion": SIM,
    "kind": "Policy",
    "spec": {"leaseRetention": "7d", "prices": {"H100-80GB": "2.5"}},
}
DAY_1 = "leases-2026-01-05.jsonl.gz"


@pytest.fixture
def archived(cli: CliRunner) -> CliRunner:
    """A cluster with the archived leases of two jobs of January, and one lease of February in the file."""
    cli.write_cluster(
        POLICY,
        *nodes(2),
        budget("lab", envelope(16, maxGPUHours=1000)),
        budget("org", envelope(8), owner="org"),
    )
    cli.submit(lasting(run("early"), "1h40m"), lasting(run("late", owner="org"), "40h"))
    assert cli.runs("advance", "30d", "--archive", archive(cli)).code == 0
    cli.submit(lasting(run("now"), "2h"))
    assert cli.runs("advance", "1h", "--archive", archive(cli)).code == 0
    return cli


def archive(cli: CliRunner) -> str:
    return str(cli.directory / "archive")


def rows(answer: CommandResult) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(answer.out)))


def leases_in_file(cli: CliRunner) -> int:
    return cli.state.read_text().count("kind: Lease")


def test_advance_moves_old_leases_to_the_archive(archived: CliRunner) -> None:
    assert leases_in_file(archived) == 1
    assert sorted(path.name for path in Path(archive(archived)).glob("*.gz")) == [
        DAY_1,
        "leases-2026-01-07.jsonl.gz",
    ]
    answer = archived.runs("leases", "--owner", "org:lab")
    assert ("early" in answer.out, "--since TIME reads" in answer.err) == (False, True)
    answer = archived.runs("leases", "--owner", "org:lab", "--archive", archive(archived))
    assert ("early" in answer.out, answer.err) == (True, "")


def test_advance_keeps_old_leases_when_there_is_no_archive(cli: CliRunner) -> None:
    cli.write_cluster(POLICY, *nodes(1), budget("lab", envelope(16)))
    cli.submit(lasting(run("early"), "1h"))
    cli.runs("advance", "300d")
    assert leases_in_file(cli) == 1


def test_csv_has_a_row_for_each_lease_with_its_cost_in_the_period(archived: CliRunner) -> None:
    answer = archived.runs(
        "leases",
        "--since",
        "2026-01-05",
        "--until",
        "2026-01-06",
        "--archive",
        archive(archived),
        "-o",
        "csv",
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


def test_csv_counts_an_open_lease_up_to_now(archived: CliRunner) -> None:
    (now,) = rows(
        archived.runs("leases", "--since", "2026-02-01", "--archive", archive(archived), "-o", "csv")
    )
    assert (now["run"], now["end"], now["gpu_hours"], now["closed"]) == ("default/now", "", "8", "")


def test_usage_of_a_period_is_the_sum_of_its_leases(archived: CliRunner) -> None:
    words = (
        "budgets",
        "usage",
        "--since",
        "2026-01-06",
        "--until",
        "2027-01-01",
        "--archive",
        archive(archived),
    )
    assert [
        (row["budget"], row["gpu_seconds"], row["credits"])
        for row in rows(archived.runs(*words, "-o", "csv"))
    ] == [
        ("lab", "28800", "20"),
        ("org", "720000", "500"),
    ]
    (lab,) = archived.runs(*words, "--owner", "org:lab", "-o", "json").json()["items"]
    assert lab["status"]["envelopes"][0]["usedGPUHours"] == "8"
    assert lab["metadata"]["annotations"]["rq.davidlangworthy.io/since"] == "2026-01-06T00:00:00Z"
    assert "lab/own" in archived.runs(*words).out


def test_usage_without_a_period_includes_archived_leases(archived: CliRunner) -> None:
    items: list[Body] = archived.runs("budgets", "usage", "-o", "json").json()["items"]
    used = {item["metadata"]["name"]: item["status"]["envelopes"][0]["usedGPUHours"] for item in items}
    assert used == {"lab": "21.333", "org": "320"}
    assert archived.saved("Run", "late")["status"]["funding"][0]["gpuHours"] == "320"


def test_leases_names_a_damaged_file_reads_the_rest_and_exits_1(archived: CliRunner) -> None:
    path = Path(archive(archived)) / DAY_1
    path.write_bytes(path.read_bytes()[:60])
    answer = archived.runs("leases", "--since", "2026-01-01", "--archive", archive(archived), "-o", "csv")
    assert answer.code == 1
    assert [row["run"] for row in rows(answer)] == ["default/late", "default/now"]
    assert f"warning: {DAY_1}: cut short or damaged" in answer.err
    assert "archived leases are missing" in answer.err
    assert f"Archive: {DAY_1}" in archived.runs("check", "--archive", archive(archived)).out
    usage = archived.runs("budgets", "usage", "--since", "2026-01-01", "--archive", archive(archived))
    assert (usage.code, DAY_1 in usage.err) == (1, True)


def test_check_compares_carried_usage_with_the_archive(archived: CliRunner) -> None:
    assert archived.runs("check", "--archive", archive(archived)).code == 0
    (Path(archive(archived)) / DAY_1).unlink()
    answer = archived.runs("check", "--archive", archive(archived))
    assert answer.code == 1
    assert "I10: lab/own carries 48000 GPU-seconds (owned), but its archived leases add up to 0" in answer.out


def test_advance_keeps_the_file_when_the_archive_cannot_be_written(archived: CliRunner) -> None:
    before = archived.state.read_bytes()
    (archived.directory / "file").write_text("in the way")
    answer = archived.runs("advance", "30d", "--archive", str(archived.directory / "file" / "x"))
    assert answer.code == 74
    assert "cannot write to" in answer.err
    assert "stays as it was, with all its leases" in answer.err
    assert archived.state.read_bytes() == before


def test_usage_counts_leases_once_when_the_file_was_not_saved_after_archiving(archived: CliRunner) -> None:
    before = archived.state.read_bytes()
    assert archived.runs("advance", "30d", "--archive", archive(archived)).code == 0
    archived.state.write_bytes(before)  # as if the file had not been saved
    answer = archived.runs("leases", "--since", "2026-01-01", "--archive", archive(archived), "-o", "csv")
    assert sorted(row["run"] for row in rows(answer)) == ["default/early", "default/late", "default/now"]
    assert archived.runs("advance", "30d", "--archive", archive(archived)).code == 0
    assert archived.runs("check", "--archive", archive(archived)).code == 0
    usage = rows(
        archived.runs(
            "budgets", "usage", "--since", "2026-01-01", "--archive", archive(archived), "-o", "csv"
        )
    )
    assert [row["gpu_hours"] for row in usage] == ["29.333333333", "320"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
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
def test_leases_refuses_invalid_options(
    archived: CliRunner, words: tuple[str, ...], code: int, message: str
) -> None:
    answer = archived.runs("leases", *words)
    assert (answer.code, message in answer.err) == (code, True), answer.err


def test_state_refuses_csv(archived: CliRunner) -> None:
    assert archived.runs("state", "--all", "-o", "csv").code == 2
