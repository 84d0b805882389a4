"""The options that every verb takes, before the verb or after it; nearer to the end wins."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import click

from jobtree.cli.shell.command_errors import CommandError, Exit

STATE_VARIABLE = "JOBTREE_STATE"
OUTPUTS = ("table", "wide", "json", "yaml", "name")
ONLY_SIMULATED = (
    "this works on a simulated cluster only: name a state file with --state FILE, or export "
    "JOBTREE_STATE=FILE.\n  'kubectl runs init cluster.yaml' writes one to start from."
)


@dataclass
class CommandOptions:
    """What the options and the environment say together."""

    state: str | None = None
    context: str | None = None
    kubeconfig: str | None = None
    namespace: str | None = None
    output: str = "table"
    no_color: bool = False

    @property
    def live(self) -> bool:
        """Whether the cluster is a real one: no state file was named."""
        return not (self.state or os.environ.get(STATE_VARIABLE))

    @property
    def state_path(self) -> str:
        path = self.state or os.environ.get(STATE_VARIABLE)
        if not path:
            raise CommandError(Exit.USAGE, ONLY_SIMULATED)
        return path

    @property
    def human(self) -> bool:
        """Whether a person reads the output; else it is API objects."""
        return self.output in ("table", "wide")

    @property
    def wide(self) -> bool:
        return self.output == "wide"

    @property
    def color(self) -> bool | None:
        """False: never; None: on a terminal only."""
        return False if self.no_color or os.environ.get("NO_COLOR") else None


def _remember(context: click.Context, option: click.Parameter, value: Any) -> None:  # noqa: ANN401  as click has it
    if value and option.name:
        setattr(context.ensure_object(CommandOptions), option.name, value)


_OPTIONS: Mapping[tuple[str, ...], dict[str, Any]] = MappingProxyType(
    {
        ("--state",): {
            "metavar": "FILE",
            "help": "Work on the simulated cluster in this file, not on a live one. [env: JOBTREE_STATE]",
        },
        ("--context",): {"metavar": "NAME", "help": "The kubeconfig's context. [default: the current one]"},
        ("--kubeconfig",): {"metavar": "FILE", "help": "The kubeconfig. [env: KUBECONFIG]"},
        ("-n", "--namespace"): {
            "metavar": "NAME",
            "help": "Only Runs of this namespace; where new ones go. [default: the context's]",
        },
        ("-o", "--output"): {
            "type": click.Choice(OUTPUTS),
            "metavar": "FORMAT",
            "help": "table, wide, json, yaml or name; the last three print API objects. [default: table]",
        },
        ("--no-color",): {"is_flag": True, "help": "No colours. [env: NO_COLOR]"},
    }
)


CSV_OUTPUT: dict[str, Any] = {
    **_OPTIONS["-o", "--output"],
    "type": click.Choice((*OUTPUTS, "csv")),
    "help": "table, wide, csv, json, yaml or name; the last three print API objects. [default: table]",
}


class SharedOption(click.Option):
    """One of the options above: listed apart from the verb's own in its help."""


def shared_options(*, csv: bool = False) -> list[click.Parameter]:
    """With ``csv``, for a verb that can also print rows for a spreadsheet."""
    formats: dict[tuple[str, ...], dict[str, Any]] = {("-o", "--output"): CSV_OUTPUT} if csv else {}
    return [
        SharedOption(list(names), expose_value=False, callback=_remember, **attributes)
        for names, attributes in {**_OPTIONS, **formats}.items()
    ]


class Sections(click.Command):
    """Help in kubectl's order: what it does, examples, the verb's own options, the shared ones."""

    examples: str = ""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples.strip("\n").splitlines():
                    formatter.write(f"  {line}".rstrip() + "\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        listed: dict[str, list[tuple[str, str]]] = {"Options": [], "Options of every verb": []}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if record and isinstance(option, click.Option):
                shared = isinstance(option, SharedOption) or "--help" in option.opts
                listed["Options of every verb" if shared else "Options"].append(record)
        for title, records in listed.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class Verbs(Sections, click.Group):
    """A verb that is followed by another (``budgets usage``)."""

    def __init__(self, name: str, *, help: str, examples: str, verbs: Iterable[click.Command]) -> None:  # noqa: A002  as click calls it
        super().__init__(name, help=help, commands=list(verbs), params=shared_options(), no_args_is_help=True)
        self.examples = examples

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)


def period_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--since``, ``--until`` and ``--archive``: a period of the ledger, however long ago."""
    for option in (
        click.option(
            "--archive",
            metavar="DIR",
            help="Read archived leases from this directory too. A live cluster's manager is asked by itself.",
        ),
        click.option(
            "--until", metavar="TIME", help="Up to this instant: a day (2026-02-01) or an RFC 3339 time."
        ),
        click.option("--since", metavar="TIME", help="From this instant on, written likewise."),
    ):
        function = option(function)
    return function


def files_option(says: str, *, required: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``-f FILE``, as often as one likes: the manifests that a verb works on."""
    return click.option(
        "-f",
        "--filename",
        "files",
        metavar="FILE",
        multiple=True,
        required=required,
        type=click.Path(),
        help=says,
    )


def verb(name: str, *, examples: str, csv: bool = False) -> Callable[[Callable[..., int | None]], Sections]:
    """Declare a verb: its function is given the settings, then its own parameters."""

    def declare(function: Callable[..., int | None]) -> Sections:
        command = click.command(name, cls=Sections)(click.pass_obj(function))
        command.examples = examples
        command.params.extend(shared_options(csv=csv))
        return command

    return declare
