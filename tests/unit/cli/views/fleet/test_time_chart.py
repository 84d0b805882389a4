"""The coming hours, drawn."""

from tests.unit.cli.desk import Desk, budget, envelope, nodes, run


def bars(text: str) -> dict[str, str]:
    """What is drawn for each name."""
    rows = [line.split(maxsplit=2) for line in text.splitlines() if line.startswith("  default/")]
    return {row[0]: row[2] for row in rows}


def test_who_holds_and_who_is_promised(desk: Desk) -> None:
    desk.cluster(*nodes(2), budget("lab", envelope(16)), budget("b", envelope(16)))
    desk.submit(run("short", runtime={"maxDuration": "1h"}), run("long"))
    desk.submit(run("next", 16, "org:b", runtime={"maxDuration": "2h"}))
    answer = desk.runs("timeline", "--next", "8h")
    first, scale, *_ = answer.out.splitlines()
    assert first == "nv-a  16 GPUs of H100-80GB, 0 free"
    assert scale.split()[0] == "09:00"
    drawn = bars(answer.out)
    assert set(drawn["default/short"]) == {"#"}
    assert set(drawn["default/long"]) == {"#", "?"}  # it may be drawn once it has run two hours
    assert drawn["default/long"].count("#") == 2 * drawn["default/short"].count("#")
    assert drawn["default/next-1"].count("=") == drawn["default/long"].count("#")
    assert answer.out.splitlines()[-1] == "# held   ? may be stopped   = promised"


def test_it_fits_the_terminal(desk: Desk) -> None:
    desk.submit(run("train"))
    assert max(len(line) for line in desk.runs("timeline").out.splitlines()) <= 110


def test_nothing_to_draw(desk: Desk) -> None:
    assert "no GPUs are in use or promised here" in desk.runs("timeline").out
    desk.cluster()
    assert desk.runs("timeline").out == "no GPUs\n"


def test_a_span_that_is_none(desk: Desk) -> None:
    for span in ("0", "0s", "soon"):
        assert desk.runs("timeline", "--next", span).code == 2
