"""``kubectl runs simulate``: options, reports, invalid input and interruptions."""

import errno
import json
import signal
from pathlib import Path

import pytest

from jobtree.cli.shell.progress_line import ProgressLine
from jobtree.cli.verbs.simulate import POLICIES
from jobtree.simulation.replay.engine import Simulation
from jobtree.simulation.schedulers.scheduler_names import POLICIES as SCHEDULER_POLICIES
from tests.unit.cli.cli_runner import CliRunner, CommandResult
from tests.unit.cli.manifests import budget, envelope, lasting, nodes, run

WEEK = Path(__file__).parents[4] / "config" / "samples" / "traces" / "week.csv"
HEADER = "job_id,user_or_team,submit_s,duration_s,gpus,gpu_type,status\n"


@pytest.fixture(name="jobs")
def _jobs(tmp_path: Path) -> str:
    """A trace of two teams; on one node, the second job has to wait for the first."""
    path = tmp_path / "jobs.csv"
    path.write_text(f"{HEADER}a,lab,0,3600,8,,\nb,sub,1800,600,8,,\nc,lab,7200,600,4,,\n")
    return str(path)


def simulate(cli: CliRunner, *words: str) -> CommandResult:
    return cli.without_state("simulate", *words)


def test_verb_offers_all_policies() -> None:
    assert list(POLICIES) == list(SCHEDULER_POLICIES)


@pytest.mark.parametrize("policy", POLICIES)
def test_simulate_prints_a_report_for_each_policy(cli: CliRunner, jobs: str, policy: str) -> None:
    answer = simulate(cli, jobs, "--nodes", "1", "--policy", policy, "--budget", "sub=100%")
    assert answer.code == 0, answer.err
    assert answer.out.startswith(f"{policy} on jobs.csv: 3 jobs, 10 GPU-hours, on 1 node with 8 GPUs")
    assert "fairness" in answer.out


def test_simulate_takes_fleet_and_budgets_from_a_state_file(cli: CliRunner, jobs: str) -> None:
    cli.write_cluster(*nodes(2), budget("lab", envelope(8)), budget("sub", envelope(8), owner="org:lab:sub"))
    before = cli.state.read_text()
    report = cli.runs("simulate", jobs, "-o", "json").json()
    assert report["kind"] == "Report"
    assert report["spec"]["gpus"] == 16
    assert report["spec"]["budgets"] == {"lab": 8, "sub": 8}
    assert report["status"]["finished"] == 3
    assert cli.state.read_text() == before


def test_simulate_writes_reports_and_compares_them(cli: CliRunner, jobs: str) -> None:
    for policy in ("fifo", "sjf"):
        words = ("--nodes", "1", "--policy", policy, "--json", f"{policy}.json", "--html", "page.html")
        assert simulate(cli, jobs, *words).code == 0
    assert json.loads(Path("fifo.json").read_text())["spec"]["policy"] == "fifo"
    assert Path("page.html").read_text().startswith("<!DOCTYPE html>")
    answer = simulate(cli, "compare", "fifo.json", "sjf.json")
    assert answer.code == 0
    assert "fifo.json  sjf.json" in answer.out
    listed = simulate(cli, "compare", "fifo.json", "sjf.json", "-o", "json").json()
    assert [item["spec"]["policy"] for item in listed["items"]] == ["fifo", "sjf"]


def test_what_if_replays_both_cases_and_compares_them(cli: CliRunner, jobs: str) -> None:
    answer = simulate(cli, jobs, "--nodes", "1", "--nodes", "+1", "--policy", "fifo")
    assert answer.out.startswith("what if: nodes +1")
    (wait,) = (line.split() for line in answer.out.splitlines() if line.startswith("wait mean  "))
    assert wait[2:] == ["600", "s", "0", "s", "-600", "s"]
    reports = simulate(
        cli,
        jobs,
        "--nodes",
        "2",
        "--what-if",
        "budget lab concurrency=4",
        "--what-if",
        "nodes -1",
        "-o",
        "json",
    ).json()
    assert [item["spec"]["whatIf"] for item in reports["items"]] == [
        [],
        ["budget lab concurrency=4", "nodes -1"],
    ]
    assert [item["spec"]["budgets"]["lab"] for item in reports["items"]][1] == 4


