"""Checks whether a Run can have a width."""

from jobtree.cli.shell.command_errors import CommandError, Exit
from jobtree.core import FINISHED, GangShape


def refuse_width(  # noqa: PLR0913, PLR0917  a Run as it stands, and what is asked of it
    name: str, shape: GangShape | None, phase: str, width: int, sign: int, wanted: int
) -> None:
    """Widths that the Run cannot have, each with the rule."""
    if shape is None or not shape.malleable:
        raise CommandError(
            Exit.CONFLICT, f"{name} is a fixed gang: only a Run with spec.malleable changes its width"
        )
    if phase != "Running":
        done = phase in FINISHED
        hint = "it is finished" if done else "edit spec.resources.totalGPUs of a waiting Run instead"
        raise CommandError(Exit.CONFLICT, f"{name} is {phase}, not Running: {hint}")
    widths = f"{shape.min} to {shape.max} GPUs in steps of {shape.step}"
    if not shape.min <= wanted <= shape.max or (wanted - shape.min) % shape.step:
        raise CommandError(Exit.USAGE, f"{name} cannot be {wanted} GPUs wide: its widths are {widths}")
    if (wanted - width) * sign < 0:
        word, other = ("narrower", "shrink") if sign > 0 else ("wider", "grow")
        raise CommandError(Exit.USAGE, f"{name} is {width} GPUs wide, so {wanted} is {word}: use '{other}'")
