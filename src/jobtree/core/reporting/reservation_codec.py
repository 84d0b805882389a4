"""Reservations on the wire: a promise written down, and read back as it was."""

from collections.abc import Iterator

from jobtree.api.kinds import reservation as wire
from jobtree.api.kinds.lease import Payer, RunRef
from jobtree.api.schema.object_meta import ObjectMeta
from jobtree.api.schema.quantities import format_time, parse_time
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import Level, Promise, Slip
from jobtree.core.reporting.reservation_forecast import Outcome, forecast
from jobtree.core.reporting.stage_gang_forecast import joint_forecast
from jobtree.core.runs.run_state import RunState
from jobtree.core.runs.start_calibration import Expected, Told
from jobtree.core.world.world import World

TAKES: tuple[str, ...] = ("Nothing", "Cuts", "Lottery")
MAX_NODES = 12_500


def spec_of(world: World, state: RunState, promise: Promise) -> wire.ReservationSpec:
    party = promised_together(world, state, promise)
    holder = world.runs.get((state.key[0], promise.holder), state)
    return wire.ReservationSpec(
        run_ref=RunRef(namespace=holder.key[0], name=holder.key[1], uid=holder.uid),
        flavor=promise.flavor,
        commitment=promise.commitment,
        earliest_start=None if promise.at is None else format_time(promise.at),
        intended_slice=wire.IntendedSlice(
            domains=tuple(share for _, one in party for share in slice_of(world, one))
        ),
        members=tuple(stage_of(one, holder) for one, _ in party) if state.gang else (),
    )


def promised_together(world: World, state: RunState, promise: Promise) -> list[tuple[RunState, Promise]]:
    """The Run, or all stages that this very Reservation starts."""
    found = [(one, one.promise) for one in world.kin.members(state) if one.promise is not None]
    return [(one, other) for one, other in found if other.name == promise.name] or [(state, promise)]


def stage_of(state: RunState, tree: RunState) -> str:
    return state.key[1].removeprefix(f"{tree.key[1]}-")


def slice_of(world: World, promise: Promise) -> Iterator[wire.DomainShare]:
    flavor = world.fleet.flavor(promise.flavor)
    for name, gpus in promise.shares:
        yield wire.DomainShare(domain=name, gpus=gpus, nodes=usable(flavor.domains.get(name)))


def usable(domain: object) -> tuple[str, ...]:
    nodes = getattr(domain, "nodes", {})
    return tuple(sorted(name for name, state in nodes.items() if state.offers))[:MAX_NODES]


def status_of(
    world: World, state: RunState, promise: Promise, expected: Expected | None = None
) -> wire.ReservationStatus:
    """The status of a Reservation that is still pending; when its Run is expected, where that was asked."""
    return wire.ReservationStatus(
        state="Pending",
        terms=terms_of(world, promise),
        members=tuple(members_of(world, state, promise)) if state.gang else (),
        forecast=forecast_of(outcome_of(world, state, promise), promise, expected),
        told=told_to_wire(world, (state.key[0], promise.name)),
        slips=tuple(slip_to_wire(slip) for slip in promise.slips),
    )


def outcome_of(world: World, state: RunState, promise: Promise) -> Outcome:
    """The forecast of a Reservation: of its Run, or of all stages that it starts."""
    party = promised_together(world, state, promise)
    return joint_forecast(world, party) if state.gang else forecast(world, state)


def members_of(world: World, state: RunState, promise: Promise) -> Iterator[wire.MemberTerms]:
    tree = world.runs.get((state.key[0], promise.holder), state)
    for one, part in promised_together(world, state, promise):
        yield wire.MemberTerms(
            stage=stage_of(one, tree),
            flavor=part.flavor,
            intended_slice=wire.IntendedSlice(domains=tuple(slice_of(world, part))),
            terms=terms_of(world, part),
        )


def terms_of(world: World, promise: Promise) -> wire.Terms:
    envelopes = world.ledger.envelopes
    return wire.Terms(
        width=promise.width,
        gpus_per_pod=promise.pod_size,
        takes=TAKES[promise.level],  # type: ignore[arg-type]
        funding=tuple(
            wire.FundingPlan(
                payer=Payer(owner=envelopes[key].owner, budget=key[0], envelope=key[1]), gpus=gpus
            )
            for key, gpus in promise.funding
            if key in envelopes
        ),
        firm_until=format_time(promise.firm_until) if promise.at is not None else None,
        made=format_time(promise.made),
        beacon=None
        if promise.beacon is None
        else wire.BeaconRound(name=promise.beacon[0], round=promise.beacon[1]),
        turn=promise.turn,
    )


