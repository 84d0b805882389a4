"""Following a Run: its state file, read again whenever it was replaced, or as a live cluster tells."""

import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import click

from jobtree.api.schema.quantities import format_duration, format_time
from jobtree.cli.shell.command_errors import CommandError, Exit
from jobtree.cli.shell.object_output import print_objects
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.shell.table import painted
from jobtree.cli.source.session import find_run, read_cluster
from jobtree.cli.views.lottery.risk_lines import risks_of, short
from jobtree.cli.views.place_names import Places
from jobtree.cli.views.runs.promise_view import countdown
from jobtree.cli.views.runs.run_summary import class_split, reason, run_title, width_text
from jobtree.core import FINISHED, Reason, RunKey, RunState
from jobtree.snapshot.cluster import Cluster

POLL_SECONDS = 0.5
RETRY_SECONDS = 1.0


def follow(settings: CommandOptions, run: str, *, once: bool) -> int:
    """Print what the Run looks like now and after every change; the exit code says how it ended."""
    shown, first = "", read_cluster(settings)
    key = find_run(first, run, settings)
    changes = _told(settings, key) if settings.live else _changes(settings)
    for cluster in chain([first], () if once else changes):
        state = cluster.world.runs.get(key)
        if state is None:
            click.echo(f"{'/'.join(key)} is gone: it was cancelled")
            return Exit.NO
        looks = _looks(cluster, state)
        if looks != shown:
            shown = looks
            _print(settings, cluster, state, looks)
        if state.phase in FINISHED and not once:
            return Exit.OK if state.phase == "Completed" else Exit.NO
    return Exit.OK


def _changes(settings: CommandOptions) -> Iterator[Cluster]:
    """The cluster again, each time its file has become another."""
    seen = _stamp(settings.state_path)
    while True:
        time.sleep(POLL_SECONDS)
        stamp = _stamp(settings.state_path)
        if stamp != seen:
            seen = stamp
            yield read_cluster(settings)


def _told(settings: CommandOptions, run_key: RunKey) -> Iterator[Cluster]:
    """The cluster again, each time the server says that the Run changed: it streams, it does not poll."""
    from jobtree.cli.source.live_cluster import Live
    from jobtree.cli.tasks.live_writes import run_changes

    live = Live(settings)
    for _ in run_changes(live, *run_key):
        yield _patiently(lambda: live.cluster(plan=False, pods=False))


def _patiently(look: Callable[[], Cluster]) -> Cluster:
    """A server that is restarted is asked until it is back: whoever follows a Run follows it for days."""
    from jobtree.cli.source.server_refusals import YOUNG_SECONDS, NoAnswerError

    said, begun = False, time.monotonic()
    while True:
        try:
            return look()
        except CommandError as trouble:
            passing = isinstance(trouble, NoAnswerError) or time.monotonic() < begun + YOUNG_SECONDS
            if not passing:
                raise
            if not said:
                click.echo(f"{trouble}\n  trying again until it does, or until you interrupt", err=True)
            said = True
            time.sleep(RETRY_SECONDS)


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _print(settings: CommandOptions, cluster: Cluster, run: RunState, looks: str) -> None:
    if settings.human:
        click.echo(f"{format_time(cluster.now)}  {looks}", color=settings.color)
    else:
        print_objects(settings, [cluster.objects.get(("Run", *run.key)) or {}], many=False)


def _looks(cluster: Cluster, run: RunState) -> str:
    """``default/train  Running  96/128 GPUs  Owned 96  nv-a``; what is ahead comes last."""
    places = Places(cluster.world)
    parts = [run_title(run), painted(run.phase)]
    if run.shape is not None:
        parts.append(f"{width_text(run)} GPUs")
    parts += [class_split(run), places.domains(run.leases.values()), reason(run)]
    parts += [_pause(cluster, run), *_wishes(run), _promised(places, run), _threatened(cluster, run)]
    return "  ".join(part for part in parts if part)


def _pause(cluster: Cluster, run: RunState) -> str:
    """``attempt 2 starts in 10s``, while a Run whose rank failed waits to start again."""
    wait = run.resume_at - cluster.now
    return f"attempt {run.attempt} starts in {format_duration(wait)}" if wait > 0 and run.leases else ""


def _wishes(run: RunState) -> list[str]:
    """Why it is narrower than it wants to be, or lacks spares."""
    whys = run.verdict.causes if run.verdict and run.phase == "Running" else ()
    return [str(why) for why in whys if why.reason in (Reason.NOT_GROWING, Reason.SPARE_MISSING)]


def _promised(places: Places, run: RunState) -> str:
    """``reservation train-1 starts it in 30m00s (2026-01-05T11:30:00Z)``."""
    promise = run.promise
    if promise is None:
        return ""
    if promise.at is None:
        return f"reservation {promise.name} has no date"
    return f"reservation {promise.name} starts it {countdown(places, promise)} ({format_time(promise.at)})"


def _threatened(cluster: Cluster, run: RunState) -> str:
    cluster.documents()  # so that its status says what threatens it as of now
    return short(risks_of(cluster.objects.get(("Run", *run.key)) or {}))
