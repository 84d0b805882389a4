"""Defines the options of all verbs. They may stand before or after the verb; the last one counts."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import click

from jobtree.cli.shell.command_errors import CommandError, Exit
from jobtree.client import STATE_VARIABLE

OUTPUTS = ("table", "wide", "json", "yaml", "name")
ONLY_SIMULATED = (
    "this verb works only on a simulated cluster: name a state file with --state FILE, or export "
    "JOBTREE_STATE=FILE.\n  'kubectl runs init cluster.yaml' writes one to start from."
)


@dataclass
class CommandOptions:
    """The shared options of a command, completed by environment variables."""

    state: str | None = None
    context: str | None = None
    kubeconfig: str | None = None
    namespace: str | None = None
    output: str = "table"
    no_color: bool = False

    @property
    def live(self) -> bool:
        """Whether the command works on a live cluster: no state file is named."""
        return not (self.state or os.environ.get(STATE_VARIABLE))

    @property
    def state_path(self) -> str:
        path = self.state or os.environ.get(STATE_VARIABLE)
        if not path:
            raise CommandError(Exit.USAGE, ONLY_SIMULATED)
        return path

    @property
    def human(self) -> bool:
        """Whether the output is a table or text, and not API objects."""
        return self.output in ("table", "wide")

    @property
    def wide(self) -> bool:
        return self.output == "wide"

    @property
    def color(self) -> bool | None:
        """False: never; None: only on a terminal."""
        return False if self.no_color or os.environ.get("NO_COLOR") else None


def _store_option(context: click.Context, option: click.Parameter, value: Any) -> None:  # noqa: ANN401  click's type
    if value and option.name:
        setattr(context.ensure_object(CommandOptions), option.name, value)


_OPTIONS: Mapping[tuple[str, ...], dict[str, Any]] = MappingProxyType(
    {
        ("--state",): {
            "metavar": "FILE",
            "help": "Work on the simulated cluster in this file, not on a live one. [env: JOBTREE_STATE]",
        },
        ("--context",): {
            "metavar": "NAME",
            "help": "The context of the kubeconfig. [default: the current one]",
        },
        ("--kubeconfig",): {"metavar": "FILE", "help": "The path of the kubeconfig. [env: KUBECONFIG]"},
        ("-n", "--namespace"): {
            "metavar": "NAME",
            "help": "The namespace of the Runs to show or create. [default: the context's]",
        },
        ("-o", "--output"): {
            "type": click.Choice(OUTPUTS),
            "metavar": "FORMAT",
            "help": "table, wide, json, yaml or name; the last three print API objects. [default: table]",
        },
        ("--no-color",): {"is_flag": True, "help": "Print without colours. [env: NO_COLOR]"},
    }
)


def output_option(more: Sequence[str]) -> dict[str, Any]:
    """Returns the output option with more formats, such as csv."""
    names = ", ".join(("table", "wide", *more, "json", "yaml"))
    help_text = f"{names} or name; the last three print API objects. [default: table]"
    return {**_OPTIONS["-o", "--output"], "type": click.Choice((*OUTPUTS, *more)), "help": help_text}


class SharedOption(click.Option):
    """An option that all verbs have; help lists it below the verb's own options."""


def shared_options(outputs: Sequence[str] = ()) -> list[click.Parameter]:
    """Returns the shared options, with these output formats besides those of every verb."""
    formats: dict[tuple[str, ...], dict[str, Any]] = {}
    if outputs:
        formats["-o", "--output"] = output_option(outputs)
    return [
        SharedOption(list(names), expose_value=False, callback=_store_option, **attributes)
        for names, attributes in {**_OPTIONS, **formats}.items()
    ]


class Sections(click.Command):
    """A command with help in kubectl's order: description, examples, own options, shared options."""

    examples: str = ""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples.strip("\n").splitlines():
                    formatter.write(f"  {line}".rstrip() + "\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Options": [], "Options of every verb": []}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if record and isinstance(option, click.Option):
                shared = isinstance(option, SharedOption) or "--help" in option.opts
                sections["Options of every verb" if shared else "Options"].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class Verbs(Sections, click.Group):
    """A verb that has verbs of its own (``budgets usage``)."""

    def __init__(self, name: str, *, help: str, examples: str, verbs: Iterable[click.Command]) -> None:  # noqa: A002  click's name
        super().__init__(name, help=help, commands=list(verbs), params=shared_options(), no_args_is_help=True)
        self.examples = examples

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)


def period_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds ``--since``, ``--until`` and ``--archive``, which select a period of the ledger."""
    for option in (
        click.option(
            "--archive",
            metavar="DIR",
            help="Also read archived leases from this directory. A live cluster's archive is always read.",
        ),
        click.option("--until", metavar="TIME", help="End of the period, in the same format."),
        click.option(
            "--since", metavar="TIME", help="Start of the period: a day (2026-02-01) or an RFC 3339 time."
        ),
    ):
        function = option(function)
    return function


def files_option(
    help_text: str, *, required: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds ``-f FILE``, which can be repeated: the manifests that a verb works on."""
    return click.option(
        "-f",
        "--filename",
        "files",
        metavar="FILE",
        multiple=True,
        required=required,
        type=click.Path(),
        help=help_text,
    )


def width_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds ``--by N`` and ``--to N``, the two ways to give a width."""
    for option in (
        click.option(
            "--to", "width", type=click.IntRange(min=1), metavar="N", help="Change the width to N GPUs."
        ),
        click.option("--by", type=click.IntRange(min=1), metavar="N", help="Change the width by N GPUs."),
    ):
        function = option(function)
    return function


def verb(
    name: str, *, examples: str, outputs: Sequence[str] = ()
) -> Callable[[Callable[..., int | None]], Sections]:
    """Declares a verb; its function gets the shared options first, then its own parameters."""

    def declare(function: Callable[..., int | None]) -> Sections:
        command = click.command(name, cls=Sections)(click.pass_obj(function))
        command.examples = examples
        command.params.extend(shared_options(outputs))
        return command

    return declare
