"""Tables fit the terminal: the least important columns are dropped first."""

import re

import pytest

from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.shell.table import WIDE_ONLY, Column, layout, print_table
from tests.unit.cli.cli_runner import CliRunner, terminal
from tests.unit.cli.manifests import run

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


def test_table_has_all_columns_but_the_wide_ones_when_there_is_room() -> None:
    assert layout(COLUMNS, ROWS, None) == [
        "RUN            GPUS  DOMAINS                 OWNER",
        "default/train   128  nv-a, nv-b, nv-c, nv-d  org:ai:rai:sys",
        "default/x         8  nv-a                    org:x",
    ]


def test_shrinkable_column_is_cut_before_others_are_dropped() -> None:
    assert layout(COLUMNS, ROWS, 50) == [
        "RUN            GPUS  DOMAINS        OWNER",
        "default/train   128  nv-a, nv-b, …  org:ai:rai:sys",
        "default/x         8  nv-a           org:x",
    ]


def test_least_important_column_is_dropped_first() -> None:
    assert layout(COLUMNS, ROWS, 40)[0].split() == ["RUN", "GPUS", "DOMAINS"]
    assert layout(COLUMNS, ROWS, 20)[1] == "default/train   128"
    assert layout(COLUMNS, ROWS, 15)[1] == "default/train"


def test_first_column_is_kept_when_it_does_not_fit() -> None:
    assert layout(COLUMNS, ROWS, 5)[1] == "default/train"


def test_wide_table_has_all_columns_uncut() -> None:
    assert layout(COLUMNS, ROWS, None, wide=True)[1].endswith("nv-c, nv-d  org:ai:rai:sys  long ago")


def test_empty_column_is_left_out() -> None:
    rows = [["default/x", "", "", "org:x", ""]]
    assert layout(COLUMNS, rows, None) == ["RUN        OWNER", "default/x  org:x"]


@pytest.mark.parametrize("columns", range(30, 140, 7))
def test_table_lines_are_no_wider_than_the_terminal(columns: int, capsys: pytest.CaptureFixture[str]) -> None:
    with terminal(columns):
        print_table(CommandOptions(), COLUMNS, ROWS)
    assert all(len(line) <= columns for line in capsys.readouterr().out.splitlines())


def test_phases_are_colored_only_when_color_is_on(cli: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.submit(run("train"))
    assert "\x1b" not in cli.runs("state").out
    monkeypatch.setattr("jobtree.cli.shell.options.CommandOptions.color", True)
    assert re.search("\x1b\\[32mRunning\x1b\\[0m", cli.runs("state").out)


def test_color_is_off_by_option_or_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert CommandOptions().color is None
    assert CommandOptions(no_color=True).color is False
    monkeypatch.setenv("NO_COLOR", "1")
    assert CommandOptions().color is False
