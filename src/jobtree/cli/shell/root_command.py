"""Defines the root command: lists the verbs and loads one when it is used."""

import keyword
from importlib import import_module

import click
from click.shell_completion import CompletionItem

from jobtree.api.schema.near_names import suggestion
from jobtree.cli.shell.command_errors import MEANINGS
from jobtree.cli.shell.options import Sections, shared_options

PROGRAM = "kubectl runs"
COMPLETE_VARIABLE = "_KUBECTL_RUNS_COMPLETE"

# What each verb does, in one line: --help needs no more than this and loads no verb.
SUMMARIES = {
    "init": "Write the state file of a small simulated cluster.",
    "import": "Convert Slurm batch scripts or Kueue objects to Runs and Budgets.",
    "submit": "Create Runs and Budgets from manifests.",
    "plan": "Show why a Run waits and what would help, or where it would start.",
    "explain": "Show the history of a Run: verdict, reservation, lotteries, leases, payers.",
    "events": "List what happened to a Run, in order, also of past weeks.",
    "tree": "Draw a job tree: stages, phases and times.",
    "watch": "Follow a Run: print a line for every change.",
    "wait": "Wait until a Run runs, is completed or is finished.",
    "state": "List Runs: phase, width, payers, domains.",
    "reservations": "List promised starts, the GPUs they lack, and the Runs they may stop.",
    "timeline": "Draw the coming hours: GPUs in use and GPUs promised, by domain.",
    "verify": "Check the proof of a lottery from its record alone.",
    "leases": "List leases: which Run used which GPUs, when, and who paid.",
    "budgets": "Show the usage of envelopes and caps, and what is left.",
    "shrink": "Shrink a malleable Run.",
    "grow": "Grow a malleable Run.",
    "pods": "List the pods of a Run (live).",
    "logs": "Print the logs of the ranks of a Run (live).",
    "cancel": "Delete Runs and free their GPUs.",
    "complete": "Complete Runs, or let a rank fail (simulation).",
    "advance": "Move the clock forward (simulation).",
    "fail": "Take nodes out of service (simulation).",
    "drain": "Cordon nodes and evict their pods (simulation).",
    "heal": "Put nodes back into service (simulation).",
    "topology": "Show domains, nodes and free GPUs, and missing labels.",
    "doctor": "Check an installation, and say what to do.",
    "snapshot": "Print a live cluster as a state file (live).",
    "audit": "Check the invariants, and that pods match their leases.",
    "check": "Check the invariants, and an archive if one is named.",
    "simulate": "Replay a trace of jobs, as it was or with changes.",
    "schema": "Print the JSON schema of a kind, for editors.",
    "completion": "Print the completion script of a shell.",
    "version": "Print the version.",
}
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


# The verbs of other tools, and the one that does the same here.
OTHER_WORDS = {
    "state": "get list ls status ps squeue jobs runs",
    "submit": "create apply run sbatch start",
    "cancel": "delete rm kill scancel stop",
    "explain": "describe show why",
    "budgets": "quota usage top sshare balance",
    "topology": "nodes sinfo domains fleet",
    "leases": "sacct ledger lease",
    "shrink": "scale resize",
    "version": "info",
}
VERB_BY_OTHER_WORD = {word: name for name, words in OTHER_WORDS.items() for word in words.split()}


def verb_hint(word: str) -> str:
    """Returns the verb that somebody probably meant, or the list of all verbs."""
    if word.lower() in VERB_BY_OTHER_WORD:
        return f"did you mean {VERB_BY_OTHER_WORD[word.lower()]}?"
    return suggestion(word, SUMMARIES) or f"the verbs are {', '.join(SUMMARIES)}"


class Root(Sections, click.Group):
    """The group of all verbs; loads a verb when it is used."""

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
        command: click.Command = import_module(f"jobtree.cli.verbs.{module}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in SUMMARIES and not ctx.resilient_parsing:
            hint = verb_hint(args[0])
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
    """Manage Runs, Budgets and Leases of a shared GPU fleet.

    RUN is a name, or NAMESPACE/NAME if several namespaces have a Run of that name. The --help of each verb
    has examples.

    Lotteries on a simulated cluster are drawn with a secret key. JOBTREE_LOTTERY_KEY names its file; the
    default is ~/.config/jobtree/lottery.key, which is created on first use. Keep the key: a lottery that was
    promised with one key cannot be drawn with another.
    """


root.params.extend(shared_options())
