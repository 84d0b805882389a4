"""Converts promises to Reservation objects and back, without loss."""

from collections.abc import Iterator, Sequence

from jobtree.api.kinds import reservation as wire
from jobtree.api.kinds.lease import Payer, RunRef
from jobtree.api.schema.object_meta import ObjectMeta
from jobtree.api.schema.quantities import (
    format_micro,
    format_milli,
    format_time,
    parse_micro,
    parse_milli,
    parse_time,
)
from jobtree.core.funding.conditional_promise import owners_counted_on
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import Disruption, Promise, PromiseSlip
from jobtree.core.operations.promise_changes import held_promise
from jobtree.core.reporting.reservation_forecast import ReservationForecast, forecast
from jobtree.core.reporting.stage_gang_forecast import joint_forecast
from jobtree.core.runs.run_state import RunState
from jobtree.core.runs.start_calibration import FirstEstimate, StartEstimate
from jobtree.core.world.idle_budget import IdleRecord
from jobtree.core.world.world import World

TAKES: tuple[str, ...] = ("Nothing", "Cuts", "Lottery", "Recall")
MAX_NODES = 12_500


def reservation_spec(world: World, run: RunState, promise: Promise) -> wire.ReservationSpec:
    members = promised_together(world, run, promise)
    holder = world.runs.get((run.key[0], promise.named_after), run)
    return wire.ReservationSpec(
        run_ref=RunRef(namespace=holder.key[0], name=holder.key[1], uid=holder.uid),
        flavor=promise.flavor,
        commitment=promise.commitment,
        earliest_start=None if promise.at is None else format_time(promise.at),
        intended_slice=wire.IntendedSlice(
            domains=tuple(share for _, part in members for share in intended_slice(world, part))
        ),
        members=tuple(stage_of(member, holder) for member, _ in members) if run.gang else (),
    )


def promised_together(world: World, run: RunState, promise: Promise) -> list[tuple[RunState, Promise]]:
    """Returns the Run, or all stages that this Reservation starts, with their promises."""
    members = [
        (member, member.promise) for member in world.run_graph.members(run) if member.promise is not None
    ]
    return [(member, part) for member, part in members if part.name == promise.name] or [(run, promise)]


def stage_of(run: RunState, tree: RunState) -> str:
    return run.key[1].removeprefix(f"{tree.key[1]}-")


def intended_slice(world: World, promise: Promise) -> Iterator[wire.DomainShare]:
    flavor = world.fleet.flavor(promise.flavor)
    for name, gpus in promise.domain_gpus:
        yield wire.DomainShare(domain=name, gpus=gpus, nodes=usable_nodes_of(flavor.domains.get(name)))


def usable_nodes_of(domain: object) -> tuple[str, ...]:
    nodes = getattr(domain, "nodes", {})
    return tuple(sorted(name for name, state in nodes.items() if state.is_schedulable))[:MAX_NODES]


def reservation_status(
    world: World, run: RunState, promise: Promise, expected: StartEstimate | None = None
) -> wire.ReservationStatus:
    """Builds the status of a pending Reservation, with the expected start if it was computed."""
    return wire.ReservationStatus(
        state="Pending",
        terms=promise_terms(world, promise),
        members=tuple(members_of(world, run, promise)) if run.gang else (),
        forecast=forecast_object(world, reservation_forecast(world, run, promise), promise, expected),
        told=first_estimate_object(world, (run.key[0], promise.name)),
        slips=tuple(slip_to_wire(slip) for slip in promise.slips),
    )


def reservation_forecast(world: World, run: RunState, promise: Promise) -> ReservationForecast:
    """Returns the forecast of a Reservation: of its Run, or of all stages that it starts."""
    members = promised_together(world, run, promise)
    return joint_forecast(world, members) if run.gang else forecast(world, run)


def members_of(world: World, run: RunState, promise: Promise) -> Iterator[wire.MemberTerms]:
    tree = world.runs.get((run.key[0], promise.named_after), run)
    for member, part in promised_together(world, run, promise):
        yield wire.MemberTerms(
            stage=stage_of(member, tree),
            flavor=part.flavor,
            intended_slice=wire.IntendedSlice(domains=tuple(intended_slice(world, part))),
            terms=promise_terms(world, part),
        )


