"""Implements ``shrink`` and ``grow``: both set the desired width of a Run (E2)."""

import click

from jobtree.cli.shell.command_errors import CommandError, Exit
from jobtree.cli.shell.object_output import print_objects
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.source.session import edit, find_run
from jobtree.cli.views.event_lines import event_lines
from jobtree.cli.views.runs.run_summary import run_title
from jobtree.client.source.simulated_width import set_desired_width
from jobtree.core import RunState


def resize(settings: CommandOptions, name: str, sign: int, by: int | None, width: int | None) -> None:
    """Sets the desired width of a running Run and prints the events that follow."""
    if (by is None) == (width is None):
        raise CommandError(Exit.USAGE, "give either --by N or --to N")
    if settings.live:
        from jobtree.cli.tasks import live_writes

        live_writes.resize_live(settings, name, sign, by, width)
        return
    with edit(settings) as cluster:
        run_key = find_run(cluster, name, settings)
        run = cluster.world.runs[run_key]
        wanted = set_desired_width(cluster, run_key, sign, by, width)
        cluster.documents()
        changed = cluster.objects.get(("Run", *run_key)) or {}
    if not settings.human:
        print_objects(settings, [changed], many=False)
        return
    click.echo(f"{run_title(run)} wants {wanted} GPUs and has {run.width}{missing_width_reason(run, wanted)}")
    for line in event_lines(cluster.events):
        click.echo(line)


def missing_width_reason(run: RunState, wanted: int) -> str:
    """Returns why the Run does not have its desired width yet, as a clause; empty if it has."""
    if run.width == wanted or run.shape is None:
        return ""
    if not run.shape.may_grow:
        return ": without runtime.checkpoint or onResize: Rendezvous it cannot grow: it would lose its work"
    return ": it grows step by step, as GPUs and budget allow"
