"""Implements ``watch``: polls the state file, or watches the Run on a live cluster."""

import time
from collections.abc import Callable, Iterator
from itertools import chain

import click

from jobtree.api.schema.problems import JobtreeError
from jobtree.api.schema.quantities import format_duration, format_time
from jobtree.cli.shell.command_errors import Exit
from jobtree.cli.shell.object_output import print_objects
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.shell.table import painted
from jobtree.cli.source.session import find_run, read_cluster, state_file
from jobtree.cli.views.lottery.risk_lines import worst_risk_text
from jobtree.cli.views.place_names import Places
from jobtree.cli.views.runs.promise_view import countdown
from jobtree.cli.views.runs.run_summary import class_split, reason, run_title, width_text
from jobtree.client.lottery.risk_entries import risks_of
from jobtree.core import FINISHED, Reason, RunKey, RunState, phase_of
from jobtree.snapshot.cluster import Cluster

POLL_SECONDS = 0.5
RETRY_SECONDS = 1.0


def follow(settings: CommandOptions, name: str, *, once: bool) -> int:
    """Prints a line for the Run now and after every change; the exit code depends on how it ended."""
    printed, first = "", read_cluster(settings)
    run_key = find_run(first, name, settings)
    changes = _live_changes(settings, run_key) if settings.live else _file_changes(settings)
    for cluster in chain([first], () if once else changes):
        run = cluster.world.runs.get(run_key)
        if run is None:
            click.echo(f"{'/'.join(run_key)} is gone: it was cancelled")
            return Exit.NO
        line = _line(cluster, run)
        if line != printed:
            printed = line
            _print(settings, cluster, run, line)
        phase = phase_of(cluster.world, run)
        if phase in FINISHED and not once:
            return Exit.OK if phase == "Completed" else Exit.NO
    return Exit.OK


def _file_changes(settings: CommandOptions) -> Iterator[Cluster]:
    """Yields the cluster each time its file was replaced."""
    file = state_file(settings.state_path)
    previous = file.stamp()
    while True:
        time.sleep(POLL_SECONDS)
        stamp = file.stamp()
        if stamp != previous:
            previous = stamp
            yield read_cluster(settings)


def _live_changes(settings: CommandOptions, run_key: RunKey) -> Iterator[Cluster]:
    """Yields the cluster each time the watch reports a change of the Run."""
    from jobtree.cli.source.session import live_cluster
    from jobtree.client.source.live_runs import run_changes

    live = live_cluster(settings)
    for _ in run_changes(live, *run_key):
        yield _read_with_retries(lambda: live.cluster(plan=False, pods=False))


def _read_with_retries(read: Callable[[], Cluster]) -> Cluster:
    """Retries until the server answers: a Run is followed for days, and servers are restarted."""
    from jobtree.client.errors import NoAnswerError
    from jobtree.client.source.server_refusals import STARTUP_SECONDS

    warned, begun = False, time.monotonic()
    while True:
        try:
            return read()
        except JobtreeError as error:
            may_pass = isinstance(error, NoAnswerError) or time.monotonic() < begun + STARTUP_SECONDS
            if not may_pass:
                raise
            if not warned:
                click.echo(f"{error}\n  retrying until it answers; press Ctrl-C to stop", err=True)
            warned = True
            time.sleep(RETRY_SECONDS)


def _print(settings: CommandOptions, cluster: Cluster, run: RunState, line: str) -> None:
    if settings.human:
        click.echo(f"{format_time(cluster.now)}  {line}", color=settings.color)
    else:
        print_objects(settings, [cluster.objects.get(("Run", *run.key)) or {}], many=False)


def _line(cluster: Cluster, run: RunState) -> str:
    """``default/train  Running  96/128 GPUs  Owned 96  nv-a``, then what it waits for and its risks."""
    places = Places(cluster.world)
    parts = [run_title(run), painted(phase_of(cluster.world, run))]
    if run.is_tree:
        parts += _stages(cluster, run)
    if run.shape is not None:
        parts.append(f"{width_text(run)} GPUs")
    parts += [class_split(run), places.domains(run.leases.values()), reason(run)]
    parts += [_restart(cluster, run), *_lacks(run), _promised(places, run), _risk(cluster, run)]
    return "  ".join(part for part in parts if part)


def _stages(cluster: Cluster, tree: RunState) -> list[str]:
    """``prep Completed``, ``train Reserved 0/64 GPUs``: the phase of each stage, and its width."""
    texts = []
    for stage in cluster.world.run_graph.descendants(tree):
        if not stage.is_tree:
            width = (
                f" {width_text(stage)} GPUs"
                if stage.shape is not None and stage.phase not in FINISHED
                else ""
            )
            texts.append(f"{stage.key[1].removeprefix(f'{tree.key[1]}-')} {painted(stage.phase)}{width}")
    return texts


def _restart(cluster: Cluster, run: RunState) -> str:
    """``attempt 2 starts in 10s``, while a Run whose rank failed waits to start again."""
    wait = run.resume_at - cluster.now
    return f"attempt {run.attempt} starts in {format_duration(wait)}" if wait > 0 and run.leases else ""


def _lacks(run: RunState) -> list[str]:
    """Returns why a running Run is narrower than desired or lacks spares."""
    causes = run.verdict.causes if run.verdict and run.phase == "Running" else ()
    return [str(cause) for cause in causes if cause.reason in (Reason.NOT_GROWING, Reason.SPARE_MISSING)]


def _promised(places: Places, run: RunState) -> str:
    """``reservation train-1 starts it in 30m00s (2026-01-05T11:30:00Z)``."""
    promise = run.promise
    if promise is None:
        return ""
    if promise.at is None:
        return f"reservation {promise.name} has no date"
    return f"reservation {promise.name} starts it {countdown(places, promise)} ({format_time(promise.at)})"


def _risk(cluster: Cluster, run: RunState) -> str:
    cluster.documents()  # updates the risks in the status of the Run
    return worst_risk_text(risks_of(cluster.objects.get(("Run", *run.key)) or {}))