def promise_terms(world: World, promise: Promise) -> wire.Terms:
    envelopes = world.budgets.envelopes
    return wire.Terms(
        width=promise.width,
        gpus_per_pod=promise.pod_size,
        takes=TAKES[promise.disruption],  # type: ignore[arg-type]
        funding=tuple(
            wire.FundingPlan(
                payer=Payer(owner=envelopes[key].owner, budget=key[0], envelope=key[1]), gpus=gpus
            )
            for key, gpus in promise.funding
            if key in envelopes
        ),
        firm_until=format_time(promise.immune_until) if promise.at is not None else None,
        window_aligned=promise.window_aligned,
        made=format_time(promise.made_at),
        beacon=None
        if promise.beacon is None
        else wire.BeaconRound(name=promise.beacon[0], round=promise.beacon[1]),
        turn=promise.sequence,
        recalls=tuple(
            wire.RecalledRun(namespace=run_key[0], name=run_key[1], since=format_time(since))
            for run_key, since in promise.recalls
        ),
        idle=idle_budget_object(world, promise),
        released_budget=not promise.keeps_budget,
        beyond_depth=promise.beyond_depth,
    )


def idle_budget_object(world: World, promise: Promise) -> wire.IdleUsage | None:
    """Returns the budget that was left idle for a Run without a date; None if there is none (C12)."""
    record = world.idle_budget.records.get(promise.run_key) if promise.at is None else None
    if record is None or not (record.used or record.charge):
        return None
    return wire.IdleUsage(
        gpu_seconds=format_micro(record.used),
        gpus=format_milli(record.charge),
        since=format_time(record.since),
    )


def confidence_of(promise: Promise, owners: Sequence[str]) -> wire.Confidence | None:
    """Returns how certain a date is that depends on these owners; None if there is no date (R10)."""
    if promise.at is None:
        return None
    if owners:
        return "conditional"
    return "window-aligned" if promise.window_aligned else "guaranteed"


def forecast_object(
    world: World, forecasted: ReservationForecast, promise: Promise, expected: StartEstimate | None
) -> wire.Forecast:
    together = promised_together(world, world.runs[promise.run_key], promise)
    owners = sorted({owner for _, part in together for owner in owners_counted_on(world, part)})
    return wire.Forecast(
        deficit_gpus=forecasted.deficit,
        funding_deficit_gpus=forecasted.funding_deficit,
        scope=", ".join(name for name, _ in promise.domain_gpus),
        conflict_set=tuple(run.key[1] for run in forecasted.conflict_set()),
        remedies=tuple(
            wire.Remedy(
                kind=remedy.kind,  # type: ignore[arg-type]
                gpus=remedy.gpus if remedy.gpu_hours is None else None,
                gpu_hours=remedy.gpu_hours,
                runs=tuple(run.key[1] for run in remedy.runs),
                message=remedy.message,
            )
            for remedy in forecasted.remedies
        ),
        confidence=confidence_of(promise, owners),
        conditional_on=tuple(owners[: wire.MAX_OWNERS]) if promise.at is not None else (),
        expected_start=None
        if expected is None
        else wire.ExpectedStart(p50=format_time(expected.p50), p90=format_time(expected.p90)),
        place=place_object(world, world.runs[promise.run_key]),
    )


def place_object(world: World, run: RunState) -> wire.Place | None:
    """Returns the place of a waiting Run in line; None if nothing known will make it fundable (R13)."""
    place = world.run_queue.line.place(run)
    return None if place is None else wire.Place(number=place.number, of=place.of)


def slip_to_wire(slip: PromiseSlip) -> wire.Slip:
    return wire.Slip(
        reason=slip.reason,
        from_=None if slip.before is None else format_time(slip.before),
        to=None if slip.after is None else format_time(slip.after),
    )


def reservation_object(world: World, run: RunState, promise: Promise) -> wire.Reservation:
    return wire.Reservation(
        metadata=ObjectMeta(
            name=promise.name, namespace=run.key[0], creation_timestamp=format_time(promise.made_at)
        ),
        spec=reservation_spec(world, run, promise),
        status=reservation_status(world, run, promise),
    )


