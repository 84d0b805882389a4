"""The forecast of a Reservation: deficit, remedies and kill probabilities (R8–R11).

It is computed from the case that will be resolved, as of the instant of the promise. It decides nothing.
"""

from collections.abc import Iterator

import msgspec

from jobtree.api.schema.quantities import MILLI
from jobtree.core.accounts.envelope_accounts import GPU_HOUR, EnvelopeState
from jobtree.core.availability.payer_placement import payer_placements, payers_in_slice
from jobtree.core.availability.start_search import StartSearch
from jobtree.core.funding.conditional_promise import is_conditional
from jobtree.core.funding.cover import committed_duration
from jobtree.core.funding.future_funding import FundingSplit, funding_at
from jobtree.core.funding.future_recall import family_reservations, recallable_from
from jobtree.core.funding.payer_candidates import payer_candidates
from jobtree.core.funding.reserved_budget import available_beside_promises
from jobtree.core.lottery.resolution import Case
from jobtree.core.model.gpu_lease import EnvelopeKey
from jobtree.core.model.promise import Promise
from jobtree.core.operations.payer_changes import newest_first
from jobtree.core.operations.promise_changes import placeable_ever, search_start
from jobtree.core.operations.reclaim import own_envelopes, recallable_leases
from jobtree.core.operations.victims import PromiseCase
from jobtree.core.reporting.promise_sequence import StartForecast, start_forecast
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World


class ForecastRemedy(msgspec.Struct, frozen=True):
    kind: str
    gpus: int
    runs: tuple[RunState, ...] = ()
    message: str = ""
    gpu_hours: int | None = None  # instead of GPUs, if GPU-hours are missing


class ReservationForecast(msgspec.Struct, frozen=True):
    """The present deficit, remedies and kill probabilities of a promise."""

    deficit: int
    funding_deficit: int
    remedies: tuple[ForecastRemedy, ...]
    odds: dict[str, int]  # kill probabilities in thousandths, by UID of the Run

    def conflict_set(self) -> list[RunState]:
        runs = {run.key: run for remedy in self.remedies for run in remedy.runs}
        return [runs[key] for key in sorted(runs)]


def forecast(world: World, run: RunState) -> ReservationForecast:
    """Returns the forecast of the promise of a Run."""
    promise = run.promise
    assert promise is not None
    if promise.at is None:
        return undated_forecast(world, run, promise)
    if run.keeps_date:
        return ReservationForecast(deficit=0, funding_deficit=0, remedies=(), odds={})
    start = start_forecast(world, run, promise)
    terms = (world, run, promise.width, promise.pod_size, start.promise_case.at, promise.precedence)
    _, lacking = funding_at(*terms, only=payers_in_slice(world, run, promise), recall=False)
    return ReservationForecast(
        deficit=deficit_now(world, promise, start.promise_case),
        funding_deficit=lacking,
        remedies=(
            *forecast_remedies(start),
            *(() if promise.recalls else recall_remedies(world, run, lacking)),
        ),
        odds=odds_of_all_at_risk(start),
    )


def firm_start(world: World, run: RunState, promise: Promise) -> int | None:
    """Returns when the Run of a conditional promise could start without the family, if known (C14).

    Nothing is held for it. It costs a search, so it is computed for those who ask, and no status has it.
    """
    if not is_conditional(world, promise):
        return None
    firm = [payer.envelope.key for payer in payer_candidates(world, run) if payer.class_ != "Shared"]
    option = search_start(world, run, promise.pod_size, None, payers=frozenset(firm)) if firm else None
    return None if option is None else option.at


def deficit_now(world: World, promise: Promise, promise_case: PromiseCase) -> int:
    """Returns the GPUs that the slice lacks now."""
    domains = world.fleet.flavor(promise.flavor).domains
    missing = 0
    for name, gpus in promise.domain_gpus:
        have = domains[name].placeable(promise_case.demand) * promise.pod_size if name in domains else 0
        missing += max(0, gpus - have)
    return missing


def slice_deficit(world: World, run: RunState, promise: Promise) -> int:
    """Returns the GPUs that the slice of one Run lacks now; 0 without a date."""
    if promise.at is None:
        return 0
    return deficit_now(world, promise, start_forecast(world, run, promise).promise_case)


