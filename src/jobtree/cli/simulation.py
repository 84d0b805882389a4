"""From the words of ``simulate`` to a scene, its replay, and what is printed and written of it."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click
import msgspec

from jobtree.api.problems import InputError, Problem
from jobtree.api.quantities import SECOND, parse_duration
from jobtree.cli.errors import CommandError, Exit
from jobtree.cli.progress import Progress
from jobtree.cli.settings import Settings
from jobtree.cli.simulated import print_reports
from jobtree.replay.figures import report_of
from jobtree.replay.ground import Ground, made_up, made_up_budgets, of_state_file, owners_in
from jobtree.replay.ledger import is_ledger, read_ledger
from jobtree.replay.named import POLICIES
from jobtree.replay.outages import Outage, Rates, drawn, read_outages
from jobtree.replay.page import page
from jobtree.replay.report import Report, encode
from jobtree.replay.saved import SavedReplayError, load, run, save
from jobtree.replay.scene import Scene
from jobtree.replay.simulation import Simulation
from jobtree.replay.trace import LATEST_S, Cut, Trace, read_trace, skipped_lines
from jobtree.replay.whatif import changed
from jobtree.replay.workload import Declares, Habits


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for, in the words of the command line."""

    trace: str
    policy: str
    nodes: tuple[str, ...]
    gpus_per_node: int
    domains: int
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


def simulate(settings: Settings, request: Request) -> None:
    """Replay, and replay again with what is asked about; print and write the reports."""
    scene = scene_of(settings, request)
    for line in skipped_lines(scene.trace):
        click.echo(line, err=True)
    reports = [replayed(scene, request, ())]
    if changes := request.changes:
        other = scene
        for change in changes:
            other = changed(other, change)
        reports.append(replayed(other, request, changes))
    if request.json_file:
        write(request.json_file, encode(reports[-1]))
    if request.html_file:
        write(request.html_file, page(reports[-1]).encode())
    print_reports(settings, reports)


def write(path: str, data: bytes) -> None:
    try:
        Path(path).write_bytes(data)
    except OSError as broken:
        raise CommandError(Exit.IO, f"cannot write {path}: {broken.strerror}") from None


# The scene


def scene_of(settings: Settings, request: Request) -> Scene:
    ground = ground_of(settings, request)
    read = read_ledger if is_ledger(request.trace) else read_trace
    trace = read(request.trace, ground.gpus, cut_of(request))
    budgets, owners = ground.budgets, tuple[str, ...]()
    if request.fleet is not None:
        budgets, owners = made_up_budgets(trace, ground.gpus, asked_budgets(request.budget))
    else:
        owners = owners_in(budgets, trace.teams, request.trace)
    return Scene(
        trace=trace,
        nodes=ground.nodes,
        budgets=budgets,
        owners=owners,
        epoch=ground.epoch,
        habits=habits_of(request),
        outages=tuple(outages_of(request, len(ground.nodes), trace)),
        policy=ground.policy,
    )


def ground_of(settings: Settings, request: Request) -> Ground:
    if request.fleet is not None:
        if not request.fleet.isdecimal():
            raise InputError(
                "fleet", [Problem("--nodes", request.fleet, "must be a number such as 16 or +16")]
            )
        return made_up(int(request.fleet), request.gpus_per_node, request.domains)
    if request.budget:
        raise click.UsageError(
            "--budget is for a made-up fleet (--nodes N); a state file has budgets of its own"
        )
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
    return dict(pairs("--budget", texts))


def cut_of(request: Request) -> Cut:
    since = duration("--since", request.since) // SECOND if request.since else 0
    until = duration("--until", request.until) // SECOND if request.until else LATEST_S
    return Cut(tuple(pairs("--where", request.where)), since, until)


def duration(option: str, text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError as broken:
        raise InputError("options", [f"{option}: {broken}"]) from None


def habits_of(request: Request) -> Habits:
    every = None if request.checkpoint == "none" else duration("--checkpoint", request.checkpoint)
    if every == 0:
        raise InputError(
            "options", [Problem("--checkpoint", request.checkpoint, "must be more than 0, or none")]
        )
    return Habits(request.declare, every, request.notice, request.seed)


def outages_of(request: Request, nodes: int, trace: Trace) -> list[Outage]:
    text = request.faults
    if text is None:
        return []
    parts = text.split("/")
    if len(parts) == len(Rates.__struct_fields__) and text[:1].isdigit():
        rates = Rates(*(duration("--faults", part) for part in parts))
        if not 0 < rates.median < rates.p90 or not rates.between:
            raise InputError("options", [Problem("--faults", text, "all above 0, and p90 above p50")])
        return drawn(rates, nodes, trace.submit[0], trace.submit[-1], request.seed)
    return read_outages(text, nodes)


# The replay


def replayed(scene: Scene, request: Request, changes: tuple[str, ...]) -> Report:
    """Replay to the end, or keep what there is and say how to go on."""
    digest = scene.digest(request.policy)
    kept = None if request.resume is None else Path(request.resume + (".what-if" if changes else ""))
    try:
        simulation = (load(kept, digest) if kept else None) or POLICIES[request.policy](scene)
        with interruptible() as interrupted:
            progress = Progress(request.policy, len(scene.trace), simulation.meter.finished)
            watcher = Watcher(simulation, kept, digest, progress, interrupted)
            finished = run(simulation, watch=watcher)
            progress.clear()
        if not finished:
            watcher.keep()
            raise CommandError(Exit.INTERRUPTED, stopped(simulation, kept))
    except SavedReplayError as broken:
        raise CommandError(Exit.IO, str(broken)) from None
    if kept:
        kept.unlink(missing_ok=True)
    return report_of(simulation, request.policy, Path(request.trace).name, changes)


class Watcher:
    """Looks at a replay after every instant: shows it, keeps it, and stops it when asked to."""

    def __init__(
        self,
        simulation: Simulation,
        kept: Path | None,
        digest: str,
        progress: Progress,
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
    """Ctrl-C is noted and heeded between two instants; a second one ends at once."""
    noted: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        if noted:
            raise KeyboardInterrupt
        noted.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)


def stopped(simulation: Simulation, kept: Path | None) -> str:
    done = f"stopped with {simulation.meter.finished:,} of {len(simulation.trace):,} jobs done"
    if kept is None:
        return f"{done}; nothing is kept: with --resume FILE the same command would go on from here"
    return f"{done}; the same command goes on from {kept}"
