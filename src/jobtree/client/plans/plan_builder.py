"""Builds a RunPlan from a planned cluster: why a Run waits, or where it runs and who pays."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from jobtree.api.kinds.lease import Payer
from jobtree.api.kinds.reservation import DomainShare, Slip
from jobtree.api.kinds.run import Risk
from jobtree.api.kinds.run_plan import (
    PlanAnswer,
    PlannedCause,
    PlannedCost,
    PlannedEffect,
    PlannedLease,
    PlannedPayment,
    PlannedRemedy,
    PlannedStart,
    RunAtRisk,
    RunIdentity,
    RunPlan,
    RunPlanStatus,
)
from jobtree.api.schema.quantities import HOUR, MILLI, format_milli, format_slots, format_time
from jobtree.client.plans.funding_remedies import further_funding
from jobtree.client.plans.remedies import remedy_lines
from jobtree.core import (
    FINISHED,
    EnvelopeKey,
    ExpectedStarts,
    ForecastRemedy,
    GpuLease,
    Promise,
    RunKey,
    RunState,
    World,
    confidence_of,
    firm_start,
    immune_until,
    owners_counted_on,
    phase_of,
    reservation_forecast,
    usable_nodes_of,
)
from jobtree.messages.run_events import Event


def run_plan(
    world: World,
    run: RunState,
    body: Mapping[str, Any],
    *,
    started: bool = False,
    effects: Iterable[Event] = (),
) -> RunPlan:
    """Returns the plan of a Run with its object; ``started`` is true if this plan starts it."""
    told = body.get("status") or {}
    waits = run.waiting and not run.is_tree
    status = RunPlanStatus(
        answer=answer_of(world, run, started),
        phase=phase_of(world, run),
        message=run.verdict.message if run.verdict else "",
        width=run.width,
        causes=tuple(causes(world, run)) if waits else (),
        other_ways_to_pay=tuple(further_funding(world, run)) if waits else (),
        leases=tuple(map(planned_lease, sorted(run.leases.values(), key=lease_order))),
        reservation=planned_start(world, run, run.promise) if run.promise else None,
        immune_until=time_text(immune_until(world.policy, run, world.now) if run.since is not None else None),
        ends_by=time_text(run.known_end),
        risks=msgspec.convert(told.get("risk") or [], tuple[Risk, ...]),
        kill_probability=told.get("killProbability"),
        cost=planned_cost(world, run),
        effects=tuple(effect(world, event) for event in effects),
    )
    return RunPlan(metadata=identity(world, run.key), status=status)


def answer_of(world: World, run: RunState, started: bool) -> PlanAnswer:  # noqa: FBT001
    phase = phase_of(world, run)
    if phase in FINISHED:
        return "Finished"
    if phase != "Running":
        return "Waits"
    return "StartsNow" if started else "Running"


def identity(world: World, run_key: RunKey) -> RunIdentity:
    run = world.runs.get(run_key)
    return RunIdentity(namespace=run_key[0], name=run_key[1], uid=run.uid if run else "")


def causes(world: World, run: RunState) -> Iterator[PlannedCause]:
    """Yields why a Run waits, each reason with its remedies."""
    for cause in run.verdict.causes if run.verdict else ():
        yield PlannedCause(
            reason=str(cause.reason),
            message=str(cause),
            where=cause.where,
            have=cause.have,
            need=cause.need,
            remedies=tuple(remedy_lines(world, run, cause)),
        )


def lease_order(lease: GpuLease) -> tuple[int, str, str]:
    return lease.group, lease.role, lease.name


def planned_lease(lease: GpuLease) -> PlannedLease:
    slots = tuple(text for node, mask in lease.slots for text in format_slots(node, mask))
    return PlannedLease(
        group=lease.group,
        role=lease.role,
        class_=lease.class_,
        flavor=lease.flavor,
        gpus=lease.gpus,
        payer=Payer(owner=lease.payer_owner, budget=lease.payer[0], envelope=lease.payer[1]),
        slots=slots,
    )


def planned_start(world: World, run: RunState, promise: Promise) -> PlannedStart:
    forecast = reservation_forecast(world, run, promise)
    expected = ExpectedStarts(world).estimate(run)
    owners = owners_counted_on(world, promise)
    return PlannedStart(
        name=promise.name,
        width=promise.width,
        gpus_per_pod=promise.pod_size,
        earliest_start=time_text(promise.at),
        firm_start=time_text(firm_start(world, run, promise)),
        p50=time_text(expected.p50 if expected else None),
        p90=time_text(expected.p90 if expected else None),
        confidence=confidence_of(promise, owners),
        conditional_on=tuple(owners),
        domains=tuple(domain_shares(world, promise)),
        funding=tuple(payment(world, key, gpus) for key, gpus in promise.funding),
        deficit_gpus=forecast.deficit,
        funding_deficit_gpus=forecast.funding_deficit,
        conflict_set=tuple(
            RunAtRisk(
                run=identity(world, other.key),
                kill_probability=format_milli(forecast.odds.get(other.uid, 0)),
            )
            for other in forecast.conflict_set()
        ),
        remedies=tuple(planned_remedy(world, remedy) for remedy in forecast.remedies),
        slips=tuple(
            Slip(reason=slip.reason, from_=time_text(slip.before), to=time_text(slip.after))
            for slip in promise.slips
        ),
    )


def time_text(at: int | None) -> str | None:
    return None if at is None else format_time(at)


def domain_shares(world: World, promise: Promise) -> Iterator[DomainShare]:
    domains = world.fleet.flavor(promise.flavor).domains
    for name, gpus in promise.domain_gpus:
        yield DomainShare(domain=name, gpus=gpus, nodes=tuple(usable_nodes_of(domains.get(name))))


def payment(world: World, key: EnvelopeKey, gpus: int) -> PlannedPayment:
    envelope = world.budgets.envelopes.get(key)
    payer = Payer(owner=envelope.owner if envelope else "", budget=key[0], envelope=key[1])
    return PlannedPayment(payer=payer, gpus=gpus)


def planned_remedy(world: World, remedy: ForecastRemedy) -> PlannedRemedy:
    return PlannedRemedy(
        kind=remedy.kind,  # type: ignore[arg-type]
        gpus=remedy.gpus if remedy.gpu_hours is None else None,
        gpu_hours=remedy.gpu_hours,
        runs=tuple(identity(world, run.key) for run in remedy.runs),
        message=remedy.message,
    )


def planned_cost(world: World, run: RunState) -> PlannedCost | None:
    """Returns what the Run costs if it uses its whole maxDuration at its desired width, without spares."""
    shape = run.shape
    if shape is None or shape.max_duration is None:
        return None
    milli_hours = shape.desired * shape.max_duration * MILLI // HOUR
    price = world.policy.price_milli(run.flavor)
    return PlannedCost(
        gpu_hours=format_milli(milli_hours), credits=format_milli(milli_hours * price // MILLI)
    )


def effect(world: World, event: Event) -> PlannedEffect:
    return PlannedEffect(run=identity(world, event.run), event=event.name, message=event.message)
