"""Writes the command-line reference from the ``--help`` texts of all verbs."""

from collections.abc import Iterator

import click

from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.shell.root_command import PROGRAM, SUMMARIES, root
from pages.words import exit_codes

COLUMNS = 96
HELP_OPTIONS = ("-h", "--help")
EVERY_VERB = "Options of every verb:"


def page() -> str:
    """Returns the page in Markdown."""
    lines = [
        "# Command line",
        "",
        "`kubectl runs VERB`; without kubectl, `kubectl-runs VERB`. These are the texts of `--help`.",
        "",
        *_help(PROGRAM, root, None),
    ]
    with _context(PROGRAM, root, None) as parent:
        for name, verb in _verbs(parent):
            lines += ["", f"## {name}", "", *_help(name, verb, parent)]
    lines += ["", "## Exit codes", "", *exit_codes()]
    return "\n".join(lines) + "\n"


def _verbs(parent: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Yields every verb, and after a group each of its verbs."""
    for name in SUMMARIES:
        verb = root.get_command(parent, name)
        assert verb is not None
        yield name, verb
        if isinstance(verb, click.Group):
            with _context(name, verb, parent) as inside:
                for below in verb.list_commands(inside):
                    command = verb.get_command(inside, below)
                    assert command is not None
                    yield f"{name} {below}", command


def _help(name: str, command: click.Command, parent: click.Context | None) -> list[str]:
    """Returns the text of --help. The options of every verb are shown at the top of the page only."""
    with _context(name, command, parent) as context:
        text = command.get_help(context)
    if parent is not None:
        text = text.partition(EVERY_VERB)[0].rstrip()
    return ["```text", *text.splitlines(), "```"]


def _context(name: str, command: click.Command, parent: click.Context | None) -> click.Context:
    return click.Context(
        command,
        info_name=name,
        parent=parent,
        obj=CommandOptions(),
        terminal_width=COLUMNS,
        help_option_names=list(HELP_OPTIONS),
    )
