"""The forecast of a Reservation: what is missing, who would give way, with what probability (R8–R11).

Computed from the same case that will be resolved, for the instant of the promise. Nothing here decides.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec

from jobtree.api.schema.quantities import MILLI
from jobtree.core.accounts.envelope_accounts import GPU_HOUR, EnvelopeState
from jobtree.core.availability.payer_placement import payer_placements, payers_in_slice
from jobtree.core.availability.start_search import StartSearch
from jobtree.core.funding.cover import committed_duration
from jobtree.core.funding.future_funding import FundingSplit, funding_at
from jobtree.core.funding.future_recall import family_reservations, recallable_from
from jobtree.core.funding.reserved_budget import available_beside_promises
from jobtree.core.lottery.kill_probability import kill_probabilities
from jobtree.core.lottery.resolution import Case, CaseSolver
from jobtree.core.model.gpu_lease import EnvelopeKey
from jobtree.core.model.promise import LOTTERY, Promise
from jobtree.core.operations.payer_changes import newest_first
from jobtree.core.operations.promise_changes import placeable_ever
from jobtree.core.operations.reclaim import own_envelopes, recallable_leases
from jobtree.core.operations.victims import PromiseCase
from jobtree.core.reporting.future_case import FutureCase
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.payer_candidates import payer_candidates
from jobtree.core.world.world import World

cached_kill_probabilities = lru_cache(maxsize=4_096)(
    kill_probabilities
)  # computed when tickets or need change


class ForecastRemedy(msgspec.Struct, frozen=True):
    kind: str
    gpus: int
    runs: tuple[RunState, ...] = ()
    message: str = ""
    gpu_hours: int | None = None  # instead of GPUs, where those are missing


class ReservationForecast(msgspec.Struct, frozen=True):
    """What a Reservation says about its promise as things stand."""

    deficit: int
    funding_deficit: int
    remedies: tuple[ForecastRemedy, ...]
    odds: dict[str, int]  # thousandths, by UID of the Run that might have to go

    def conflict_set(self) -> list[RunState]:
        found = {run.key: run for remedy in self.remedies for run in remedy.runs}
        return [found[key] for key in sorted(found)]


def forecast(world: World, run: RunState) -> ReservationForecast:
    """The forecast of the Run's promise."""
    promise = run.promise
    assert promise is not None
    if promise.at is None:
        return undated_forecast(world, run, promise)
    docket = FutureCase(world, run, promise)
    taken = structural_victims(docket)
    terms = (world, run, promise.width, promise.pod_size, docket.at, promise.precedence)
    _, lacking = funding_at(*terms, only=payers_in_slice(world, run, promise), recall=False)
    return ReservationForecast(
        deficit=deficit_now(world, promise, docket),
        funding_deficit=lacking,
        remedies=(*forecast_remedies(docket, taken), *recall_remedies(world, run, lacking)),
        odds=kill_probabilities_of(docket, taken),
    )


def deficit_now(world: World, promise: Promise, docket: PromiseCase) -> int:
    """What the slice lacks at this moment."""
    domains = world.fleet.flavor(promise.flavor).domains
    missing = 0
    for name, gpus in promise.domain_gpus:
        have = domains[name].placeable(docket.demand) * promise.pod_size if name in domains else 0
        missing += max(0, gpus - have)
    return missing


def structural_victims(docket: PromiseCase) -> Sequence[int] | None:
    """What must be taken where that suffices without a lottery; None where it does not."""
    decision = CaseSolver(msgspec.structs.replace(docket.case, tickets=())).decide(iter(()))
    return decision.takings if decision.packs else None


def forecast_remedies(docket: PromiseCase, taken: Sequence[int] | None) -> list[ForecastRemedy]:
    """Takings by kind, in the order of section 6, and the lottery for what they leave missing."""
    found: dict[str, tuple[int, dict[str, RunState]]] = {}
    for index in range(len(docket.victims)) if taken is None else taken:
        quarry = docket.victims[index]
        gpus, runs = found.get(quarry.taking.kind, (0, {}))
        runs[quarry.run.uid] = quarry.run
        found[quarry.taking.kind] = (gpus + sum(count for _, count in quarry.taking.gpus), runs)
    listed = [ForecastRemedy(kind, gpus, tuple(runs.values())) for kind, (gpus, runs) in found.items()]
    if taken is None:
        tickets = {ticket.run for ticket in docket.case.tickets}
        holders = tuple(run for run in docket.holders if run.uid in tickets)
        listed.append(ForecastRemedy("Lottery", lottery_gpus(docket.case), holders))
    return listed


def recall_remedies(world: World, run: RunState, lacking: int) -> Iterator[ForecastRemedy]:
    """Money that the owner's family has by then: the newest of it comes back (C11)."""
    if not lacking:
        return
    runs: dict[str, RunState] = {}
    left = lacking
    for other, gpus in family_charges(world, run):
        if left > 0:
            left -= gpus
            runs[other.uid] = other
    yield ForecastRemedy("Recall", lacking, tuple(runs.values()))


