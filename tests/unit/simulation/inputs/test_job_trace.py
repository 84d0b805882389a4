import gzip
from pathlib import Path

import pytest

from jobtree.api.schema.problems import InputError
from jobtree.simulation.inputs.job_trace import NOBODY, Cut, fitting, read_trace, skipped_lines

HEAD = "job_id,user_or_team,submit_s,duration_s,gpus,gpu_type,status\n"


def write_trace(directory: Path, rows: str, head: str = HEAD) -> str:
    path = directory / "jobs.csv"
    path.write_text(head + rows)
    return str(path)


def test_jobs_are_sorted_by_submission(tmp_path: Path) -> None:
    trace = read_trace(write_trace(tmp_path, "b,t2,20,5,8,,\na,t1,10,1.5,1,,\nc,t1,20,7,2,,\n"))
    assert list(trace.submit) == [10_000, 20_000, 20_000]
    assert list(trace.duration) == [1_500, 5_000, 7_000]
    assert list(trace.gpus) == [1, 8, 2]
    assert [trace.teams[team] for team in trace.team] == ["t1", "t2", "t1"]
    assert list(trace.row) == [3, 2, 4]
    assert skipped_lines(trace) == []


def test_trace_may_be_compressed_and_have_extra_columns_and_no_teams(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv.gz"
    path.write_bytes(gzip.compress(b"extra,job_id,gpus,submit_s,duration_s\nx,a,1,0,1\ny,b,2,0,1\n"))
    trace = read_trace(str(path), cut=Cut((("extra", "y"),)))
    assert list(trace.gpus) == [2]
    assert trace.teams == (NOBODY,)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,t,0,-5,1,,", 'duration_s: "-5" is not allowed: must not be negative'),
        ("a,t,0,,1,,", "duration_s: is missing"),
        ("a,t,0,0,1,,", 'duration_s: "0" is not allowed: must be more than 0'),
        ("a,t,0,long,1,,", 'duration_s: "long" is not allowed: must be a number of seconds'),
        ("a,t,0,nan,1,,", 'duration_s: "nan" is not allowed: must be less than 1000000000'),
        ("a,t,-1,5,1,,", 'submit_s: "-1" is not allowed: must not be negative'),
        ("a,t,0,5,0,,", 'gpus: "0" is not allowed: must be a whole number, 1 or more'),
        ("a,t,0,5,1.5,,", 'gpus: "1.5" is not allowed: must be a whole number, 1 or more'),
        ("a,t,0,5,65,,", 'gpus: "65" is not allowed: the fleet has 64'),
        (f"a,t,0,5,{'9' * 5_000},,", f'gpus: "{"9" * 78}… is not allowed: the fleet has 64'),
        ("good,t,0,5,1,,", 'job_id: "good" is not allowed: stands in an earlier row already'),
        (",t,0,5,1,,", "job_id: is missing"),
        ("a,t,0", "duration_s: is missing"),
    ],
)
def test_bad_row_is_skipped_counted_and_reported(tmp_path: Path, row: str, message: str) -> None:
    path = write_trace(tmp_path, f"good,t,0,5,1,,\n{row}\nother,t,1,5,1,,\n")
    trace = read_trace(path, most_gpus=64)
    assert len(trace) == 2
    assert sum(trace.skipped.values()) == 1
    assert skipped_lines(trace)[1] == f"{path}, line 3: {message}"


def test_bad_rows_are_counted_by_rule_and_the_first_are_reported(tmp_path: Path) -> None:
    rows = "".join(f"bad{number},t,0,-1,1,,\n" for number in range(1000))
    trace = read_trace(write_trace(tmp_path, f"good,t,0,5,1,,\n{rows}"))
    assert trace.skipped == {"duration_s: must not be negative": 1000}
    assert len(skipped_lines(trace)) == 6


def test_cut_takes_a_part_of_the_trace(tmp_path: Path) -> None:
    rows = "".join(f"j{number},t,{number},5,1,,\n" for number in range(10))
    trace = read_trace(write_trace(tmp_path, rows), cut=Cut((), 3, 6))
    assert [submit // 1000 for submit in trace.submit] == [3, 4, 5]


def test_cut_by_an_unknown_column_is_refused(tmp_path: Path) -> None:
    rule = '--where: "clster" is not allowed: there is no such column; there are job_id, user_or_team'
    with pytest.raises(InputError, match=rule):
        read_trace(write_trace(tmp_path, "a,t,0,5,1,,\n"), cut=Cut((("clster", "4"),)))


def test_jobs_too_large_for_a_smaller_fleet_are_skipped(tmp_path: Path) -> None:
    trace = read_trace(write_trace(tmp_path, "a,t,0,5,8,,\nb,t,1,6,16,,\nc,u,2,7,4,,\n"))
    smaller = fitting(trace, 8)
    assert list(smaller.gpus) == [8, 4]
    assert list(smaller.duration) == [5_000, 7_000]
    assert list(smaller.row) == [2, 4]  # the declared durations depend on the row
    assert smaller.skipped == {"gpus: the fleet has 8": 1}
    assert smaller.digest != trace.digest
    assert fitting(trace, 16) is trace
    with pytest.raises(InputError, match="the fleet has 2: no job is left to replay"):
        fitting(trace, 2)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "these are missing: job_id, submit_s, duration_s, gpus"),
        ("job_id,submit_s,gpus\n", "these are missing: duration_s"),
        (HEAD, "there are no rows to replay"),
        (f"{HEAD}a,t,0,-1,1,,\n", "no row is left to replay"),
    ],
)
def test_file_without_a_trace_is_refused(tmp_path: Path, text: str, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        read_trace(write_trace(tmp_path, text, head=""))


def test_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        read_trace(str(tmp_path / "missing.csv"))
    (tmp_path / "binary.csv").write_bytes(b"job_id\xff\xfe")
    with pytest.raises(InputError, match="is not text in UTF-8"):
        read_trace(str(tmp_path / "binary.csv"))
    (tmp_path / "cut.gz").write_bytes(gzip.compress(HEAD.encode() * 1000)[:40])
    with pytest.raises(InputError, match="cannot be read"):
        read_trace(str(tmp_path / "cut.gz"))
    with pytest.raises(InputError, match="cannot be read"):
        read_trace(str(tmp_path))


def test_digest_depends_on_the_replayed_jobs(tmp_path: Path) -> None:
    path = write_trace(tmp_path, "a,t,0,5,1,,\nb,t,1,5,1,,\n")
    first = read_trace(path).digest
    assert read_trace(path).digest == first
    assert read_trace(path, cut=Cut((), 0, 1)).digest != first
    assert read_trace(write_trace(tmp_path, "a,t,0,5,1,,\nb,t,1,6,1,,\n")).digest != first


def test_row_needs_forty_bytes(tmp_path: Path) -> None:
    """A million rows need 40 MB of memory."""
    trace = read_trace(
        write_trace(tmp_path, "".join(f"job-{n},team-{n % 9},{n},60,1,,\n" for n in range(5_000)))
    )
    columns = (trace.submit, trace.duration, trace.gpus, trace.team, trace.row)
    assert [len(column) for column in columns] == [5_000] * 5
    assert sum(column.itemsize for column in columns) == 40
    assert len(trace.teams) == 9
