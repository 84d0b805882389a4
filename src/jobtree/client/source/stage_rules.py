"""Refuses what cannot be done to a stage of a job tree by itself."""

from jobtree.client.errors import ConflictError


def refuse_stage(name: str, tree: str) -> None:
    """Raises ConflictError if the Run is a stage of a tree: the tree would create it again."""
    if tree:
        advice = f"'kubectl runs cancel {tree}' cancels the whole tree"
        raise ConflictError(f"{name} is a stage of {tree}, which would create it again: {advice}")
