"""Tables fit the terminal: what matters least goes first."""

import re

import pytest

from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.shell.table import WIDE_ONLY, Column, layout, print_table
from tests.unit.cli.desk import Desk, run, terminal

COLUMNS = (
    Column("RUN"),
    Column("GPUS", right=True, rank=1),
    Column("DOMAINS", rank=2, shrinks=True),
    Column("OWNER", rank=3),
    Column("NOTE", rank=WIDE_ONLY),
)
ROWS = [
    ["default/train", "128", "nv-a, nv-b, nv-c, nv-d", "org:ai:rai:sys", "long ago"],
    ["default/x", "8", "nv-a", "org:x", ""],
]


def test_everything_but_the_wide_columns_where_there_is_room() -> None:
    assert layout(COLUMNS, ROWS, None) == [
        "RUN            GPUS  DOMAINS                 OWNER",
        "default/train   128  nv-a, nv-b, nv-c, nv-d  org:ai:rai:sys",
        "default/x         8  nv-a                    org:x",
    ]


def test_a_column_that_can_shrinks_before_others_are_dropped() -> None:
    assert layout(COLUMNS, ROWS, 50) == [
        "RUN            GPUS  DOMAINS        OWNER",
        "default/train   128  nv-a, nv-b, …  org:ai:rai:sys",
        "default/x         8  nv-a           org:x",
    ]


def test_the_least_important_column_goes_first() -> None:
    assert layout(COLUMNS, ROWS, 40)[0].split() == ["RUN", "GPUS", "DOMAINS"]
    assert layout(COLUMNS, ROWS, 20)[1] == "default/train   128"
    assert layout(COLUMNS, ROWS, 15)[1] == "default/train"


def test_what_may_not_go_stays_even_if_it_does_not_fit() -> None:
    assert layout(COLUMNS, ROWS, 5)[1] == "default/train"


def test_wide_shows_all_in_full() -> None:
    assert layout(COLUMNS, ROWS, None, wide=True)[1].endswith("nv-c, nv-d  org:ai:rai:sys  long ago")


def test_a_column_with_nothing_in_it_is_left_out() -> None:
    rows = [["default/x", "", "", "org:x", ""]]
    assert layout(COLUMNS, rows, None) == ["RUN        OWNER", "default/x  org:x"]


@pytest.mark.parametrize("columns", range(30, 140, 7))
def test_no_line_of_a_table_is_wider_than_the_terminal(
    columns: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with terminal(columns):
        print_table(CommandOptions(), COLUMNS, ROWS)
    assert all(len(line) <= columns for line in capsys.readouterr().out.splitlines())


def test_colours_only_where_they_are_wanted(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.submit(run("train"))
    assert "\x1b" not in desk.runs("state").out
    monkeypatch.setattr("jobtree.cli.shell.options.CommandOptions.color", True)
    assert re.search("\x1b\\[32mRunning\x1b\\[0m", desk.runs("state").out)


def test_no_color_is_an_option_and_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert CommandOptions().color is None
    assert CommandOptions(no_color=True).color is False
    monkeypatch.setenv("NO_COLOR", "1")
    assert CommandOptions().color is False
