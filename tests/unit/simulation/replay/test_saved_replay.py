import pickle
from pathlib import Path

import pytest

from jobtree.simulation.inputs.replay_setup import ReplaySetup
from jobtree.simulation.replay.engine import Simulation
from jobtree.simulation.replay.saved_replay import SavedReplayError, load, run, save
from jobtree.simulation.reports.report import encode_report
from jobtree.simulation.reports.statistics import report_of
from jobtree.simulation.schedulers.scheduler_names import POLICIES
from tests.unit.simulation.small_replays import busy_day

JOBS = 12  # tests/slow has whole days


class Stop:
    """Stops a replay after ``after`` instants."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, _: Simulation) -> bool:
        self.left -= 1
        return self.left == 0


def check_resumed(given: ReplaySetup, policy: str, after: int, path: Path) -> None:
    """Checks that a replay which is saved and loaded after ``after`` instants gives the same report."""
    whole = POLICIES[policy](given)
    assert run(whole)
    first = POLICIES[policy](given)
    assert not run(first, watch=Stop(after))
    save(path, first, given.digest(policy))
    second = load(path, given.digest(policy))
    assert second is not None
    assert second.meter.finished < len(given.trace)
    assert run(second)
    assert encode_report(report_of(second, policy, "x")) == encode_report(report_of(whole, policy, "x"))


def check_every_instant(given: ReplaySetup, path: Path) -> None:
    """Checks that a replay can be saved and loaded after every fifth instant."""
    simulation = POLICIES["jobtree"](given)
    while all(simulation.step() for _ in range(5)):
        save(path, simulation, "x")
        resumed = load(path, "x")
        assert resumed is not None
        assert resumed.meter.finished == simulation.meter.finished


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("after", [1, 14])
def test_interrupted_replay_continues_to_the_same_report(tmp_path: Path, policy: str, after: int) -> None:
    check_resumed(busy_day(1, JOBS), policy, after, tmp_path / "replay")


def test_replay_can_be_saved_at_any_instant(tmp_path: Path) -> None:
    check_every_instant(busy_day(1, JOBS), tmp_path / "replay")


def test_saved_replay_of_another_setup_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "replay"
    given = busy_day(1)
    save(path, POLICIES["fifo"](given), given.digest("fifo"))
    for other in (given.digest("sjf"), busy_day(2).digest("fifo")):
        with pytest.raises(SavedReplayError, match="something else"):
            load(path, other)


def test_file_without_a_saved_replay_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "replay"
    assert load(path, "x") is None
    path.write_text("hello")
    with pytest.raises(SavedReplayError, match="is not a saved replay"):
        load(path, "x")
    path.write_bytes(b"jobtree replay 2\nx\n" + b"\x80\x05broken")
    with pytest.raises(SavedReplayError, match="is damaged"):
        load(path, "x")
    with pytest.raises(SavedReplayError, match="cannot save"):
        save(tmp_path / "nowhere" / "replay", POLICIES["fifo"](busy_day(1)), "x")


def test_saved_replay_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, path = busy_day(1), tmp_path / "replay"
    save(path, POLICIES["fifo"](given), given.digest("fifo"))
    monkeypatch.setattr("jobtree.simulation.inputs.replay_setup.__version__", "0.0.1")
    with pytest.raises(SavedReplayError, match="is a replay of something else"):
        load(path, given.digest("fifo"))


def test_interrupted_save_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "replay"
    path.write_text("before")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pickle, "dump", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(path, POLICIES["fifo"](busy_day(1)), "x")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("replay", "before")]


def test_loading_a_saved_replay_runs_no_code(tmp_path: Path) -> None:
    class Harm:
        def __reduce__(self) -> tuple[object, ...]:
            return (print, ("harm",))

    path = tmp_path / "replay"
    path.write_bytes(b"jobtree replay 2\nx\n" + pickle.dumps(Harm()))
    with pytest.raises(SavedReplayError, match=r"print has no place in a saved replay"):
        load(path, "x")
