"""The story of a Run, told from its verdict, its leases, its Reservations and its status."""

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
from jobtree.cli.views.lottery.risk_lines import risks_of, threats
from jobtree.cli.views.place_names import Places, slots_of
from jobtree.cli.views.runs.promise_view import promise_lines
from jobtree.cli.views.runs.run_summary import asks, reasons, run_title, since, width_text
from jobtree.core import CLOSURE_SENTENCES, OPENING_SENTENCES, GpuLease, RunState, funding_status
from jobtree.snapshot.cluster import Cluster


class Moment(NamedTuple):
    """Leases that opened or closed together, for one reason, with one payer."""

    at: int
    sign: str
    reason: str
    payer: tuple[str, str]
    class_: str
    role: str


class RunHistoryView:
    """A Run of a cluster, with the leases and Reservations that tell of it."""

    def __init__(self, cluster: Cluster, run: RunState) -> None:
        self.world = cluster.world
        self.run = run
        documents = cluster.documents()
        self.body = cluster.objects.get(("Run", *run.key)) or {}
        self.leases = entries(cluster, lambda lease: (lease.run_key, lease.uid) == (run.key, run.uid))
        self.resolutions = [told for told in resolutions(documents) if run.uid in told.uids]
        self.reservations = [
            body
            for _, body in cluster.objects.of("Reservation")
            if body["spec"]["runRef"]["uid"] == run.uid or any(body is one.body for one in self.resolutions)
        ]

    def objects(self) -> list[dict[str, Any]]:
        """The Run, the Reservations it had a part in, and all its leases."""
        return [self.body, *self.reservations, *(entry.body for entry in self.leases)]

    def lines(self) -> Iterator[str]:
        """Where it stands, what is ahead, then what has been."""
        run, places = self.run, Places(self.world)
        times = f"since {format_time(run.phase_at)} ({since(places, run)})"
        yield f"{run_title(run)} is {painted(run.phase)} {times}"
        yield f"  owner    {run.owner}"
        yield f"  asks     {asks(run)}"
        yield f"  width    {width_text(run)}, attempt {run.attempt}"
        yield f"  created  {format_time(run.created)}"
        lost = int(self.body["metadata"].get("annotations", {}).get(LOST_WORK, "0"))
        if lost:
            hours = counted_noun(format_milli(lost * MILLI // HOUR), "GPU-hour")
            yield f"  lost     {hours} of work that had to be done again"
        yield "Why:"
        yield from reasons(run)
        if run.promise is not None:
            yield "What it is promised:"
            yield from promise_lines(places, run)
        yield from threats(places, risks_of(self.body))
        for told in self.resolutions:
            yield from lottery_story(told, run.uid)
        if self.resolutions:
            yield f"  proof    'kubectl runs explain {run_title(run)} --verify' recomputes it"
        if self.leases:
            yield from self._held()

    def _held(self) -> Iterator[str]:
        yield "What it held:"
        held = list(moments(self.leases))
        room = max(len(moment.reason) for moment, _ in held)
        for moment, leases in held:
            yield f"  {moment_line(moment, leases, room)}"
        yield "Who paid:"
        for share in funding_status(self.world, self.run):
            payer = f"{share.payer.budget}/{share.payer.envelope} of {share.payer.owner}"
            if share.class_ == "Opportunistic":
                payer = f"nobody, in the name of {payer}"
            now = f"{counted_noun(share.gpus, 'GPU')} now, " if share.gpus else ""
            yield f"  {share.class_:<13}  {payer}: {now}{counted_noun(share.gpu_hours, 'GPU-hour')} in all"


def moments(found: Sequence[LeaseEntry]) -> Iterator[tuple[Moment, list[GpuLease]]]:
    """All openings and closings in time; at one instant what closed comes first."""
    marks = []
    for lease, end, closure, _ in found:
        who = (lease.payer, lease.class_, lease.role)
        marks.append((Moment(lease.start, "+", lease.reason, *who), lease))
        if end is not None:
            marks.append((Moment(end, "-", closure, *who), lease))
    marks.sort(key=lambda mark: (mark[0].at, mark[0].sign == "+", mark[0], mark[1].group, mark[1].name))
    for moment, group in groupby(marks, key=lambda mark: mark[0]):
        yield moment, [lease for _, lease in group]


def moment_line(moment: Moment, leases: Sequence[GpuLease], room: int) -> str:
    """``2026-01-05T09:00:00Z  Start  +8 GPUs, Owned, paid by west/h100: it started (a01#0-7)``."""
    sentence = (OPENING_SENTENCES if moment.sign == "+" else CLOSURE_SENTENCES)[moment.reason]
    gpus = sum(lease.gpus for lease in leases)
    spare = " spare" if moment.role == "Spare" else ""
    what = f"{moment.sign}{gpus}{spare} GPU{'' if gpus == 1 else 's'}, {moment.class_}"
    payer = "" if moment.role == "Opportunistic" else f", paid by {'/'.join(moment.payer)}"
    when = f"{format_time(moment.at)}  {moment.reason:<{room}}"
    return f"{when}  {what}{payer}: {sentence} ({slots_of(leases)})"
