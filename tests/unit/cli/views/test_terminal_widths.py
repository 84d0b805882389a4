"""On a narrow terminal, no column that answers the question of a verb is lost, and no line is too long."""

import pytest

from jobtree.cli.main import main
from tests.unit.cli.cli_runner import CliRunner, terminal
from tests.unit.cli.manifests import budget, envelope, lasting, node, run

WIDTHS = (40, 80, 100, 140)
DUE = "2026-01-05T11:05:00Z"


@pytest.fixture(name="crowded")
def _crowded(cli: CliRunner) -> CliRunner:
    """A team with long names: one Run has ended, one runs with spares, one waits for a lottery."""
    cli.write_cluster(
        *(node(f"gpu-a-{number:02}", "nvlink-domain-a") for number in range(1, 5)),
        budget("rai-sys-west", envelope(32, "h100-standing"), owner="org:ai:rai:sys"),
        budget("vision-west", envelope(24, "h100", maxGPUHours=4000), owner="org:ai:mm:vision"),
    )
    cli.submit(lasting(run("finished-experiment", 8, "org:ai:rai:sys"), "30m"))
    cli.submit(run("large-language-model", 24, "org:ai:rai:sys", runtime={"maxDuration": "9h"}))
    cli.runs("advance", "2h")
    cli.submit(run("vision-pretraining", 16, "org:ai:mm:vision"))
    return cli


ANSWERS = {
    ("state",): ["Reserved", "Completed", "24/24", "Owned 24", "NoFreeSlots", "2026-01-05T11:05:00Z"],
    ("leases", "finished-experiment"): ["Completed", "2026-01-05T09:30:00Z", "gpu-a-01#0-7"],
    ("leases", "--owner", "org:ai:rai:sys"): ["Completed", "2026-01-05T09:30:00Z"],
    ("reservations",): ["2026-01-05T11:05:00Z", "Pending", "vision-pretraining", "8"],
    ("budgets", "usage"): ["in use", "168", "rai-sys-west", "kept for waiting Runs"],
    ("plan", "large-language-model"): ["gpu-a-", "rai-sys-west/h100-standing", "Owned"],
    ("plan", "vision-pretraining"): ["earliestStart", DUE, "conflict set", "NoFreeSlots"],
    ("topology",): ["nvlink-domain-a", "H100-80GB", "32"],
}


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("words", ANSWERS, ids=" ".join)
def test_answers_are_shown_at_every_width(
    crowded: CliRunner, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], columns: int
) -> None:
    capsys.readouterr()
    with terminal(columns):
        main(["--state", str(crowded.state), *words])
    out = capsys.readouterr().out
    joined = " ".join(out.split())
    assert [answer for answer in ANSWERS[words] if answer not in joined] == [], out


@pytest.mark.parametrize("columns", [80, 100, 140])
@pytest.mark.parametrize("words", [words for words in ANSWERS if words[0] != "plan"], ids=" ".join)
def test_no_line_of_a_table_is_wider_than_the_terminal(
    crowded: CliRunner, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], columns: int
) -> None:
    capsys.readouterr()
    with terminal(columns):
        main(["--state", str(crowded.state), *words])
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if len(line) > columns] == [], out
