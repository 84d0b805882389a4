"""Checks whether a Run can have a desired width."""

from jobtree.client.errors import ArgumentError, ConflictError
from jobtree.core import FINISHED, GangShape


def refuse_width(  # noqa: PLR0913, PLR0917  the Run as it is, and the change
    name: str, shape: GangShape | None, phase: str, width: int, sign: int, wanted: int
) -> None:
    """Raises ConflictError or ArgumentError, with the rule, for a width that the Run cannot have."""
    if shape is None or not shape.malleable:
        raise ConflictError(f"{name} is a fixed gang: only a Run with spec.malleable changes its width")
    if phase != "Running":
        hint = (
            "it is finished"
            if phase in FINISHED
            else "edit spec.resources.totalGPUs of a waiting Run instead"
        )
        raise ConflictError(f"{name} is {phase}, not Running: {hint}")
    widths = f"{shape.min} to {shape.max} GPUs in steps of {shape.step}"
    if not shape.min <= wanted <= shape.max or (wanted - shape.min) % shape.step:
        raise ArgumentError(f"{name} cannot be {wanted} GPUs wide: its widths are {widths}")
    if (wanted - width) * sign < 0:
        word, other = ("narrower", "shrink") if sign > 0 else ("wider", "grow")
        raise ArgumentError(f"{name} is {width} GPUs wide, so {wanted} is {word}: use '{other}'")
