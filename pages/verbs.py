"""The command-line reference: what ``--help`` of each verb says."""

from collections.abc import Iterator

import click

from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.shell.root_command import PROGRAM, SUMMARIES, root
from pages.words import exit_codes

COLUMNS = 96
HELP_OPTIONS = ("-h", "--help")
EVERY_VERB = "Options of every verb:"


def page() -> str:
    """The whole page, in Markdown."""
    lines = [
        "# Command line",
        "",
        "`kubectl runs VERB`; without kubectl, type `kubectl-runs VERB`. This is what `--help` says.",
        "",
        *_help(PROGRAM, root, None),
    ]
    with _context(PROGRAM, root, None) as parent:
        for name, verb in _verbs(parent):
            lines += ["", f"## {name}", "", *_help(name, verb, parent)]
    lines += ["", "## Exit codes", "", *exit_codes()]
    return "\n".join(lines) + "\n"


def _verbs(parent: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Every verb, and below a group of verbs each of them."""
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
    """What --help says; options that every verb takes are shown once, at the top."""
    with _context(name, command, parent) as context:
        text = command.get_help(context)
    shown = text if parent is None else text.partition(EVERY_VERB)[0].rstrip()
    return ["```text", *shown.splitlines(), "```"]


def _context(name: str, command: click.Command, parent: click.Context | None) -> click.Context:
    return click.Context(
        command,
        info_name=name,
        parent=parent,
        obj=CommandOptions(),
        terminal_width=COLUMNS,
        help_option_names=list(HELP_OPTIONS),
    )
