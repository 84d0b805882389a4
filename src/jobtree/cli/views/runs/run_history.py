"""Formats the history of a Run from its verdict, leases, Reservations and status."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from jobtree.api.schema.object_meta import LOST_WORK
from jobtree.api.schema.quantities import HOUR, MILLI, format_milli, format_time
from jobtree.cli.shell.table import painted
from jobtree.cli.shell.wording import counted_noun
from jobtree.cli.source.lease_entries import LeaseEntry, entries
from jobtree.cli.views.lottery.lottery_story import lottery_story
from jobtree.cli.views.lottery.resolution_records import resolutions
from jobtree.cli.views.lottery.risk_lines import risk_lines, risks_of
from jobtree.cli.views.place_names import Places, slots_of
from jobtree.cli.views.runs.promise_view import promise_lines
from jobtree.cli.views.runs.run_summary import reasons, request_text, run_title, since, width_text
from jobtree.core import CLOSURE_SENTENCES, OPENING_SENTENCES, GpuLease, RunState, funding_status
from jobtree.snapshot.cluster import Cluster


class Moment(NamedTuple):
    """The key of leases that opened or closed at one instant, for one reason, with one payer."""

    at: int
    sign: str
    reason: str
    payer: tuple[str, str]
    class_: str
    role: str


class RunHistoryView:
    """A Run of a cluster, with its leases and all Reservations that concern it."""

    def __init__(self, cluster: Cluster, run: RunState) -> None:
        self.world = cluster.world
        self.run = run
        documents = cluster.documents()
        self.body = cluster.objects.get(("Run", *run.key)) or {}
        self.leases = entries(cluster, lambda lease: (lease.run_key, lease.uid) == (run.key, run.uid))
        self.resolutions = [item for item in resolutions(documents) if run.uid in item.uids]
        self.reservations = [
            body
            for _, body in cluster.objects.of("Reservation")
            if body["spec"]["runRef"]["uid"] == run.uid or any(body is item.body for item in self.resolutions)
        ]

    def objects(self) -> list[dict[str, Any]]:
        """Returns the Run, all Reservations that concern it, and all its leases."""
        return [self.body, *self.reservations, *(entry.body for entry in self.leases)]

    def lines(self) -> Iterator[str]:
        """Yields its present state, then its promise and risks, then its past."""
        run, places = self.run, Places(self.world)
        times = f"since {format_time(run.phase_at)} ({since(places, run)})"
        yield f"{run_title(run)} is {painted(run.phase)} {times}"
        yield f"  owner    {run.owner}"
        yield f"  asks     {request_text(run)}"
        yield f"  width    {width_text(run)}, attempt {run.attempt}"
        yield f"  created  {format_time(run.created)}"
        lost = int(self.body["metadata"].get("annotations", {}).get(LOST_WORK, "0"))
        if lost:
            hours = counted_noun(format_milli(lost * MILLI // HOUR), "GPU-hour")
            yield f"  lost     {hours} of work that had to be done again"
        yield "Why:"
        yield from reasons(run)
        if run.promise is not None:
            yield "Promise:"
            yield from promise_lines(places, run)
        yield from risk_lines(places, risks_of(self.body))
        for resolution in self.resolutions:
            yield from lottery_story(resolution, run.uid)
        if self.resolutions:
            yield f"  proof    'kubectl runs explain {run_title(run)} --verify' recomputes it"
        if self.leases:
            yield from self._lease_lines()

    def _lease_lines(self) -> Iterator[str]:
        yield "Leases:"
        groups = list(moments(self.leases))
        width = max(len(moment.reason) for moment, _ in groups)
        for moment, leases in groups:
            yield f"  {moment_line(moment, leases, width)}"
        yield "Who paid:"
        for share in funding_status(self.world, self.run):
            payer = f"{share.payer.budget}/{share.payer.envelope} of {share.payer.owner}"
            if share.class_ == "Opportunistic":
                payer = f"no envelope, recorded under {payer}"
            now = f"{counted_noun(share.gpus, 'GPU')} now, " if share.gpus else ""
            yield f"  {share.class_:<13}  {payer}: {now}{counted_noun(share.gpu_hours, 'GPU-hour')} in all"


def moments(ledger: Sequence[LeaseEntry]) -> Iterator[tuple[Moment, list[GpuLease]]]:
    """Yields all openings and closings in order of time; at one instant, closings come first."""
    marks = []
    for lease, end, closure, _ in ledger:
        key = (lease.payer, lease.class_, lease.role)
        marks.append((Moment(lease.start, "+", lease.reason, *key), lease))
        if end is not None:
            marks.append((Moment(end, "-", closure, *key), lease))
    marks.sort(key=lambda mark: (mark[0].at, mark[0].sign == "+", mark[0], mark[1].group, mark[1].name))
    for moment, group in groupby(marks, key=lambda mark: mark[0]):
        yield moment, [lease for _, lease in group]


def moment_line(moment: Moment, leases: Sequence[GpuLease], width: int) -> str:
    """``2026-01-05T09:00:00Z  Start  +8 GPUs, Owned, paid by west/h100: it started (a01#0-7)``."""
    sentence = (OPENING_SENTENCES if moment.sign == "+" else CLOSURE_SENTENCES)[moment.reason]
    gpus = sum(lease.gpus for lease in leases)
    spare = " spare" if moment.role == "Spare" else ""
    amount = f"{moment.sign}{gpus}{spare} GPU{'' if gpus == 1 else 's'}, {moment.class_}"
    payer = "" if moment.role == "Opportunistic" else f", paid by {'/'.join(moment.payer)}"
    when = f"{format_time(moment.at)}  {moment.reason:<{width}}"
    return f"{when}  {amount}{payer}: {sentence} ({slots_of(leases)})"
