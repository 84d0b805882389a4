"""Refuses what cannot be done to a stage of a job tree by itself."""

from jobtree.cli.shell.command_errors import CommandError, Exit


def refuse_stage(name: str, tree: str) -> None:
    """Raises CommandError if the Run is a stage of a tree: the tree would create it again."""
    if tree:
        advice = f"'kubectl runs cancel {tree}' cancels the whole tree"
        raise CommandError(
            Exit.CONFLICT, f"{name} is a stage of {tree}, which would create it again: {advice}"
        )
