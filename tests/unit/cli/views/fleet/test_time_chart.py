"""The chart of leases and promises in the coming hours."""

from tests.unit.cli.cli_runner import CliRunner
from tests.unit.cli.manifests import budget, envelope, nodes, run


def bars(text: str) -> dict[str, str]:
    """Returns the bar of each Run and Reservation."""
    rows = [line.split(maxsplit=2) for line in text.splitlines() if line.startswith("  default/")]
    return {row[0]: row[2] for row in rows}


def test_timeline_draws_leases_risks_and_promises(cli: CliRunner) -> None:
    cli.write_cluster(*nodes(2), budget("lab", envelope(16)), budget("b", envelope(16)))
    cli.submit(run("short", runtime={"maxDuration": "1h"}), run("long"))
    cli.submit(run("next", 16, "org:b", runtime={"maxDuration": "2h"}))
    answer = cli.runs("timeline", "--next", "8h")
    first, scale, *_ = answer.out.splitlines()
    assert first == "nv-a  16 GPUs of H100-80GB, 0 free"
    assert scale.split()[0] == "09:00"
    drawn = bars(answer.out)
    assert set(drawn["default/short"]) == {"#"}
    assert set(drawn["default/long"]) == {"#", "?"}  # it may be drawn once it has run two hours
    assert drawn["default/long"].count("#") == 2 * drawn["default/short"].count("#")
    assert drawn["default/next-1"].count("=") == drawn["default/long"].count("#")
    assert answer.out.splitlines()[-1] == "# held   ? may be stopped   = promised"


def test_timeline_fits_the_terminal(cli: CliRunner) -> None:
    cli.submit(run("train"))
    assert max(len(line) for line in cli.runs("timeline").out.splitlines()) <= 110


def test_timeline_says_so_when_nothing_is_in_use(cli: CliRunner) -> None:
    assert "no GPUs are in use or promised here" in cli.runs("timeline").out
    cli.write_cluster()
    assert cli.runs("timeline").out == "no GPUs\n"


def test_timeline_refuses_an_invalid_duration(cli: CliRunner) -> None:
    for span in ("0", "0s", "soon"):
        assert cli.runs("timeline", "--next", span).code == 2