def forecast_of(outcome: Outcome, promise: Promise, expected: Expected | None) -> wire.Forecast:
    confidence = None
    if promise.at is not None:
        confidence = "window-aligned" if promise.window_aligned else "guaranteed"
    return wire.Forecast(
        deficit_gpus=outcome.deficit,
        funding_deficit_gpus=outcome.funding_deficit,
        scope=", ".join(name for name, _ in promise.shares),
        conflict_set=tuple(state.key[1] for state in outcome.conflict_set()),
        remedies=tuple(
            wire.Remedy(
                kind=remedy.kind,  # type: ignore[arg-type]
                gpus=remedy.gpus if remedy.gpu_hours is None else None,
                gpu_hours=remedy.gpu_hours,
                runs=tuple(state.key[1] for state in remedy.runs),
                message=remedy.message,
            )
            for remedy in outcome.remedies
        ),
        confidence=confidence,  # type: ignore[arg-type]
        expected_start=None
        if expected is None
        else wire.ExpectedStart(p50=format_time(expected.p50), p90=format_time(expected.p90)),
    )


def slip_to_wire(slip: Slip) -> wire.Slip:
    return wire.Slip(
        reason=slip.reason,
        from_=None if slip.before is None else format_time(slip.before),
        to=None if slip.after is None else format_time(slip.after),
    )


def to_wire(world: World, state: RunState, promise: Promise) -> wire.Reservation:
    return wire.Reservation(
        metadata=ObjectMeta(
            name=promise.name, namespace=state.key[0], creation_timestamp=format_time(promise.made)
        ),
        spec=spec_of(world, state, promise),
        status=status_of(world, state, promise),
    )


def from_wire(reservation: wire.Reservation, state: RunState, stage: str = "") -> Promise:
    """The promise that a pending Reservation holds, to its Run or to one of its stages.

    Raises ValueError where its name has no number.
    """
    spec, status = reservation.spec, reservation.status
    part = next((one for one in status.members if one.stage == stage), None)
    terms = part.terms if part else status.terms
    slice_ = part.intended_slice if part else spec.intended_slice
    at = parse_time(spec.earliest_start) if spec.earliest_start else None
    shape = state.shape
    duration = shape.max_duration if shape else None
    made = (terms and terms.made) or reservation.metadata.creation_timestamp or "1970-01-01T00:00:00Z"
    level: Level = TAKES.index(terms.takes) if terms else 0  # type: ignore[assignment]
    return Promise(
        run=state.key,
        flavor=part.flavor if part else spec.flavor,
        number=int(reservation.metadata.name.rpartition("-")[2]),
        made=parse_time(made),
        order=state.order,
        commitment=spec.commitment,
        at=at,
        level=level,
        width=terms.width if terms else shape.min if shape else 0,
        pod_size=terms.gpus_per_pod if terms else 1,
        shares=tuple((share.domain, share.gpus) for share in slice_.domains),
        funding=tuple(
            ((plan.payer.budget, plan.payer.envelope), plan.gpus) for plan in (terms.funding if terms else ())
        ),
        end=None if at is None or duration is None else at + duration,
        firm_until=parse_time(terms.firm_until) if terms and terms.firm_until else 0,
        turn=terms.turn if terms else 0,
        holder=spec.run_ref.name,
        beacon=(terms.beacon.name, terms.beacon.round) if terms and terms.beacon else None,
        window_aligned=bool(status.forecast and status.forecast.confidence == "window-aligned"),
        slips=tuple(slip_from_wire(slip) for slip in status.slips),
    )


def told_to_wire(world: World, name: RunKey) -> wire.FirstTold | None:
    """What the Run of that Reservation was told first, if it was told anything."""
    told = world.experience.of(name)
    return (
        None
        if told is None
        else wire.FirstTold(
            at=format_time(told.at),
            p50=format_time(told.p50),
            p90=format_time(told.p90),
            mean=format_time(told.mean),
            started=None if told.start is None else format_time(told.start),
        )
    )


def recall(world: World, reservation: wire.Reservation, run: RunKey, started: int | None = None) -> None:
    """What a Reservation says of its first telling is experience; ``started``, where it does not say when."""
    told, metadata = reservation.status.told, reservation.metadata
    if told is not None:
        at, p50, p90, mean = (parse_time(text) for text in (told.at, told.p50, told.p90, told.mean))
        start = parse_time(told.started) if told.started else started
        world.experience.read(run, (metadata.namespace, metadata.name), Told(at, p50, p90, mean, start))


def slip_from_wire(slip: wire.Slip) -> Slip:
    return Slip(
        parse_time(slip.from_) if slip.from_ else None,
        parse_time(slip.to) if slip.to else None,
        slip.reason,
    )
