"""Implements ``simulate``: builds a replay setup from the options, replays it, and writes the reports."""

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
from jobtree.cli.views.fleet.replay_tables import print_reports
from jobtree.messages.wording import joined_list
from jobtree.simulation.inputs.csv_table import MAX_DIGITS, MAX_SECONDS
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
SIGNALLED = 128  # shells add this to the number of the signal that ended a command


class SimulateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command line."""

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
    restart_cost: str
    notice: bool
    faults: str | None
    seed: int
    what_if: tuple[str, ...]
    json_file: str | None
    html_file: str | None
    resume: str | None

    @property
    def fleet(self) -> str | None:
        """Returns the number of nodes of the made-up fleet; None: the fleet of the state file."""
        sizes = [text for text in self.nodes if text[:1] not in ("+", "-")]
        if len(sizes) > 1:
            raise click.UsageError(
                f"--nodes {' and '.join(sizes)}: give one size of the fleet; +N adds nodes to it"
            )
        return sizes[0] if sizes else None

    @property
    def changes(self) -> tuple[str, ...]:
        return (*self.what_if, *(f"nodes {text}" for text in self.nodes if text[:1] in ("+", "-")))


def simulate(settings: CommandOptions, request: SimulateRequest) -> None:
    """Replays the trace, and again with the what-if changes; prints and writes the reports.

    All options are checked before the first replay; saved replays are deleted after all reports are written.
    """
    setup = build_setup(settings, request)
    setups: dict[tuple[str, ...], ReplaySetup] = {(): with_outages(setup, request)}
    if changes := request.changes:
        setups[changes] = with_outages(reduce(changed, changes, setup), request)
    for path in (request.json_file, request.html_file, request.resume):
        check_writable(path)
    for line in dict.fromkeys(line for setup in setups.values() for line in skipped_lines(setup.trace)):
        click.echo(line, err=True)
    reports = [replay(setup, request, changes) for changes, setup in setups.items()]
    print_reports(settings, reports)
    if request.json_file:
        write(request.json_file, encode_report(reports[-1]))
    if request.html_file:
        write(request.html_file, page(*reports).encode())
    for changes in setups:
        if saved := saved_replay_path(request, changes):
            saved.unlink(missing_ok=True)


def check_writable(path: str | None) -> None:
    """Raises CommandError before hours of replay if a file cannot be written afterwards."""
    if path is None:
        return
    file = Path(path)
    for is_wrong, why in (
        (file.is_dir(), "is a directory"),
        (not file.parent.is_dir(), f"there is no directory {file.parent}"),
        (not os.access(file if file.exists() else file.parent, os.W_OK), "you may not write there"),
    ):
        if is_wrong:
            raise CommandError(Exit.IO, f"cannot write {path}: {why}")


def write(path: str, data: bytes) -> None:
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise CommandError(Exit.IO, f"cannot write {path}: {error.strerror}") from None


# The setup


def build_setup(settings: CommandOptions, request: SimulateRequest) -> ReplaySetup:
    cluster = replay_cluster(settings, request)
    read = read_ledger if is_ledger(request.trace) else read_trace
    trace = read(request.trace, cluster.gpus, cut_of(request))
    if cluster.left_out:
        names = joined_list(cluster.left_out)
        click.echo(f"left out nodes that are cordoned, failed or not ready: {names}", err=True)
    budgets, owners = cluster.budgets, tuple[str, ...]()
    if request.fleet is not None:
        budgets, owners = made_up_budgets(trace, cluster.nodes, asked_budgets(request.budget))
    else:
        owners = owners_in(budgets, trace.teams, request.trace)
    return ReplaySetup(
        trace=trace,
        nodes=cluster.nodes,
        budgets=budgets,
        owners=owners,
        epoch=cluster.epoch,
        behavior=user_behavior(request),
        policy=cluster.policy,
    )


def with_outages(setup: ReplaySetup, request: SimulateRequest) -> ReplaySetup:
    """Adds outages of all nodes of the setup, including nodes that a what-if change added."""
    outages = outages_of(request, len(setup.nodes), setup.trace)
    return msgspec.structs.replace(setup, outages=tuple(outages))


def replay_cluster(settings: CommandOptions, request: SimulateRequest) -> ReplayCluster:
    if request.fleet is not None:
        if request.flavor is not None:
            raise click.UsageError(
                "--flavor is for the fleet of a state file; a made-up one has one kind of GPU"
            )
        if not request.fleet.isdecimal() or len(request.fleet) > MAX_DIGITS:
            raise InputError(
                "options", [Problem("--nodes", request.fleet, "must be a number such as 16 or +16")]
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
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(Exit.IO, f"cannot read {path}: {error}") from None


def pairs(option: str, texts: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for text in texts:
        name, equals, value = text.rpartition("=")
        if not equals or not name:
            raise InputError("options", [Problem(option, text, "must be NAME=VALUE")])
        yield name, value


def asked_budgets(texts: tuple[str, ...]) -> dict[str, str]:
    budgets = list(pairs("--budget", texts))
    for _, team in repeats(team for team, _ in budgets):
        raise InputError("options", [Problem("--budget", team, "is given twice")])
    return dict(budgets)


def cut_of(request: SimulateRequest) -> Cut:
    """Returns which jobs to replay; --flavor also selects the Runs of a ledger with this flavor."""
    since = duration("--since", request.since) // SECOND if request.since else 0
    until = duration("--until", request.until) // SECOND if request.until else MAX_SECONDS
    where = list(pairs("--where", request.where))
    if request.flavor is not None and is_ledger(request.trace):
        where.append(("gpu_type", request.flavor))
    return Cut(tuple(where), since, until)


def duration(option: str, text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InputError("options", [f"{option}: {error}"]) from None


def user_behavior(request: SimulateRequest) -> UserBehavior:
    interval = None if request.checkpoint == "none" else duration("--checkpoint", request.checkpoint)
    if interval == 0:
        raise InputError(
            "options", [Problem("--checkpoint", request.checkpoint, "must be more than 0, or none")]
        )
    restart_cost = duration("--restart-cost", request.restart_cost)
    return UserBehavior(request.declare, interval, request.notice, request.seed, restart_cost)


def outages_of(request: SimulateRequest, nodes: int, trace: Trace) -> list[Outage[int]]:
    if request.faults is None:
        return []
    rates = parse_rates(request.faults)
    if rates is None:
        return replay_outages(request.faults, nodes)
    return draw_replay_outages(rates, nodes, trace.submit[0], trace.submit[-1], request.seed)


# The replay


def saved_replay_path(request: SimulateRequest, changes: tuple[str, ...]) -> Path | None:
    """Returns the file that a replay is saved in; the replay with changes has one of its own."""
    return None if request.resume is None else Path(request.resume + (".what-if" if changes else ""))


def replay(setup: ReplaySetup, request: SimulateRequest, changes: tuple[str, ...]) -> Report:
    """Replays to the end. If interrupted, saves the replay and says how to continue."""
    digest = setup.digest(request.policy)
    path = saved_replay_path(request, changes)
    try:
        simulation = (load(path, digest) if path else None) or POLICIES[request.policy](setup)
        with interruptible() as interrupted:
            progress = ProgressLine(request.policy, len(setup.trace), simulation.meter.finished)
            watcher = ReplayWatcher(simulation, path, digest, progress, interrupted)
            finished = run(simulation, watch=watcher)
            progress.clear()
            watcher.save()
        if not finished:
            raise CommandError(Exit(SIGNALLED + interrupted[0]), stopped_message(simulation, path))
    except SavedReplayError as error:
        raise CommandError(Exit.IO, str(error)) from None
    return report_of(simulation, request.policy, Path(request.trace).name, changes)


class ReplayWatcher:
    """Is called after every instant of a replay: shows progress, saves, and stops after a signal."""

    def __init__(
        self,
        simulation: Simulation,
        path: Path | None,
        digest: str,
        progress: ProgressLine,
        interrupted: list[int],
    ) -> None:
        self._simulation, self._path, self._digest = simulation, path, digest
        self._progress, self._interrupted = progress, interrupted

    def __call__(self, simulation: Simulation) -> bool:
        if self._progress.show(simulation.meter.finished):
            self.save()
        return bool(self._interrupted)

    def save(self) -> None:
        if self._path is not None:
            save(self._path, self._simulation, self._digest)


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """Yields a list that records SIGINT and SIGTERM for the next check; a second signal ends at once."""
    signals: list[int] = []

    def record(number: int, _: FrameType | None) -> None:
        if signals:
            raise KeyboardInterrupt
        signals.append(number)

    handlers = {number: signal.signal(number, record) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def stopped_message(simulation: Simulation, path: Path | None) -> str:
    done = f"stopped with {simulation.meter.finished:,} of {len(simulation.trace):,} jobs done"
    if path is None:
        return f"{done}; nothing was saved: with --resume FILE the same command would continue from here"
    return f"{done}; the same command continues from {path}"
