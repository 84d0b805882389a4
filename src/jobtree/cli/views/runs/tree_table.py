"""Formats a job tree as a table, with its branches."""

from collections.abc import Iterator

import click

from jobtree.api.schema.quantities import format_time
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.shell.table import Column, print_table
from jobtree.cli.views.runs.run_summary import reason, run_title
from jobtree.core import FINISHED, RunState, World, done_at, phase_of, starts_at, total_width
from jobtree.messages.wording import counted_noun

COLUMNS = (
    Column("STAGE"),
    Column("PHASE"),
    Column("WIDTH", right=True),
    Column("START", rank=1, answer=True),
    Column("DONE BY", rank=1, answer=True),
    Column("AFTER", rank=2),
    Column("WITH", rank=2),
    Column("REASON", rank=3, answer=True),
)


def print_tree(settings: CommandOptions, world: World, run: RunState) -> None:
    if not run.is_tree:
        click.echo(f"{run_title(run)} has no stages: it is not a job tree")
        return
    rows = [stage_row(world, run, run_title(run)), *branches(world, run, "")]
    print_table(settings, COLUMNS, rows)


def branches(world: World, tree: RunState, indent: str) -> Iterator[list[str]]:
    children = world.run_graph.children(tree)
    for child in children:
        last = child is children[-1]
        name = child.key[1].removeprefix(f"{tree.key[1]}-")
        yield stage_row(world, child, f"{indent}{'└─ ' if last else '├─ '}{name}")
        yield from branches(world, child, indent + ("   " if last else "│  "))


def stage_row(world: World, run: RunState, name: str) -> list[str]:
    start, done = starts_at(world, run), done_at(world, run)
    prefix = f"{run.parent[1]}-" if run.parent else ""
    follow = run.run_object.spec.follow
    gang = [key[1].removeprefix(prefix) for key in run.gang if key != run.key]
    return [
        name,
        phase_of(world, run),
        stage_width_text(world, run),
        "" if start is None else format_time(start),
        "" if done is None else format_time(done),
        ", ".join(other.removeprefix(prefix) for other in (follow.after if follow else ())),
        ", ".join(gang),
        reason(run) if run.phase not in ("Running", "Completed") else "",
    ]


def stage_width_text(world: World, run: RunState) -> str:
    if run.is_tree:
        width = total_width(world, run)
        return f"{width.allocated}/{width.desired}"
    if run.shape is not None:
        return f"{run.width}/{run.shape.desired}"
    resources = run.run_object.spec.resources
    pods = (resources.pods or 1) if resources else 0
    return counted_noun(pods, "pod") if run.phase not in FINISHED else "0 pods"