def test_simulate_prints_skipped_rows_to_stderr(cli: CliRunner, jobs: str) -> None:
    Path(jobs).write_text(f"{HEADER}a,lab,0,3600,8,,\nb,lab,0,-1,8,,\nc,lab,0,60,99,,\na,lab,5,60,1,,\n")
    answer = simulate(cli, jobs, "--nodes", "1", "--policy", "fifo")
    assert answer.code == 0
    assert answer.err.startswith("3 rows were skipped: ")
    assert 'line 4: gpus: "99" is not allowed: the fleet has 8' in answer.err
    assert simulate(cli, jobs, "--nodes", "1", "--policy", "fifo", "-o", "json").json()["spec"]["skippedRows"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["missing.csv", "--nodes", "1"], 2, "missing.csv: there is no such file"),
        (["jobs.csv"], 2, "name a state file"),
        (["jobs.csv", "--nodes", "many"], 2, '--nodes: "many" is not allowed'),
        (["jobs.csv", "--nodes", "0"], 2, "must be between 1 and"),
        (["jobs.csv", "--nodes", "1", "--nodes", "2"], 2, "give one size of the fleet"),
        (["jobs.csv", "--nodes", "1", "--budget", "lab"], 2, "must be NAME=VALUE"),
        (["jobs.csv", "--nodes", "1", "--budget", "other=1"], 2, "the trace has lab, sub"),
        (["jobs.csv", "--nodes", "1", "--what-if", "budget X concurrency=256"], 2, "there is no such budget"),
        (["jobs.csv", "--nodes", "1", "--checkpoint", "soon"], 2, "--checkpoint: 'soon' is not a duration"),
        (["jobs.csv", "--nodes", "1", "--checkpoint", "0s"], 2, "must be more than 0, or none"),
        (["jobs.csv", "--nodes", "1", "--faults", "1d/2h/1h"], 2, "p90 above p50"),
        (["jobs.csv", "--nodes", "1", "--faults", "a/b/no.csv"], 2, '--faults: "a/b/no.csv" is not allowed'),
        (["jobs.csv", "--nodes", "1", "--faults", "5"], 2, "not a set of rates such as 239d/20h/312h"),
        (["jobs.csv", "--nodes", "1", "--json", "no/such/x.json"], 74, "there is no directory no/such"),
        (["jobs.csv", "--nodes", "1", "--html", "."], 74, "cannot write .: is a directory"),
        (["jobs.csv", "--nodes", "1", "--resume", "no/such/kept"], 74, "cannot write no/such/kept"),
        (["jobs.csv", "other.csv", "--nodes", "1"], 2, "give only one trace"),
        (["compare", "a.json"], 2, "compare needs two reports"),
        (["compare", "jobs.csv", "jobs.csv"], 2, "jobs.csv: is not a report"),
        (["compare", "a.json", "b.json"], 2, "a.json: there is no such file"),
        (["--state", "no.yaml", "jobs.csv"], 3, "there is no state file no.yaml"),
        (["jobs.csv", "--budget", "lab=8", "--state", "no.yaml"], 2, "--budget is for a made-up fleet"),
        (["jobs.csv", "--domains", "2", "--state", "no.yaml"], 2, "--domains is for a made-up fleet"),
        (["jobs.csv", "--nodes", "1", "--flavor", "X"], 2, "--flavor is for the fleet of a state file"),
        (["jobs.csv", "--nodes", "1", "--budget", "lab=1", "--budget", "lab=2"], 2, "is given twice"),
        (["jobs.csv", "--nodes", "9" * 5_000], 2, "must be a number such as 16"),
        (["jobs.csv", "--nodes", "1", "--where", "clster=7"], 2, "there is no such column"),
        (["jobs.csv", "--nodes", "1", "--where", "gpus=7"], 2, "there are no rows to replay"),
    ],
)
@pytest.mark.usefixtures("jobs")
def test_simulate_refuses_invalid_input_before_the_replay(
    cli: CliRunner, words: list[str], code: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobtree.cli.tasks.replay_run.replay", lambda *_: pytest.fail("it was replayed"))
    answer = simulate(cli, *words)
    assert answer.code == code
    assert message in answer.err
    assert "Traceback" not in answer.err


def test_simulate_names_teams_without_a_budget(cli: CliRunner, jobs: str) -> None:
    answer = cli.runs("simulate", jobs)
    assert answer.code == 2
    assert 'user_or_team: "sub" is not allowed: no Budget has such an owner or name' in answer.err


class Interrupts:
    """Replaces the progress line, and sends a signal at the given call of ``show``."""

    def __init__(self, number: signal.Signals, after: int) -> None:
        self._number, self._left = number, after

    def show(self, _: int) -> bool:
        self._left -= 1
        if not self._left:
            signal.raise_signal(self._number)
        return False


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_replay_is_saved_and_resumed(
    cli: CliRunner, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    words = (str(WEEK), "--nodes", "16", "--policy", "easy", "--faults", "20d/2h/12h", "--resume", "kept")
    assert simulate(cli, *words, "--json", "whole.json").code == 0
    assert not Path("kept").exists()
    with monkeypatch.context() as patched:
        patched.setattr(ProgressLine, "show", Interrupts(number, 300).show)
        answer = simulate(cli, *words, "--json", "never.json")
    assert answer.code == code
    assert "the same command continues from kept" in answer.err
    assert not Path("never.json").exists()
    other = simulate(cli, *words[:-2], "--seed", "2", "--resume", "kept")
    assert other.code == 74
    assert "is a replay of something else" in other.err
    assert simulate(cli, *words, "--json", "resumed.json").code == 0
    assert Path("resumed.json").read_bytes() == Path("whole.json").read_bytes()
    assert not Path("kept").exists()


def test_interrupted_what_if_does_not_repeat_the_first_replay(
    cli: CliRunner, jobs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (jobs, "--nodes", "1", "--nodes", "+1", "--policy", "fifo", "--resume", "kept", "-o", "json")
    undisturbed = simulate(cli, *words).json()
    steps: list[int] = []

    def counted_step(self: Simulation) -> bool:
        steps.append(len(self.setup.nodes))
        return step(self)

    step = Simulation.step
    monkeypatch.setattr(Simulation, "step", counted_step)
    with monkeypatch.context() as patched:
        patched.setattr(ProgressLine, "show", Interrupts(signal.SIGINT, 8).show)
        assert "continues from kept.what-if" in simulate(cli, *words).err
    steps.clear()
    assert simulate(cli, *words).json() == undisturbed
    assert steps.count(1) == 1  # one step to find that the replay on one node is over
    assert not list(Path().glob("*kept*"))


def test_replay_is_printed_and_saved_when_the_report_cannot_be_written(
    cli: CliRunner, jobs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (jobs, "--nodes", "1", "--policy", "fifo", "--resume", "kept", "--json", "full.json")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full_disk)
        answer = simulate(cli, *words)
    assert answer.code == 74
    assert "cannot write full.json: No space left on device" in answer.err
    assert "fairness" in answer.out
    assert Path("kept").exists()
    assert simulate(cli, *words).code == 0
    assert Path("full.json").exists()


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_outages_follow_the_fleet_of_a_what_if(cli: CliRunner) -> None:
    """Removed nodes do not fail, and added nodes do."""
    outages = {}
    for change in ("-8", "+16"):
        words = ("--nodes", "16", "--nodes", change, "--policy", "fifo", "--faults", "5d/2h/12h")
        reports = simulate(cli, str(WEEK), *words, "-o", "json").json()["items"]
        before, outages[change] = (item["spec"]["outages"] for item in reports)
    assert outages["-8"] < before < outages["+16"]


def test_ledger_of_a_cluster_is_replayed_as_a_trace(cli: CliRunner) -> None:
    cli.submit(lasting(run("first"), "2h"), lasting(run("second"), "30m"), run("waits"))
    cli.runs("advance", "3h")
    answer = cli.runs("simulate", str(cli.state), "--policy", "fifo", "-o", "json")
    report = answer.json()
    assert report["spec"]["jobs"] == 2
    assert report["spec"]["workGPUHours"] == 8 * 2.5
    assert report["spec"]["budgets"] == {"org:lab": 8}
    assert report["spec"]["skippedRows"] == {"status: must be that of a Run that has ended": 1}
    assert 'Run default/waits: status: "Running" is not allowed' in answer.err
    assert report["status"]["makespanHours"] == 2  # on two nodes, without a budget to wait for


def test_deleted_runs_are_replayed_from_their_leases(cli: CliRunner) -> None:
    cli.submit(lasting(run("first"), "2h"), lasting(run("second"), "30m"), run("waits"))
    cli.runs("advance", "3h")
    full = cli.runs("simulate", str(cli.state), "--policy", "fifo", "-o", "json").json()
    Path("leases.yaml").write_text(cli.runs("leases", "--since", "2020-01-01", "-o", "yaml").out)
    cli.runs("cancel", "first")
    for ledger in ("leases.yaml", str(cli.state)):
        replayed = cli.runs("simulate", ledger, "--policy", "fifo", "-o", "json").json()
        for figure in ("jobs", "workGPUHours", "budgets", "skippedRows"):
            assert replayed["spec"][figure] == full["spec"][figure]


def test_deleted_run_has_the_width_of_its_simultaneous_leases(cli: CliRunner) -> None:
    """The Run lost its node after an hour and restarted on another one: two leases, one after the other."""
    cli.submit(lasting(run("first"), "2h"))
    cli.runs("advance", "1h")
    cli.runs("fail", "a01")
    cli.runs("advance", "9h")
    cli.runs("cancel", "first")
    replayed = cli.runs("simulate", str(cli.state), "--policy", "fifo", "-o", "json").json()
    assert [times["name"] for times in replayed["status"]["bySize"]] == ["5-8"]
    assert replayed["spec"]["workGPUHours"] == 8 * 3  # without a checkpoint it lost the first hour


def test_progress_line_has_share_rate_and_remaining_time() -> None:
    line = ProgressLine("easy", 1_000).line(250, 10.0)
    assert line == "easy  ██████░░░░░░░░░░░░░░░░░░  250 of 1,000 jobs, 25/s, 30s left"
    assert "? left" in ProgressLine("easy", 10).line(0, 1.0)
