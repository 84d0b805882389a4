from pathlib import Path

import pytest

from tests.unit.cli.cli_runner import CliRunner
from tests.unit.cli.manifests import budget, envelope, nodes


@pytest.fixture
def cli(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> CliRunner:
    """Commands on a cluster of two nodes in one domain, where the team org:lab may hold 8 GPUs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))  # the lottery key is created there
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    runner = CliRunner(tmp_path, capsys)
    runner.write_cluster(*nodes(2), budget("lab", envelope(8)))
    return runner
