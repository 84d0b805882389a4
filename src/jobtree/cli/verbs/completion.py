"""``kubectl runs completion``: shell completion of verbs, options and names.

The script of the shell completes ``kubectl-runs``. For ``kubectl runs``, kubectl calls a program named
``kubectl_complete-runs`` by the protocol of Cobra: one candidate a line, then a directive for the shell.
"""

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from jobtree.cli.shell.command_errors import Exit
from jobtree.cli.shell.options import CommandOptions, verb

SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
NO_FILES, FILES = ":4", ":0"

EXAMPLES = """
source <(kubectl runs completion bash)              # in ~/.bashrc; completes kubectl-runs
source <(kubectl runs completion zsh)               # in ~/.zshrc
kubectl runs completion fish | source               # in config.fish

# For 'kubectl runs', put this on the PATH as kubectl_complete-runs, executable:
#!/bin/sh
exec kubectl-runs __complete "$@"
"""


@verb("completion", examples=EXAMPLES)
@click.argument("shell", type=click.Choice(list(SHELLS)))
def command(_: CommandOptions, shell: str) -> None:
    """Print the completion script of a shell.

    It completes verbs, options, and the names of Runs and nodes of the cluster.
    """
    from jobtree.cli.shell.root_command import COMPLETE_VARIABLE, root

    script = SHELLS[shell](root, {}, "kubectl-runs", COMPLETE_VARIABLE)
    click.echo(script.source_template % script.source_vars())


def answer_kubectl(words: list[str]) -> int:
    """Prints the completions of the last word for kubectl."""
    from jobtree.cli.shell.root_command import COMPLETE_VARIABLE, PROGRAM, root

    *before, incomplete = words or [""]
    completer = ShellComplete(root, {"obj": CommandOptions()}, PROGRAM, COMPLETE_VARIABLE)
    candidates = completer.get_completions(before, incomplete)
    for item in candidates:
        if item.type == "plain":
            click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(FILES if any(item.type != "plain" for item in candidates) else NO_FILES)
    return Exit.OK