def family_charges(world: World, run: RunState) -> Iterator[tuple[RunState, int]]:
    """Who has the owner's money when the Run's promise is due, newest first, and for how many GPUs."""
    due = run.promise.at if run.promise is not None and run.promise.at is not None else world.now
    begun = [
        (claim.at, claim.precedence, claim.promise.run_key, claim.charge // MILLI)
        for one in own_envelopes(world, run, due)
        for claim in family_reservations(world, one, run.promise.precedence if run.promise else None)
        if recallable_from(world, claim) <= due
    ]
    for _, _, run_key, gpus in sorted(begun, reverse=True):
        yield world.runs[run_key], gpus
    for lease in newest_first(recallable_leases(world, run, due)):
        yield world.runs[lease.run_key], lease.gpus


def lottery_gpus(case: Case) -> int:
    """GPUs still missing when everything but the lottery is taken."""
    free = {room.node: room.free for room in case.nodes}
    for taking in case.takings:
        for node, gpus in taking.gpus:
            free[node] += gpus
    missing = dict(case.pods)
    for room in case.nodes:
        if room.domain in missing:
            missing[room.domain] -= free[room.node] // case.pod_size
    return sum(max(0, pods) for pods in missing.values()) * case.pod_size


def kill_probabilities_of(docket: PromiseCase, taken: Sequence[int] | None) -> dict[str, int]:
    """Kill probabilities of all who would have to go: certain for unpaid and provisional work."""
    odds = dict(cached_kill_probabilities(docket.case)) if docket.promise.disruption == LOTTERY else {}
    for index in range(len(docket.victims)) if taken is None else taken:
        quarry = docket.victims[index]
        certain = quarry.taking.kind == "Reclaim"
        odds[quarry.taking.run] = 1000 if certain else odds.get(quarry.taking.run, 0)
    return odds


def undated_forecast(world: World, run: RunState, promise: Promise) -> ReservationForecast:
    """A Run that nothing known will start: what would help (R9)."""
    shape = run.shape
    assert shape is not None
    terms = (world, run, shape.min, promise.pod_size, world.now, promise.precedence)
    payers = payers_with_room(world, run, promise.pod_size)
    split, lacking = funding_at(*terms, only=payers)
    helps: list[ForecastRemedy] = []
    if lacking:
        helps += funding_remedies(world, run, split, lacking, payers)
    missing = capacity_missing(world, run, promise.pod_size)
    if missing:
        helps.append(ForecastRemedy("AddCapacity", missing[0], message=missing[1]))
    return ReservationForecast(0, lacking, tuple(helps), {})


def payers_with_room(world: World, run: RunState, size: int) -> frozenset[EnvelopeKey] | None:
    """The Run's payers that pay where the empty fleet could hold it; None: all of them, or nobody."""
    sets = payer_placements(world, run)
    if len(sets) == 1:
        return None
    room = [one for one in sets if placeable_ever(StartSearch(world, run, size, None, 0, one))]
    return frozenset().union(*(one.payers or () for one in room)) or None


def funding_remedies(
    world: World,
    run: RunState,
    split: FundingSplit,
    lacking: int,
    only: frozenset[EnvelopeKey] | None = None,
) -> list[ForecastRemedy]:
    """Raise an envelope of its own, or ask a sponsor."""
    found = []
    payers = [one for one in payer_candidates(world, run) if only is None or one.envelope.key in only]
    own = next((payer.envelope for payer in payers if payer.class_ != "Borrowed"), None)
    if own is not None:
        found += envelope_increase(world, run, own, dict(split).get(own.key, 0) + lacking)
    else:
        message = f"give {run.owner} an envelope of {lacking} GPUs of {run.flavor}"
        found.append(ForecastRemedy("RaiseEnvelope", lacking, message=message))
    sponsors = run.run_object.spec.funding.sponsors
    if sponsors:
        names = ", ".join(sponsors)
        message = f"ask {names} to lend {lacking} more GPUs, and raise funding.maxBorrowGPUs to use them"
        found.append(ForecastRemedy("AskSponsor", lacking, message=message))
    return found


def envelope_increase(
    world: World, run: RunState, envelope: EnvelopeState, gpus: int
) -> list[ForecastRemedy]:
    """By how much the envelope must be raised to pay for so many GPUs, in GPUs and in GPU-hours.

    What older Runs are promised stays theirs: the envelope may have less to give than nothing.
    """
    free = envelope.account.free_charge()
    kept = available_beside_promises(world, run, envelope, world.now)
    short = gpus - (free if kept is None else min(free, kept)) // MILLI
    found = []
    if short > 0:
        message = f"raise envelope {envelope.label} by {short} GPUs"
        found.append(ForecastRemedy("RaiseEnvelope", short, message=message))
    left = envelope.account.free_use(world.now)
    if left is not None:
        hours = -((left - gpus * MILLI * committed_duration(run, envelope, world.now)) // GPU_HOUR)
        if hours > 0:
            message = f"raise maxGPUHours of envelope {envelope.label} by {hours}"
            found.append(ForecastRemedy("RaiseEnvelope", 0, message=message, gpu_hours=hours))
    return found


def capacity_missing(world: World, run: RunState, size: int) -> tuple[int, str] | None:
    """GPUs that the fleet lacks to ever hold the Run, and in what form."""
    shape = run.shape
    assert shape is not None
    sight = StartSearch(world, run, size, None)
    largest = max((one.capacity for one in sight.profiles), default=0) * size
    together = shape.group if shape.group and shape.spread else 0 if shape.spread else shape.min
    if largest < together:
        return (
            together - largest,
            f"needs a domain of {together} GPUs of {run.flavor}: the largest has {largest}",
        )
    chunk = shape.group or size
    whole = sum(one.capacity * size // chunk for one in sight.profiles) * chunk
    if whole < shape.min:
        return (
            shape.min - whole,
            f"needs {shape.min} GPUs of {run.flavor}: the fleet could ever give {whole}",
        )
    return None
