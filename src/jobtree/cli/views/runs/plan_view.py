"""Formats the result of ``plan``: for each Run its slots and payers, or its reasons and their remedies."""

from collections.abc import Iterator, Sequence
from typing import Any

import click

from jobtree.api.schema.quantities import MILLI, format_milli, format_time
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.shell.table import Column, print_table
from jobtree.cli.views.credit_text import credits_per_hour
from jobtree.cli.views.event_lines import event_lines
from jobtree.cli.views.place_names import Places, slots_of
from jobtree.cli.views.runs.funding_remedies import further_funding
from jobtree.cli.views.runs.promise_view import promise_lines
from jobtree.cli.views.runs.remedies import remedy_lines
from jobtree.cli.views.runs.run_summary import request_text, run_outcome, run_title
from jobtree.core import GpuLease, RunKey, RunState, phase_of
from jobtree.messages.run_events import Event
from jobtree.messages.wording import counted_noun
from jobtree.snapshot.cluster import Cluster
from jobtree.snapshot.object_documents import Key

COLUMNS = (
    Column("GROUP", right=True),
    Column("ROLE"),
    Column("GPUS", right=True),
    Column("DOMAIN", rank=1),
    Column("SLOTS", shrinks=True),
    Column("PAYER", answer=True),
    Column("CLASS", rank=2, answer=True),
)


class PlanView:
    """Runs of a planned cluster, with the events of that plan."""

    def __init__(self, cluster: Cluster, runs: Sequence[RunKey], events: Sequence[Event]) -> None:
        self.cluster = cluster
        self.places = Places(cluster.world)
        self.runs = [cluster.world.runs[run_key] for run_key in runs if run_key in cluster.world.runs]
        self.started = {event.run for event in events if event.name == "Admitted"}
        self.effects = [event for event in events if event.run not in set(runs)]

    @property
    def starts(self) -> bool:
        """Whether all Runs are running or would start now."""
        return all(phase_of(self.cluster.world, run) == "Running" for run in self.runs)

    def objects(self) -> list[dict[str, Any]]:
        """Returns the Runs as planned, each with its Reservation and leases."""
        self.cluster.documents()
        objects = self.cluster.objects
        keys = [key for run in self.runs for key in self._keys(run)]
        return [body for key in keys if (body := objects.get(key))]

    @staticmethod
    def _keys(run: RunState) -> Iterator[Key]:
        yield ("Run", *run.key)
        if run.promise is not None:
            yield ("Reservation", run.key[0], run.promise.name)
        for name in sorted(run.leases):
            yield ("Lease", "", name)

    def show(self, settings: CommandOptions) -> None:
        for run in self.runs:
            if run.phase == "Running" and run.shape is not None:
                self._show_slots(settings, run)
            else:
                for line in self._waiting(run):
                    click.echo(line)
        if self.effects:
            click.echo("this would also happen:" if self.runs else "this would happen:")
            for line in event_lines(self.effects, "  "):
                click.echo(line)
        elif not self.runs:
            click.echo("nothing would change for any Run")

    def _show_slots(self, settings: CommandOptions, run: RunState) -> None:
        if run.key in self.started:
            click.echo(f"{run_title(run)} would start now: {request_text(run)}")
        else:
            click.echo(f"{run_title(run)} has run since {format_time(run.since or 0)}: {request_text(run)}")
        leases = sorted(run.leases.values(), key=lambda lease: (lease.group, lease.role, lease.name))
        print_table(settings, COLUMNS, [self._row(lease) for lease in leases])
        charge = sum(lease.charge for lease in leases)
        price = credits_per_hour(self.cluster.world, run.flavor, charge)
        click.echo(
            f"width {run.width}, charge {format_milli(charge)}{price}, "
            f"pods of {counted_noun(run.pod_size, 'GPU')}"
        )
        for line in promise_lines(self.places, run, ""):
            click.echo(line)

    def _row(self, lease: GpuLease) -> list[str]:
        return [
            str(lease.group),
            lease.role,
            str(lease.gpus),
            self.places.domains([lease]),
            slots_of([lease]),
            "/".join(lease.payer),
            lease.class_,
        ]

    def _waiting(self, run: RunState) -> Iterator[str]:
        if not run.waiting:
            yield from run_outcome(self.places, run)
            return
        world = self.cluster.world
        price = credits_per_hour(world, run.flavor, run.shape.total * MILLI) if run.shape else ""
        yield f"{run_title(run)} cannot start now: {request_text(run)}{price}"
        if not (run.verdict and run.verdict.causes):
            yield "  the manager has not planned this Run yet"
        for cause in run.verdict.causes if run.verdict else ():
            figures = f" (have {cause.have}, need {cause.need})" if cause.need else ""
            yield f"  {cause.reason}{figures}: {cause}"
            for remedy in remedy_lines(world, run, cause):
                yield f"    → {remedy}"
        further = list(further_funding(world, run))
        if further:
            yield "  Other ways to pay:"
            for way in further:
                yield f"    → {way}"
        yield from promise_lines(self.places, run)