def forecast_remedies(start: StartForecast) -> list[ForecastRemedy]:
    """Returns the takings by kind, in the order of section 6, and the lottery for what is still missing."""
    by_kind: dict[str, tuple[int, dict[str, RunState]]] = {}
    run_by_key = {victim.taking.key: victim.run for victim in start.promise_case.victims}
    takings = start.case.takings
    for taking in takings if start.taken is None else [takings[index] for index in start.taken]:
        run = run_by_key[taking.key]
        gpus, runs = by_kind.get(taking.kind, (0, {}))
        runs[run.uid] = run
        by_kind[taking.kind] = (gpus + sum(count for _, count in taking.gpus), runs)
    remedies = [ForecastRemedy(kind, gpus, tuple(runs.values())) for kind, (gpus, runs) in by_kind.items()]
    if start.taken is None:
        remedies.append(ForecastRemedy("Lottery", lottery_gpus(start.case), start.drawable))
    return remedies


def recall_remedies(world: World, run: RunState, lacking: int) -> Iterator[ForecastRemedy]:
    """Yields the recall of what the owner's envelopes will pay for its family by then, newest first (C11)."""
    if not lacking:
        return
    runs: dict[str, RunState] = {}
    left = lacking
    for charged, gpus in family_charges(world, run):
        if left > 0:
            left -= gpus
            runs[charged.uid] = charged
    yield ForecastRemedy("Recall", lacking, tuple(runs.values()))


