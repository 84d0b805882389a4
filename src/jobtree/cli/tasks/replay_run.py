"""From the words of ``simulate`` to a scene, its replay, and what is printed and written of it."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from types import FrameType

import click
import msgspec

from jobtree.api.schema.problems import InputError, Problem, repeats
from jobtree.api.schema.quantities import SECOND, parse_duration
from jobtree.cli.shell.command_errors import CommandError, Exit
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.shell.progress_line import ProgressLine
from jobtree.cli.shell.wording import joined_list
from jobtree.cli.views.fleet.replay_tables import print_reports
from jobtree.simulation.inputs.csv_table import LATEST_S, LONGEST
from jobtree.simulation.inputs.job_trace import Cut, Trace, read_trace, skipped_lines
from jobtree.simulation.inputs.lease_trace import is_ledger, read_ledger
from jobtree.simulation.inputs.outages import Outage, draw_replay_outages, parse_rates, replay_outages
from jobtree.simulation.inputs.replay_cluster import (
    ReplayCluster,
    made_up,
    made_up_budgets,
    of_state_file,
    owners_in,
)
from jobtree.simulation.inputs.replay_setup import ReplaySetup
from jobtree.simulation.inputs.user_behavior import Declares, UserBehavior
from jobtree.simulation.inputs.what_if import changed
from jobtree.simulation.replay.engine import Simulation
from jobtree.simulation.replay.saved_replay import SavedReplayError, load, run, save
from jobtree.simulation.reports.html_page import page
from jobtree.simulation.reports.report import Report, encode_report
from jobtree.simulation.reports.statistics import report_of
from jobtree.simulation.schedulers.scheduler_names import POLICIES

GPUS_PER_NODE = 8
SIGNALLED = 128  # what shells add to the number of the signal that ended a command


class SimulateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for, in the words of the command line."""

    trace: str
    policy: str
    nodes: tuple[str, ...]
    gpus_per_node: int | None
    domains: int | None
    budget: tuple[str, ...]
    flavor: str | None
    where: tuple[str, ...]
    since: str | None
    until: str | None
    declare: Declares
    checkpoint: str
    notice: bool
    faults: str | None
    seed: int
    what_if: tuple[str, ...]
    json_file: str | None
    html_file: str | None
    resume: str | None

    @property
    def fleet(self) -> str | None:
        """How many nodes the made-up fleet has; None: the state file's."""
        plain = [text for text in self.nodes if text[:1] not in ("+", "-")]
        if len(plain) > 1:
            raise click.UsageError(f"--nodes {' and '.join(plain)}: the fleet has one size; +N adds to it")
        return plain[0] if plain else None

    @property
    def changes(self) -> tuple[str, ...]:
        return (*self.what_if, *(f"nodes {text}" for text in self.nodes if text[:1] in ("+", "-")))


def simulate(settings: CommandOptions, request: SimulateRequest) -> None:
    """Replay, and replay again with what is asked about; print and write the reports.

    What can be refused is refused before the first replay; what was replayed is kept until all is written.
    """
    scene = scene_of(settings, request)
    scenes: dict[tuple[str, ...], ReplaySetup] = {(): with_outages(scene, request)}
    if changes := request.changes:
        scenes[changes] = with_outages(reduce(changed, changes, scene), request)
    for path in (request.json_file, request.html_file, request.resume):
        check_place(path)
    for line in dict.fromkeys(line for one in scenes.values() for line in skipped_lines(one.trace)):
        click.echo(line, err=True)
    reports = [replayed(one, request, asked) for asked, one in scenes.items()]
    print_reports(settings, reports)
    if request.json_file:
        write(request.json_file, encode_report(reports[-1]))
    if request.html_file:
        write(request.html_file, page(*reports).encode())
    for asked in scenes:
        if kept := kept_in(request, asked):
            kept.unlink(missing_ok=True)


def check_place(path: str | None) -> None:
    """That a file can be written, said before hours of replay and not after."""
    if path is None:
        return
    place = Path(path)
    for wrong, why in (
        (place.is_dir(), "is a directory"),
        (not place.parent.is_dir(), f"there is no directory {place.parent}"),
        (not os.access(place if place.exists() else place.parent, os.W_OK), "no right to write there"),
    ):
        if wrong:
            raise CommandError(Exit.IO, f"cannot write {path}: {why}")


def write(path: str, data: bytes) -> None:
    try:
        Path(path).write_bytes(data)
    except OSError as broken:
        raise CommandError(Exit.IO, f"cannot write {path}: {broken.strerror}") from None


# The scene


def scene_of(settings: CommandOptions, request: SimulateRequest) -> ReplaySetup:
    ground = ground_of(settings, request)
    read = read_ledger if is_ledger(request.trace) else read_trace
    trace = read(request.trace, ground.gpus, cut_of(request))
    if ground.left_out:
        names = joined_list(ground.left_out)
        click.echo(f"left out, being cordoned, failed or not ready: {names}", err=True)
    budgets, owners = ground.budgets, tuple[str, ...]()
    if request.fleet is not None:
        budgets, owners = made_up_budgets(trace, ground.gpus, asked_budgets(request.budget))
    else:
        owners = owners_in(budgets, trace.teams, request.trace)
    return ReplaySetup(
        trace=trace,
        nodes=ground.nodes,
        budgets=budgets,
        owners=owners,
        epoch=ground.epoch,
        habits=habits_of(request),
        policy=ground.policy,
    )


