"""A job tree as a table, drawn with its branches."""

from collections.abc import Iterator

import click

from jobtree.api.schema.quantities import format_time
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.shell.table import Column, print_table
from jobtree.cli.shell.wording import counted_noun
from jobtree.cli.views.runs.run_summary import reason, run_title
from jobtree.core.reporting.tree_status import done_at, phase_of, starts_at, total_width
from jobtree.core.runs.run_state import FINISHED, RunState
from jobtree.core.world.world import World

COLUMNS = (
    Column("STAGE"),
    Column("PHASE"),
    Column("WIDTH", right=True),
    Column("START", rank=1),
    Column("DONE BY", rank=1),
    Column("AFTER", rank=2),
    Column("WITH", rank=2),
    Column("REASON", rank=3),
)


def print_tree(settings: CommandOptions, world: World, state: RunState) -> None:
    if not state.is_tree:
        click.echo(f"{run_title(state)} has no stages: it is a Run of its own")
        return
    rows = [stage_row(world, state, run_title(state)), *branches(world, state, "")]
    print_table(settings, COLUMNS, rows)


def branches(world: World, tree: RunState, indent: str) -> Iterator[list[str]]:
    children = world.run_graph.children(tree)
    for child in children:
        last = child is children[-1]
        name = child.key[1].removeprefix(f"{tree.key[1]}-")
        yield stage_row(world, child, f"{indent}{'└─ ' if last else '├─ '}{name}")
        yield from branches(world, child, indent + ("   " if last else "│  "))


def stage_row(world: World, state: RunState, name: str) -> list[str]:
    start, done = starts_at(world, state), done_at(world, state)
    prefix = f"{state.parent[1]}-" if state.parent else ""
    follow = state.run.spec.follow
    gang = [key[1].removeprefix(prefix) for key in state.gang if key != state.key]
    return [
        name,
        phase_of(world, state),
        stage_width_text(world, state),
        "" if start is None else format_time(start),
        "" if done is None else format_time(done),
        ", ".join(other.removeprefix(prefix) for other in (follow.after if follow else ())),
        ", ".join(gang),
        reason(state) if state.phase not in ("Running", "Completed") else "",
    ]


def stage_width_text(world: World, state: RunState) -> str:
    if state.is_tree:
        whole = total_width(world, state)
        return f"{whole.allocated}/{whole.desired}"
    if state.shape is not None:
        return f"{state.width}/{state.shape.desired}"
    resources = state.run.spec.resources
    pods = (resources.pods or 1) if resources else 0
    return counted_noun(pods, "pod") if state.phase not in FINISHED else "0 pods"