def family_charges(world: World, run: RunState) -> Iterator[tuple[RunState, int]]:
    """Yields the Runs that the owner pays for when the promise is due, newest first, with their GPUs."""
    due = run.promise.at if run.promise is not None and run.promise.at is not None else world.now
    begun = [
        (claim.at, claim.precedence, claim.promise.run_key, claim.charge // MILLI)
        for envelope in own_envelopes(world, run, due)
        for claim in family_reservations(world, envelope, run.promise.precedence if run.promise else None)
        if recallable_from(world, claim) <= due
    ]
    for _, _, run_key, gpus in sorted(begun, reverse=True):
        yield world.runs[run_key], gpus
    for lease in newest_first(recallable_leases(world, run, due)):
        yield world.runs[lease.run_key], lease.gpus


def lottery_gpus(case: Case) -> int:
    """Returns the GPUs that are still missing after everything but the lottery is taken."""
    free = {room.node: room.free for room in case.nodes}
    for taking in case.takings:
        for node, gpus in taking.gpus:
            free[node] += gpus
    missing = dict(case.pods)
    for room in case.nodes:
        if room.domain in missing:
            missing[room.domain] -= free[room.node] // case.pod_size
    return sum(max(0, pods) for pods in missing.values()) * case.pod_size


def odds_of_all_at_risk(start: StartForecast) -> dict[str, int]:
    """Returns the probability to be stopped of all victims: 0 for a Run that loses only spares or steps."""
    takings = start.case.takings
    taken = takings if start.taken is None else [takings[index] for index in start.taken]
    shown = {taking.key for taking in taken}
    runs = (victim.run for victim in start.promise_case.victims if victim.taking.key in shown)
    return dict.fromkeys((run.uid for run in runs), 0) | start.odds


def undated_forecast(world: World, run: RunState, promise: Promise) -> ReservationForecast:
    """Returns the forecast of a promise without a date: the remedies (R9)."""
    shape = run.shape
    assert shape is not None
    terms = (world, run, shape.min, promise.pod_size, world.now, promise.precedence)
    payers = payers_with_room(world, run, promise.pod_size)
    split, lacking = funding_at(*terms, only=payers)
    if promise.beyond_depth:
        return ReservationForecast(0, lacking, (), {})  # it needs no remedy: it waits for its turn
    remedies: list[ForecastRemedy] = []
    if lacking:
        remedies += funding_remedies(world, run, split, lacking, payers)
    missing = capacity_missing(world, run, promise.pod_size)
    if missing:
        remedies.append(ForecastRemedy("AddCapacity", missing[0], message=missing[1]))
    return ReservationForecast(0, lacking, tuple(remedies), {})


def payers_with_room(world: World, run: RunState, pod_size: int) -> frozenset[EnvelopeKey] | None:
    """Returns the payers that pay where the empty fleet could hold the Run; None means all, or none."""
    placements = payer_placements(world, run)
    if len(placements) == 1:
        return None
    with_room = [
        placement
        for placement in placements
        if placeable_ever(StartSearch(world, run, pod_size, None, 0, placement))
    ]
    return frozenset().union(*(placement.payers or () for placement in with_room)) or None


def funding_remedies(
    world: World,
    run: RunState,
    split: FundingSplit,
    lacking: int,
    only: frozenset[EnvelopeKey] | None = None,
) -> list[ForecastRemedy]:
    """Returns the remedies of missing funding: raise an envelope of the family, or ask a sponsor."""
    remedies = []
    candidates = payer_candidates(world, run)
    payers = [payer for payer in candidates if only is None or payer.envelope.key in only]
    own = next((payer.envelope for payer in payers if payer.class_ != "Borrowed"), None)
    if own is not None:
        remedies += envelope_increase(world, run, own, dict(split).get(own.key, 0) + lacking)
    else:
        message = f"give {run.owner} an envelope of {lacking} GPUs of {run.flavor}"
        remedies.append(ForecastRemedy("RaiseEnvelope", lacking, message=message))
    remedies += sponsor_remedies(world, run, lacking)
    return remedies


def sponsor_remedies(world: World, run: RunState, lacking: int) -> Iterator[ForecastRemedy]:
    """Yields what would let sponsors that exist pay for what is missing: leave to borrow, or more lending."""
    spec, shape = run.run_object.spec.funding, run.shape
    envelopes = {
        sponsor: [
            envelope
            for envelope in world.budgets.by_owner.get(sponsor, [])
            if envelope.spec.flavor == run.flavor and envelope.open_at(world.now)
        ]
        for sponsor in spec.sponsors
    }
    existing = [sponsor for sponsor, of_flavor in envelopes.items() if of_flavor]
    if not existing:
        return
    lenders = [name for name in existing if any(part.lends_to(run.owner) for part in envelopes[name])]
    if lenders and not spec.allow_borrow:
        message = f"set funding.allowBorrow: true, so that {', '.join(lenders)} may pay"
    elif shape is not None and shape.max_borrow is not None and lendable(envelopes, run) >= lacking:
        message = f"raise funding.maxBorrowGPUs by {lacking}"
    else:
        message = f"ask {', '.join(existing)} to lend {lacking} more GPUs"
        if shape is not None and shape.max_borrow is not None:
            message += ", and raise funding.maxBorrowGPUs to use them"
    yield ForecastRemedy("AskSponsor", lacking, message=message)


def lendable(envelopes: dict[str, list[EnvelopeState]], run: RunState) -> int:
    """Returns the GPUs that these envelopes could lend to the Run's owner now, by their own limits."""
    return sum(
        max(0, min(envelope.account.free_charge(), envelope.lending_account.free_charge())) // MILLI
        for of_sponsor in envelopes.values()
        for envelope in of_sponsor
        if envelope.lends_to(run.owner)
    )


def envelope_increase(
    world: World, run: RunState, envelope: EnvelopeState, gpus: int
) -> list[ForecastRemedy]:
    """Returns by how much an envelope must be raised to pay for so many GPUs, in GPUs and GPU-hours.

    What it reserves for earlier promises is subtracted, so that the headroom can be below zero.
    """
    free = envelope.account.free_charge()
    available = available_beside_promises(world, run, envelope, world.now)
    short = gpus - (free if available is None else min(free, available)) // MILLI
    remedies = []
    if short > 0:
        message = f"raise envelope {envelope.label} by {short} GPUs"
        remedies.append(ForecastRemedy("RaiseEnvelope", short, message=message))
    left = envelope.account.free_use(world.now)
    if left is not None:
        hours = -((left - gpus * MILLI * committed_duration(run, envelope, world.now)) // GPU_HOUR)
        if hours > 0:
            message = f"raise maxGPUHours of envelope {envelope.label} by {hours}"
            remedies.append(ForecastRemedy("RaiseEnvelope", 0, message=message, gpu_hours=hours))
    return remedies


def capacity_missing(world: World, run: RunState, pod_size: int) -> tuple[int, str] | None:
    """Returns the GPUs that the empty fleet lacks for the Run, with a message; None if it lacks none."""
    shape = run.shape
    assert shape is not None
    capacities = [profile.capacity_pods for profile in StartSearch(world, run, pod_size, None).profiles]
    largest = max(capacities, default=0) * pod_size
    together = shape.group if shape.group and shape.spread else 0 if shape.spread else shape.min
    if largest < together:
        return (
            together - largest,
            f"needs a domain of {together} GPUs of {run.flavor}: the largest has {largest}",
        )
    chunk = shape.group or pod_size
    placeable = sum(capacity * pod_size // chunk for capacity in capacities) * chunk
    if placeable < shape.min:
        return (
            shape.min - placeable,
            f"needs {shape.min} GPUs of {run.flavor}: the fleet could ever give {placeable}",
        )
    return None