def with_outages(scene: ReplaySetup, request: SimulateRequest) -> ReplaySetup:
    """Of a changed fleet, nodes that were added fail like the others, and those that are gone do not."""
    outages = outages_of(request, len(scene.nodes), scene.trace)
    return msgspec.structs.replace(scene, outages=tuple(outages))


def ground_of(settings: CommandOptions, request: SimulateRequest) -> ReplayCluster:
    if request.fleet is not None:
        if request.flavor is not None:
            raise click.UsageError(
                "--flavor is for the fleet of a state file; a made-up one has one kind of GPU"
            )
        if not request.fleet.isdecimal() or len(request.fleet) > LONGEST:
            raise InputError(
                "fleet", [Problem("--nodes", request.fleet, "must be a number such as 16 or +16")]
            )
        sizes = (
            fallback if size is None else size
            for size, fallback in ((request.gpus_per_node, GPUS_PER_NODE), (request.domains, 1))
        )
        return made_up(int(request.fleet), *sizes)
    for option, given in (
        ("--budget", request.budget or None),
        ("--gpus-per-node", request.gpus_per_node),
        ("--domains", request.domains),
    ):
        if given is not None:
            raise click.UsageError(f"{option} is for a made-up fleet (--nodes N); a state file has its own")
    path = settings.state_path
    try:
        return of_state_file(path, request.flavor)
    except FileNotFoundError:
        raise CommandError(Exit.NOT_FOUND, f"there is no state file {path}") from None
    except (OSError, UnicodeDecodeError) as broken:
        raise CommandError(Exit.IO, f"cannot read {path}: {broken}") from None


def pairs(option: str, texts: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for text in texts:
        name, equals, value = text.rpartition("=")
        if not equals or not name:
            raise InputError("options", [Problem(option, text, "must be NAME=VALUE")])
        yield name, value


def asked_budgets(texts: tuple[str, ...]) -> dict[str, str]:
    found = list(pairs("--budget", texts))
    for _, team in repeats(team for team, _ in found):
        raise InputError("options", [Problem("--budget", team, "is given twice")])
    return dict(found)


def cut_of(request: SimulateRequest) -> Cut:
    """Of a ledger, only Runs that asked for the kind of GPU that is replayed on, where one is chosen."""
    since = duration("--since", request.since) // SECOND if request.since else 0
    until = duration("--until", request.until) // SECOND if request.until else LATEST_S
    where = list(pairs("--where", request.where))
    if request.flavor is not None and is_ledger(request.trace):
        where.append(("gpu_type", request.flavor))
    return Cut(tuple(where), since, until)


def duration(option: str, text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError as broken:
        raise InputError("options", [f"{option}: {broken}"]) from None


def habits_of(request: SimulateRequest) -> UserBehavior:
    every = None if request.checkpoint == "none" else duration("--checkpoint", request.checkpoint)
    if every == 0:
        raise InputError(
            "options", [Problem("--checkpoint", request.checkpoint, "must be more than 0, or none")]
        )
    return UserBehavior(request.declare, every, request.notice, request.seed)


def outages_of(request: SimulateRequest, nodes: int, trace: Trace) -> list[Outage[int]]:
    if request.faults is None:
        return []
    rates = parse_rates(request.faults)
    if rates is None:
        return replay_outages(request.faults, nodes)
    return draw_replay_outages(rates, nodes, trace.submit[0], trace.submit[-1], request.seed)


# The replay


def kept_in(request: SimulateRequest, changes: tuple[str, ...]) -> Path | None:
    """The file in which a replay is kept: that with changes beside that without."""
    return None if request.resume is None else Path(request.resume + (".what-if" if changes else ""))


def replayed(scene: ReplaySetup, request: SimulateRequest, changes: tuple[str, ...]) -> Report:
    """Replay to the end, or as far as it may; keep what there is, and say how to go on."""
    digest = scene.digest(request.policy)
    kept = kept_in(request, changes)
    try:
        simulation = (load(kept, digest) if kept else None) or POLICIES[request.policy](scene)
        with interruptible() as interrupted:
            progress = ProgressLine(request.policy, len(scene.trace), simulation.meter.finished)
            watcher = Watcher(simulation, kept, digest, progress, interrupted)
            finished = run(simulation, watch=watcher)
            progress.clear()
            watcher.keep()
        if not finished:
            raise CommandError(Exit(SIGNALLED + interrupted[0]), stopped(simulation, kept))
    except SavedReplayError as broken:
        raise CommandError(Exit.IO, str(broken)) from None
    return report_of(simulation, request.policy, Path(request.trace).name, changes)


class Watcher:
    """Looks at a replay after every instant: shows it, keeps it, and stops it when asked to."""

    def __init__(
        self,
        simulation: Simulation,
        kept: Path | None,
        digest: str,
        progress: ProgressLine,
        interrupted: list[int],
    ) -> None:
        self._simulation, self._kept, self._digest = simulation, kept, digest
        self._progress, self._interrupted = progress, interrupted

    def __call__(self, simulation: Simulation) -> bool:
        if self._progress.show(simulation.meter.finished):
            self.keep()
        return bool(self._interrupted)

    def keep(self) -> None:
        if self._kept is not None:
            save(self._kept, self._simulation, self._digest)


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """Ctrl-C, or being told to end, is noted and heeded between two instants; a second time ends at once."""
    noted: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        if noted:
            raise KeyboardInterrupt
        noted.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stopped(simulation: Simulation, kept: Path | None) -> str:
    done = f"stopped with {simulation.meter.finished:,} of {len(simulation.trace):,} jobs done"
    if kept is None:
        return f"{done}; nothing is kept: with --resume FILE the same command would go on from here"
    return f"{done}; the same command goes on from {kept}"
