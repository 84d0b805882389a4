"""Formats the history of a Run from its verdict, leases, Reservations and status."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from jobtree.api.kubernetes.pod_binding import choose_binding
from jobtree.api.schema.object_meta import LOST_WORK
from jobtree.api.schema.quantities import HOUR, MILLI, format_milli, format_time
from jobtree.cli.shell.table import painted
from jobtree.cli.views.credit_text import credits_paid
from jobtree.cli.views.lottery.lottery_story import lottery_story
from jobtree.cli.views.lottery.risk_lines import risk_lines
from jobtree.cli.views.place_names import Places, slots_of
from jobtree.cli.views.runs.promise_view import promise_lines
from jobtree.cli.views.runs.run_summary import reasons, request_text, run_title, since, width_text
from jobtree.client.lottery.risk_entries import risks_of
from jobtree.client.plans.explanation import Explanation
from jobtree.client.source.lease_entries import LeaseEntry
from jobtree.core import (
    CLOSURE_SENTENCES,
    OPENING_SENTENCES,
    GpuLease,
    funding_status,
    phase_of,
    total_width,
)
from jobtree.messages.wording import counted_noun


class Moment(NamedTuple):
    """The key of leases that opened or closed at one instant, for one reason, with one payer."""

    at: int
    sign: str
    reason: str
    payer: tuple[str, str]
    class_: str
    role: str


class RunHistoryView:
    """Prints the history of a Run."""

    def __init__(self, history: Explanation) -> None:
        self.world = history.world
        self.run = history.state
        self.body = history.body
        self.stages = [RunHistoryView(stage) for stage in history.stages]
        self.leases = history.entries
        self.resolutions = history.resolutions

    def lines(self) -> Iterator[str]:
        """Yields its present state, then its promise and risks, then its past."""
        run, places = self.run, Places(self.world)
        yield from self._facts(places)
        if run.verdict and run.verdict.causes:
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
            yield from lease_lines(self.leases)
            yield from self._payer_lines()
        if self.stages:
            yield "Stages:"
        for stage in self.stages:
            yield from (f"  {line}" for line in stage.lines())

    def _facts(self, places: Places) -> Iterator[str]:
        """Yields its phase, and what it is: owner, request, width."""
        run = self.run
        times = f"since {format_time(run.phase_at)} ({since(places, run)})"
        yield f"{run_title(run)} is {painted(phase_of(self.world, run))} {times}"
        yield f"  owner    {run.owner}"
        yield f"  asks     {request_text(run)}"
        if run.is_tree:
            total = total_width(self.world, run)
            yield f"  width    {total.allocated}/{total.desired}, of all stages"
        elif run.shape is not None:
            yield f"  width    {width_text(run)}, attempt {run.attempt}"
        yield f"  created  {format_time(run.created)}"
        if not run.is_tree:
            yield from self._binding_line()
        lost = int(self.body["metadata"].get("annotations", {}).get(LOST_WORK, "0"))
        if lost:
            hours = counted_noun(format_milli(lost * MILLI // HOUR), "GPU-hour")
            yield f"  lost     {hours} of work that had to be done again"

    def _binding_line(self) -> Iterator[str]:
        """Says who binds its pods, if something in them needs the scheduler (N1)."""
        policy = self.world.policy
        own = self.run.run_object.spec.template
        template = own.document() if own is not None else policy.default_template
        choice = choose_binding(policy.binding, template or {})
        if choice.by_scheduler or choice.needs:
            binder = (
                "kube-scheduler binds its pods" if choice.by_scheduler else "Jobtree binds its pods itself"
            )
            why = f", which need it for {', '.join(choice.needs)}" if choice.needs else ""
            yield f"  binding  {binder}{why} (policy: {policy.binding})"

    def _payer_lines(self) -> Iterator[str]:
        yield "Who paid:"
        for share in funding_status(self.world, self.run):
            payer = f"{share.payer.budget}/{share.payer.envelope} of {share.payer.owner}"
            if share.class_ == "Opportunistic":
                payer = f"no envelope, recorded under {payer}"
            now = f"{counted_noun(share.gpus, 'GPU')} now, " if share.gpus else ""
            yield f"  {share.class_:<13}  {payer}: {now}{counted_noun(share.gpu_hours, 'GPU-hour')} in all"
        if spent := credits_paid(self.world, self.run):
            yield f"  in all         {spent}, at the present price"


def deleted_run_lines(name: str, leases: Sequence[LeaseEntry]) -> Iterator[str]:
    """Yields what the ledger still tells of a Run that was deleted."""
    last = max(leases, key=lambda entry: (entry.end or 0, entry.lease.name))
    how = CLOSURE_SENTENCES.get(last.closure, "")
    yield f"{name} was deleted; its leases stay in the ledger"
    yield f"  owner    {last.lease.owner}"
    if last.end is not None:
        yield f"  ended    {format_time(last.end)}, {last.closure}: {how}"
    yield from lease_lines(leases)


def lease_lines(leases: Sequence[LeaseEntry]) -> Iterator[str]:
    """Yields a line for each instant at which leases opened or closed."""
    yield "Leases:"
    groups = list(moments(leases))
    width = max(len(moment.reason) for moment, _ in groups)
    for moment, opened_or_closed in groups:
        yield f"  {moment_line(moment, opened_or_closed, width)}"


def moments(ledger: Sequence[LeaseEntry]) -> Iterator[tuple[Moment, list[GpuLease]]]:
    """Yields all openings and closings in order of time.

    At one instant, closings come first, but for leases that opened at that very instant.
    """
    marks = []
    for lease, end, closure, _ in ledger:
        key = (lease.payer, lease.class_, lease.role)
        marks.append((1, Moment(lease.start, "+", lease.reason, *key), lease))
        if end is not None:
            marks.append((2 if end == lease.start else 0, Moment(end, "-", closure, *key), lease))
    marks.sort(key=lambda mark: (mark[1].at, mark[0], mark[1], mark[2].group, mark[2].name))
    for (_, moment), group in groupby(marks, key=itemgetter(0, 1)):
        yield moment, [lease for _, _, lease in group]


def moment_line(moment: Moment, leases: Sequence[GpuLease], width: int) -> str:
    """``2026-01-05T09:00:00Z  Start  +8 GPUs, Owned, paid by west/h100: it started (a01#0-7)``."""
    return f"{format_time(moment.at)}  {moment.reason:<{width}}  {moment_text(moment, leases)}"


def moment_text(moment: Moment, leases: Sequence[GpuLease]) -> str:
    """``+8 GPUs, Owned, paid by west/h100: it started (a01#0-7)``."""
    sentence = (OPENING_SENTENCES if moment.sign == "+" else CLOSURE_SENTENCES)[moment.reason]
    gpus = sum(lease.gpus for lease in leases)
    spare = " spare" if moment.role == "Spare" else ""
    amount = f"{moment.sign}{gpus}{spare} GPU{'' if gpus == 1 else 's'}, {moment.class_}"
    payer = "" if moment.role == "Opportunistic" else f", paid by {'/'.join(moment.payer)}"
    return f"{amount}{payer}: {sentence} ({slots_of(leases)})"
