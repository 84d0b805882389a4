"""``kubectl runs completion``: verbs, options and names, at the press of a key.

The shell's own script completes ``kubectl-runs``. For ``kubectl runs`` kubectl asks a program named
``kubectl_complete-runs``, in the manner of Cobra: a candidate a line, then what else the shell may do.
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
    """Answer kubectl, whose last word is the one to complete."""
    from jobtree.cli.shell.root_command import COMPLETE_VARIABLE, PROGRAM, root

    *before, incomplete = words or [""]
    answers = ShellComplete(root, {"obj": CommandOptions()}, PROGRAM, COMPLETE_VARIABLE)
    found = answers.get_completions(before, incomplete)
    for item in found:
        if item.type == "plain":
            click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(FILES if any(item.type != "plain" for item in found) else NO_FILES)
    return Exit.OK