def promise_from_reservation(reservation: wire.Reservation, run: RunState, stage: str = "") -> Promise:
    """Reads the promise that a pending Reservation holds for its Run, or for one of its stages.

    Raises ValueError if the name of the Reservation has no number.
    """
    spec, status = reservation.spec, reservation.status
    part = next((member for member in status.members if member.stage == stage), None)
    terms = terms_of(reservation, stage)
    slice_ = part.intended_slice if part else spec.intended_slice
    at = parse_time(spec.earliest_start) if spec.earliest_start else None
    shape = run.shape
    duration = shape.max_duration if shape else None
    made = (terms and terms.made) or reservation.metadata.creation_timestamp or "1970-01-01T00:00:00Z"
    disruption: Disruption = TAKES.index(terms.takes) if terms else 0  # type: ignore[assignment]
    return Promise(
        run_key=run.key,
        flavor=part.flavor if part else spec.flavor,
        number=int(reservation.metadata.name.rpartition("-")[2]),
        made_at=parse_time(made),
        creation_order=run.creation_order,
        commitment=spec.commitment,
        at=at,
        disruption=disruption,
        width=terms.width if terms else shape.min if shape else 0,
        pod_size=terms.gpus_per_pod if terms else 1,
        domain_gpus=tuple((share.domain, share.gpus) for share in slice_.domains),
        funding=tuple(
            ((plan.payer.budget, plan.payer.envelope), plan.gpus) for plan in (terms.funding if terms else ())
        ),
        end=None if at is None or duration is None else at + duration,
        immune_until=parse_time(terms.firm_until) if terms and terms.firm_until else 0,
        sequence=terms.turn if terms else 0,
        beyond_depth=bool(terms and terms.beyond_depth),
        keeps_budget=not (terms and terms.released_budget),
        named_after=spec.run_ref.name,
        recalls=tuple(
            ((recalled.namespace, recalled.name), parse_time(recalled.since))
            for recalled in (terms.recalls if terms else ())
        ),
        beacon=(terms.beacon.name, terms.beacon.round) if terms and terms.beacon else None,
        window_aligned=bool(terms and terms.window_aligned),
        slips=tuple(slip_from_wire(slip) for slip in status.slips),
    )


def load_promise(world: World, reservation: wire.Reservation, run: RunState, stage: str = "") -> None:
    """Loads the promise that a pending Reservation holds for its Run, or for one of its stages."""
    promise = promise_from_reservation(reservation, run, stage)
    runs_paid = bool(run.leases) and not (run.provisional or run.opportunistic_gpus)
    world.put_promise(run, held_promise(world, run, promise) if runs_paid else promise)
    load_first_estimate(world, reservation, run.key, run.since)
    terms = terms_of(reservation, stage)
    idle = terms.idle if terms else None
    if idle is not None:
        used, charge = parse_micro(idle.gpu_seconds), parse_milli(idle.gpus)
        record = IdleRecord(promise.number, used, parse_time(idle.since), charge)
        world.idle_budget.load(run.key, record)


def terms_of(reservation: wire.Reservation, stage: str) -> wire.Terms | None:
    """Returns the terms of the promise to a Run, or to one of the stages that start together."""
    status = reservation.status
    part = next((member for member in status.members if member.stage == stage), None)
    return part.terms if part else status.terms


def first_estimate_object(world: World, name: RunKey) -> wire.FirstExpectedStart | None:
    """Returns the expected start that a Reservation reported first; None if it reported none."""
    first = world.start_calibration.of(name)
    return (
        None
        if first is None
        else wire.FirstExpectedStart(
            at=format_time(first.at),
            p50=format_time(first.p50),
            p90=format_time(first.p90),
            mean=format_time(first.mean),
            started=None if first.start is None else format_time(first.start),
        )
    )


def load_first_estimate(
    world: World, reservation: wire.Reservation, run_key: RunKey, started: int | None = None
) -> None:
    """Loads the first estimate of a Reservation for calibration; ``started`` applies if it has no start."""
    first, metadata = reservation.status.told, reservation.metadata
    if first is not None:
        at, p50, p90, mean = (parse_time(text) for text in (first.at, first.p50, first.p90, first.mean))
        start = parse_time(first.started) if first.started else started
        world.start_calibration.load_estimate(
            run_key, (metadata.namespace, metadata.name), FirstEstimate(at, p50, p90, mean, start)
        )


def slip_from_wire(slip: wire.Slip) -> PromiseSlip:
    return PromiseSlip(
        parse_time(slip.from_) if slip.from_ else None,
        parse_time(slip.to) if slip.to else None,
        slip.reason,
    )
