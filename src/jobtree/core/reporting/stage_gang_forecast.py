"""The forecast of a Reservation that starts several stages together (J3): their forecasts, added up.

Stages are resolved one after the other, each by its own draw; the chance of losing to any of them is given
as if the draws were independent.
"""

from collections.abc import Iterator
from math import gcd

import msgspec

from jobtree.core.funding.future_funding import FundingSplit, funding_at
from jobtree.core.model.promise import Promise
from jobtree.core.reporting.reservation_forecast import (
    ForecastRemedy,
    ReservationForecast,
    forecast,
    funding_remedies,
)
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World

GangPromises = list[tuple[RunState, Promise]]


def joint_forecast(world: World, party: GangPromises) -> ReservationForecast:
    """One forecast for all: what each lacks, and what they lack together."""
    outcomes = [forecast(world, run) for run, _ in party]
    undated = any(promise.at is None for _, promise in party)
    helps = [] if undated else [remedy for outcome in outcomes for remedy in outcome.remedies]
    if undated:
        helps = [one for outcome in outcomes for one in outcome.remedies if one.kind == "AddCapacity"]
    lacking = 0
    for run, split, short in funding_deficit(world, party) if undated else ():
        helps = [*funding_remedies(world, run, split, short), *helps]
        lacking += short
    return ReservationForecast(
        deficit=sum(outcome.deficit for outcome in outcomes),
        funding_deficit=lacking or sum(outcome.funding_deficit for outcome in outcomes),
        remedies=tuple(merged_remedies(helps)),
        odds=union_probability([outcome.odds for outcome in outcomes]),
    )


def funding_deficit(world: World, party: GangPromises) -> Iterator[tuple[RunState, FundingSplit, int]]:
    """Flavor by flavor: who would pay if all of them started now, and the GPUs that nobody pays for."""
    for flavor in sorted({promise.flavor for _, promise in party}):
        same = [(run, promise) for run, promise in party if promise.flavor == flavor]
        width = sum(run.shape.min for run, _ in same if run.shape)
        size = gcd(*(promise.pod_size for _, promise in same))
        run, promise = same[0]
        split, lacking = funding_at(world, run, width, size, world.now, promise.precedence)
        if lacking:
            yield run, split, lacking


def merged_remedies(helps: list[ForecastRemedy]) -> list[ForecastRemedy]:
    """One remedy of each kind and wording, with all its Runs."""
    found: dict[tuple[str, str], ForecastRemedy] = {}
    for one in helps:
        known = found.get((one.kind, one.message))
        runs = {run.key: run for run in (*(known.runs if known else ()), *one.runs)}
        gpus = one.gpus + (known.gpus if known else 0)
        found[one.kind, one.message] = msgspec.structs.replace(one, gpus=gpus, runs=tuple(runs.values()))
    return list(found.values())


def union_probability(odds: list[dict[str, int]]) -> dict[str, int]:
    """The chance, in thousandths, that at least one of several things happens to each."""
    spared: dict[str, int] = {}
    for one in odds:
        for uid, chance in one.items():
            spared[uid] = spared.get(uid, 1000) * (1000 - chance) // 1000
    return {uid: 1000 - rest for uid, rest in spared.items()}
