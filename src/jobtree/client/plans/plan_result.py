"""The result of a plan: one RunPlan for each Run, and the objects as they would be."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import msgspec

from jobtree.api.documents.document_stream import Document
from jobtree.api.kinds.run_plan import PLAN_API_VERSION, PlannedEffect, RunPlan
from jobtree.client.answers.html_tables import html_section, html_table
from jobtree.client.plans.plan_builder import run_plan
from jobtree.client.source.object_creation import create_in_cluster
from jobtree.core import RunKey, RunState, phase_of
from jobtree.messages.run_events import Event
from jobtree.snapshot.cluster import Cluster
from jobtree.snapshot.object_documents import Key


class PlanResult:
    """What would happen to some Runs, and to others because of them. Nothing is changed.

    ``runs`` has a RunPlan for each Run; ``starts`` tells whether all of them run or would start now.
    """

    def __init__(self, cluster: Cluster, run_keys: Sequence[RunKey], events: Sequence[Event]) -> None:
        self.cluster = cluster
        self.states = [cluster.world.runs[run_key] for run_key in run_keys if run_key in cluster.world.runs]
        self.started = {event.run for event in events if event.name == "Admitted"}
        self.other_events = [event for event in events if event.run not in set(run_keys)]

    @property
    def starts(self) -> bool:
        """Whether all Runs are running or would start now."""
        return len(self.accepted()) == len(self.states)

    def accepted(self, *, allow_wait: bool = False) -> list[RunKey]:
        """Returns the Runs that run or would start now; with ``allow_wait``, also those with a date."""
        world = self.cluster.world
        return [
            run.key
            for run in self.states
            if phase_of(world, run) == "Running"
            or (allow_wait and run.promise is not None and run.promise.at is not None)
        ]

    @cached_property
    def runs(self) -> tuple[RunPlan, ...]:
        """A RunPlan for each Run. The first one has the effects on other Runs."""
        self.cluster.documents()  # updates the status of all objects
        world, objects = self.cluster.world, self.cluster.objects
        return tuple(
            run_plan(
                world,
                run,
                objects.get(("Run", *run.key)) or {},
                started=run.key in self.started,
                effects=() if number else self.other_events,
            )
            for number, run in enumerate(self.states)
        )

    @property
    def effects(self) -> tuple[PlannedEffect, ...]:
        """What would happen to other Runs."""
        return tuple(effect for plan in self.runs for effect in plan.status.effects)

    def documents(self) -> list[dict[str, Any]]:
        """Returns the RunPlans as documents of the published schema."""
        return [run_plan_document(plan) for plan in self.runs]

    def objects(self) -> list[dict[str, Any]]:
        """Returns each Run as planned, with its Reservation and leases."""
        self.cluster.documents()
        objects = self.cluster.objects
        keys = [key for run in self.states for key in keys_of(run)]
        return [body for key in keys if (body := objects.get(key))]

    def __repr__(self) -> str:
        return "\n".join(map(plan_line, self.runs)) or "nothing would change for any Run"

    def _repr_html_(self) -> str:
        parts = [html_section(plan_line(plan), plan_tables(plan)) for plan in self.runs]
        effects = [(f"{one.run.namespace}/{one.run.name}", one.event, one.message) for one in self.effects]
        if effects:
            table = html_table(("run", "event", "message"), effects)
            parts.append(html_section("this would also happen", [table]))
        return "".join(parts)


def what_if(cluster: Cluster, documents: list[Document]) -> PlanResult:
    """Plans as if these objects were created, or replaced if they exist."""
    earlier_events = len(cluster.events)
    keys = create_in_cluster(cluster, documents, replace=True)
    runs = [(namespace, name) for kind, namespace, name in keys if kind == "Run"]
    return PlanResult(cluster, runs, cluster.events[earlier_events:])


def keys_of(run: RunState) -> Iterator[Key]:
    yield ("Run", *run.key)
    if run.promise is not None:
        yield ("Reservation", run.key[0], run.promise.name)
    for name in sorted(run.leases):
        yield ("Lease", "", name)


def run_plan_document(plan: RunPlan) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(plan)
    return {"apiVersion": PLAN_API_VERSION, "kind": plan.KIND, **body}


def plan_line(plan: RunPlan) -> str:
    """``default/train would start now on 8 GPUs``, or why it waits and until when."""
    name, status = f"{plan.metadata.namespace}/{plan.metadata.name}", plan.status
    if status.answer == "StartsNow":
        return f"{name} would start now on {status.width} GPUs"
    if status.answer == "Running":
        return f"{name} runs on {status.width} GPUs"
    if status.answer == "Finished":
        return f"{name} is {status.phase}"
    start = status.reservation.earliest_start if status.reservation else None
    date = f"; it would start by {start}" if start else ""
    return f"{name} waits: {status.message or 'the manager has not planned it yet'}{date}"


def plan_tables(plan: RunPlan) -> Iterator[str]:
    status = plan.status
    if status.causes:
        rows = [(cause.reason, cause.message, "; ".join(cause.remedies)) for cause in status.causes]
        yield html_table(("reason", "why", "what would help"), rows)
    if status.leases:
        leases = [
            (lease.group, lease.role, lease.gpus, " ".join(lease.slots), payer_text(lease), lease.class_)
            for lease in status.leases
        ]
        yield html_table(("group", "role", "GPUs", "slots", "payer", "class"), leases)
    if status.reservation:
        start = status.reservation
        at_risk = ", ".join(f"{one.run.namespace}/{one.run.name}" for one in start.conflict_set)
        facts = (start.name, start.earliest_start, start.width, start.confidence, at_risk)
        yield html_table(("reservation", "start", "GPUs", "confidence", "Runs at risk"), [facts])


def payer_text(lease: Any) -> str:  # noqa: ANN401
    return f"{lease.payer.budget}/{lease.payer.envelope}"
