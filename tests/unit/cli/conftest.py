from pathlib import Path

import pytest

from tests.unit.cli.desk import Desk, budget, envelope, nodes


@pytest.fixture
def desk(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Desk:
    """Two nodes in one domain; the team org:lab may hold 8 GPUs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))  # the lottery key is made there
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    made = Desk(tmp_path, capsys)
    made.cluster(*nodes(2), budget("lab", envelope(8)))
    return made
