"""Defines the root command: lists the verbs and loads one when it is used."""

import keyword
from importlib import import_module

import click
from click.shell_completion import CompletionItem

from jobtree.cli.shell.command_errors import MEANINGS
from jobtree.cli.shell.options import Sections, shared_options
from jobtree.cli.shell.wording import suggestion

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
        found: click.Command = import_module(f"jobtree.cli.verbs.{module}").command
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
