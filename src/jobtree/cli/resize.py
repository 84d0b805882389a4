"""What ``shrink`` and ``grow`` have in common: they set the width that a Run wants (E2)."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import click

from jobtree.api.documents import Document
from jobtree.cli.errors import CommandError, Exit
from jobtree.cli.eventlines import event_lines
from jobtree.cli.output import print_objects
from jobtree.cli.session import edit, find_run
from jobtree.cli.settings import Settings
from jobtree.core.runs import FINISHED, RunState
from jobtree.core.shape import Shape


def by_or_to(function: Callable[..., Any]) -> Callable[..., Any]:
    """The two ways to say a width."""
    for option in (
        click.option("--to", "width", type=click.IntRange(min=1), metavar="N", help="To that many GPUs."),
        click.option("--by", "by", type=click.IntRange(min=1), metavar="N", help="By that many GPUs."),
    ):
        function = option(function)
    return function


def resize(settings: Settings, run: str, sign: int, by: int | None, width: int | None) -> None:
    """Set the width that a running Run wants, counted from the present one; say what followed."""
    if (by is None) == (width is None):
        raise CommandError(Exit.USAGE, "say how far: either --by N or --to N")
    if settings.live:
        from jobtree.cli import livework

        livework.resize(settings, run, sign, by, width)
        return
    with edit(settings) as cluster:
        key = find_run(cluster, run, settings)
        state = cluster.world.runs[key]
        wanted = width if width is not None else state.width + sign * (by or 0)
        refuse_width("/".join(key), state.shape, state.phase, state.width, sign, wanted)
        body = deepcopy(cluster.objects.get(("Run", *key)) or {})
        body["spec"]["malleable"]["desiredTotalGPUs"] = wanted
        cluster.edit(("Run", *key), Document(cluster.objects.where(("Run", *key)), body))
        cluster.documents()
        changed = cluster.objects.get(("Run", *key)) or {}
    if not settings.human:
        print_objects(settings, [changed], many=False)
        return
    click.echo(f"{'/'.join(key)} wants {wanted} GPUs and has {state.width}{why_not(state, wanted)}")
    for line in event_lines(cluster.events):
        click.echo(line)


def why_not(state: RunState, wanted: int) -> str:
    """Why it does not have them yet, in half a sentence."""
    if state.width == wanted or state.shape is None:
        return ""
    if not state.shape.may_grow:
        return (
            ": without runtime.checkpoint or onResize: Rendezvous it does not grow, or it would lose its work"
        )
    return ": it grows a step at a time, when there is room and money"


def refuse_width(  # noqa: PLR0913, PLR0917  a Run as it stands, and what is asked of it
    name: str, shape: Shape | None, phase: str, width: int, sign: int, wanted: int
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
