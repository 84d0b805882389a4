import pickle
from pathlib import Path

import pytest

from jobtree.simulation.replay.engine import Simulation
from jobtree.simulation.replay.saved_replay import SavedReplayError, load, run, save
from jobtree.simulation.reports.report import encode_report
from jobtree.simulation.reports.statistics import report_of
from jobtree.simulation.schedulers.scheduler_names import POLICIES
from tests.unit.simulation.schedulers.test_jobtree_scheduler import busy_day


class Stop:
    """Asks to stop when asked for the last time."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, _: Simulation) -> bool:
        self.left -= 1
        return self.left == 0


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("after", [1, 40])
def test_an_interrupted_replay_goes_on_to_the_same_report(tmp_path: Path, policy: str, after: int) -> None:
    given, path = busy_day(1), tmp_path / "replay"
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


def test_a_replay_can_be_read_again_wherever_it_was_interrupted(tmp_path: Path) -> None:
    simulation, path = POLICIES["jobtree"](busy_day(1)), tmp_path / "replay"
    while all(simulation.step() for _ in range(5)):
        save(path, simulation, "x")
        read = load(path, "x")
        assert read is not None
        assert read.meter.finished == simulation.meter.finished


def test_a_replay_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "replay"
    given = busy_day(1)
    save(path, POLICIES["fifo"](given), given.digest("fifo"))
    for other in (given.digest("sjf"), busy_day(2).digest("fifo")):
        with pytest.raises(SavedReplayError, match="something else"):
            load(path, other)


def test_what_is_no_saved_replay_is_refused(tmp_path: Path) -> None:
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


def test_a_replay_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, path = busy_day(1), tmp_path / "replay"
    save(path, POLICIES["fifo"](given), given.digest("fifo"))
    monkeypatch.setattr("jobtree.simulation.inputs.replay_setup.__version__", "0.0.1")
    with pytest.raises(SavedReplayError, match="is a replay of something else"):
        load(path, given.digest("fifo"))


def test_saving_that_breaks_leaves_what_was_saved_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "replay"
    path.write_text("before")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pickle, "dump", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(path, POLICIES["fifo"](busy_day(1)), "x")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("replay", "before")]


def test_a_saved_replay_cannot_run_a_program(tmp_path: Path) -> None:
    class Harm:
        def __reduce__(self) -> tuple[object, ...]:
            return (print, ("harm",))

    path = tmp_path / "replay"
    path.write_bytes(b"jobtree replay 2\nx\n" + pickle.dumps(Harm()))
    with pytest.raises(SavedReplayError, match=r"print has no place in a saved replay"):
        load(path, "x")
