"""The entry: finds the verb, runs it, and turns every mistake into a message and an exit code."""

import io
import keyword
import os
import sys
import traceback
from importlib import import_module

import click
from click.shell_completion import CompletionItem, shell_complete

from jobtree.api.problems import InputError
from jobtree.cli.errors import MEANINGS, CommandError, Exit
from jobtree.cli.settings import Sections, Settings, shared_options
from jobtree.cli.words import suggestion

PROGRAM = "kubectl runs"
COMPLETE_VARIABLE = "_KUBECTL_RUNS_COMPLETE"

# Each verb's file, and what it does in a line: --help needs no more than this.
SUMMARIES = {
    "init": "Write a small cluster to start from.",
    "import": "Turn batch scripts of Slurm or objects of Kueue into Runs and Budgets.",
    "submit": "Create Runs and Budgets from manifests.",
    "plan": "Why a Run waits and what would help; or where it would start.",
    "explain": "The story of a Run: verdict, reservation, lotteries, leases, payers.",
    "tree": "Draw a job tree: stages, states and times.",
    "watch": "Follow a Run as it changes.",
    "state": "All Runs: phase, width, payers, place.",
    "reservations": "The backlog: promised starts, what is missing, who would give way.",
    "timeline": "Draw the coming hours: who holds which GPUs, who is promised them.",
    "verify": "Check the proof of a lottery, from its record alone.",
    "leases": "Who held which GPUs, when, and who paid.",
    "budgets": "What envelopes and caps have given out, and what is left.",
    "shrink": "Make a malleable Run narrower.",
    "grow": "Let a malleable Run grow.",
    "pods": "The pods of a Run (live).",
    "logs": "What the ranks of a Run print (live).",
    "cancel": "Delete Runs; what they hold is free at once.",
    "complete": "Let the work of Runs be done now (simulation).",
    "advance": "Let time pass (simulation).",
    "fail": "Take nodes out of service (simulation).",
    "drain": "Cordon nodes and evict their pods (simulation).",
    "heal": "Put nodes back into service (simulation).",
    "topology": "Domains, nodes and free GPUs; labels that are missing.",
    "snapshot": "A live cluster as a state file (live).",
    "audit": "Check a cluster as it stands, pods against leases too.",
    "check": "Check the invariants of a cluster.",
    "simulate": "Replay a trace of jobs, and ask what would be if.",
    "completion": "Print the completion script of a shell.",
    "version": "Print the version.",
}
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
KUBECTL_ASKS = "__complete"


class Root(Sections, click.Group):
    """Verbs are loaded when they are used."""

    examples = """
kubectl runs init cluster.yaml
kubectl runs --state cluster.yaml state --all
kubectl runs --state cluster.yaml plan -f run.yaml
"""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(SUMMARIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  click's signature
        if cmd_name not in SUMMARIES:
            return None
        module = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        found: click.Command = import_module(f"jobtree.cli.{module}").command
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in SUMMARIES and not ctx.resilient_parsing:
            hint = suggestion(args[0], SUMMARIES) or f"there are {', '.join(SUMMARIES)}"
            raise click.UsageError(f"there is no verb {args[0]}: {hint}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        verbs = [
            CompletionItem(name, help=summary)
            for name, summary in SUMMARIES.items()
            if name.startswith(incomplete)
        ]
        return verbs + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  click's
        with formatter.section("Verbs"):
            formatter.write_dl(list(SUMMARIES.items()))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(int(code)), meaning) for code, meaning in MEANINGS.items()])


@click.group(cls=Root, no_args_is_help=True, context_settings=CONTEXT)
def root() -> None:
    """Runs, budgets and leases of a shared GPU fleet.

    RUN is a name, or NAMESPACE/NAME where several namespaces have one. Every verb's --help has examples.

    Lotteries are drawn with a secret key: the file that JOBTREE_LOTTERY_KEY names, else
    ~/.config/jobtree/lottery.key, which is made on first use. Keep it: what was promised with one key cannot
    be drawn with another.
    """


root.params.extend(shared_options())


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit code."""
    _never_fail_to_print()
    settings = Settings()
    try:
        answer = _run(sys.argv[1:] if argv is None else argv, settings)
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()
        return Exit.OK
    except (KeyboardInterrupt, click.Abort):
        return Exit.INTERRUPTED
    except Exception as broken:  # noqa: BLE001  the last resort: a bug, too, has its exit code
        message, code = _explained(broken)
        click.echo(f"{click.style('error:', fg='red')} {message}", err=True, color=settings.color)
        return code
    return int(answer or Exit.OK)


def _run(words: list[str], settings: Settings) -> int | None:
    if words[:1] == [KUBECTL_ASKS]:
        from jobtree.cli.completion import answer_kubectl

        return answer_kubectl(words[1:])
    if asked := os.environ.get(COMPLETE_VARIABLE):
        return shell_complete(root, {"obj": settings}, PROGRAM, COMPLETE_VARIABLE, asked)
    try:
        with root.make_context(PROGRAM, list(words), obj=settings) as context:
            answer: int | None = root.invoke(context)
            return answer
    except click.exceptions.Exit as leaving:  # --help
        return leaving.exit_code
    except click.exceptions.NoArgsIsHelpError as bare:
        click.echo(bare.format_message())
        return Exit.OK


def _explained(broken: Exception) -> tuple[str, Exit]:
    """What to tell the user, who is at fault for anything but a bug."""
    match broken:
        case CommandError():
            return str(broken), broken.code
        case InputError():
            return str(broken), Exit.USAGE
        case click.ClickException():
            return _usage(broken), Exit.USAGE
    traceback.print_exception(broken)
    return BUG, Exit.BUG


BUG = "this is a bug in Jobtree. Please report it with the lines above and the state file attached."


def _usage(broken: click.ClickException) -> str:
    context = getattr(broken, "ctx", None)
    path = context.command_path if context else PROGRAM
    message = broken.format_message()
    return f"{message[:1].lower()}{message[1:]}\n  '{path} --help' shows how it is used"


def _never_fail_to_print() -> None:
    """A terminal that lacks a sign shows another in its place."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _forget_stdout() -> None:
    """Whoever read the output (head, less) is gone; so the interpreter must not complain at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
