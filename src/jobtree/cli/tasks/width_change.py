"""What ``shrink`` and ``grow`` have in common: they set the width that a Run wants (E2)."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import click

from jobtree.api.documents.document_stream import Document
from jobtree.cli.shell.command_errors import CommandError, Exit
from jobtree.cli.shell.object_output import print_objects
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.source.session import edit, find_run
from jobtree.cli.tasks.width_rules import refuse_width
from jobtree.cli.views.event_lines import event_lines
from jobtree.core import RunState


def by_or_to(function: Callable[..., Any]) -> Callable[..., Any]:
    """The two ways to say a width."""
    for option in (
        click.option("--to", "width", type=click.IntRange(min=1), metavar="N", help="To that many GPUs."),
        click.option("--by", "by", type=click.IntRange(min=1), metavar="N", help="By that many GPUs."),
    ):
        function = option(function)
    return function


def resize(settings: CommandOptions, run: str, sign: int, by: int | None, width: int | None) -> None:
    """Set the width that a running Run wants, counted from the present one; say what followed."""
    if (by is None) == (width is None):
        raise CommandError(Exit.USAGE, "say how far: either --by N or --to N")
    if settings.live:
        from jobtree.cli.tasks import live_writes

        live_writes.resize_live(settings, run, sign, by, width)
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


def why_not(run: RunState, wanted: int) -> str:
    """Why it does not have them yet, in half a sentence."""
    if run.width == wanted or run.shape is None:
        return ""
    if not run.shape.may_grow:
        return (
            ": without runtime.checkpoint or onResize: Rendezvous it does not grow, or it would lose its work"
        )
    return ": it grows a step at a time, when there is room and money"
