"""The forecast of a Reservation that starts several stages together (J3): the sum of their forecasts.

Stages are resolved one after the other, each by its own draw. A Run that lost the first cannot lose the next,
so the probability of losing to any of them is the sum.
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


def joint_forecast(world: World, members: GangPromises) -> ReservationForecast:
    """Returns one forecast: what each stage lacks, and what all lack together."""
    parts = [forecast(world, run) for run, _ in members]
    undated = any(promise.at is None for _, promise in members)
    remedies = [remedy for part in parts for remedy in part.remedies]
    if undated:
        remedies = [remedy for remedy in remedies if remedy.kind == "AddCapacity"]
    lacking = 0
    for run, split, short in funding_deficit(world, members) if undated else ():
        remedies = [*funding_remedies(world, run, split, short), *remedies]
        lacking += short
    return ReservationForecast(
        deficit=sum(part.deficit for part in parts),
        funding_deficit=lacking or sum(part.funding_deficit for part in parts),
        remedies=tuple(merged_remedies(remedies)),
        odds=added_odds([part.odds for part in parts]),
    )


def funding_deficit(world: World, members: GangPromises) -> Iterator[tuple[RunState, FundingSplit, int]]:
    """Yields, for each flavor, who would pay if all started now, and the GPUs that no envelope pays for."""
    for flavor in sorted({promise.flavor for _, promise in members}):
        same = [(run, promise) for run, promise in members if promise.flavor == flavor]
        width = sum(run.shape.min for run, _ in same if run.shape)
        pod_size = gcd(*(promise.pod_size for _, promise in same))
        run, promise = same[0]
        split, lacking = funding_at(world, run, width, pod_size, world.now, promise.precedence)
        if lacking:
            yield run, split, lacking


def merged_remedies(remedies: list[ForecastRemedy]) -> list[ForecastRemedy]:
    """Returns one remedy for each kind and message, with the GPUs and Runs of all."""
    merged: dict[tuple[str, str], ForecastRemedy] = {}
    for remedy in remedies:
        previous = merged.get((remedy.kind, remedy.message))
        runs = {run.key: run for run in (*(previous.runs if previous else ()), *remedy.runs)}
        gpus = remedy.gpus + (previous.gpus if previous else 0)
        merged[remedy.kind, remedy.message] = msgspec.structs.replace(
            remedy, gpus=gpus, runs=tuple(runs.values())
        )
    return list(merged.values())


def added_odds(odds: list[dict[str, int]]) -> dict[str, int]:
    """Returns the probability, in thousandths by UID, that a Run loses any of several draws."""
    added: dict[str, int] = {}
    for odds_of_draw in odds:
        for uid, probability in odds_of_draw.items():
            added[uid] = min(1000, added.get(uid, 0) + probability)
    return added
