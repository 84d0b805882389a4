"""Formats the result of ``plan``: for each Run its slots and payers, or its reasons and their remedies."""

from collections.abc import Iterator

import click

from jobtree.api.schema.quantities import MILLI, format_milli, format_time
from jobtree.cli.shell.object_output import print_objects
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.shell.table import Column, print_table
from jobtree.cli.views.credit_text import credits_per_hour
from jobtree.cli.views.event_lines import event_lines
from jobtree.cli.views.place_names import Places, slots_of
from jobtree.cli.views.runs.plan_reports import github_lines, junit_report
from jobtree.cli.views.runs.promise_view import promise_lines
from jobtree.cli.views.runs.run_summary import request_text, run_outcome, run_title
from jobtree.client.plans.funding_remedies import further_funding
from jobtree.client.plans.plan_result import PlanResult
from jobtree.client.plans.remedies import remedy_lines
from jobtree.core import GpuLease, RunState
from jobtree.messages.wording import counted_noun

COLUMNS = (
    Column("GROUP", right=True),
    Column("ROLE"),
    Column("GPUS", right=True),
    Column("DOMAIN", rank=1),
    Column("SLOTS", shrinks=True),
    Column("PAYER", answer=True),
    Column("CLASS", rank=2, answer=True),
)


def print_plan(settings: CommandOptions, result: PlanResult, *, allow_wait: bool) -> bool:
    """Prints a plan in the requested format. Returns whether all Runs start, or may wait and have a date."""
    accepted = result.accepted(allow_wait=allow_wait)
    if settings.human:
        PlanView(result).show(settings)
    elif settings.output == "github":
        for line in github_lines(result):
            click.echo(line)
    elif settings.output == "junit":
        click.echo(junit_report(result, accepted))
    else:
        answers = [] if settings.output == "name" else result.documents()
        print_objects(settings, [*result.objects(), *answers])
    return len(accepted) == len(result.states)


class PlanView:
    """Prints the result of a plan."""

    def __init__(self, result: PlanResult) -> None:
        self.cluster = result.cluster
        self.places = Places(result.cluster.world)
        self.result = result

    def show(self, settings: CommandOptions) -> None:
        for run in self.result.states:
            if run.phase == "Running" and run.shape is not None:
                self._show_slots(settings, run)
            else:
                for line in self._waiting(run):
                    click.echo(line)
        if self.result.other_events:
            click.echo("this would also happen:" if self.result.states else "this would happen:")
            for line in event_lines(self.result.other_events, "  "):
                click.echo(line)
        elif not self.result.states:
            click.echo("nothing would change for any Run")

    def _show_slots(self, settings: CommandOptions, run: RunState) -> None:
        if run.key in self.result.started:
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
