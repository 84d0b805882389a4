"""Formats a promise: start, slice, payers, deficit, conflict set and remedies."""

from collections.abc import Callable, Iterator, Sequence

from jobtree.api.schema.quantities import HOUR, MILLI, format_duration, format_milli, format_time
from jobtree.cli.views.place_names import Places
from jobtree.core import (
    ExpectedStarts,
    ForecastRemedy,
    Promise,
    ReservationForecast,
    RunState,
    StartEstimate,
    confidence_of,
    firm_start,
    owners_counted_on,
    reservation_forecast,
    slice_deficit,
    usable_nodes_of,
)
from jobtree.messages.wording import age, counted_noun, joined_list

ROOM = 17


def promise_lines(places: Places, run: RunState, indent: str = "  ") -> Iterator[str]:
    """Yields the promise of a Run, one fact a line; nothing without a promise."""
    promise = run.promise
    if promise is None:
        return
    forecast = reservation_forecast(places.world, run, promise)
    yield f"{indent}Reservation {promise.name}:"
    expected = ExpectedStarts(places.world).estimate(run)
    for name, text in facts(places, run, promise, forecast, expected):
        yield f"{indent}  {name:<{ROOM}}{text}"


def facts(
    places: Places,
    run: RunState,
    promise: Promise,
    forecast: ReservationForecast,
    expected: StartEstimate | None,
) -> Iterator[tuple[str, str]]:
    """Yields the name and the text of each fact about a promise, in order."""
    yield "earliestStart", earliest_start(places, promise)
    place = places.world.run_queue.line.place(run)
    if place is not None and place.of > 1:
        yield "place in line", f"{place.number:,} of {place.of:,} that wait for {run.flavor}"
    firm_at = firm_start(places.world, run, promise)
    if firm_at is not None:
        yield "firm start", f"{format_time(firm_at)}, on own budget alone"
    if expected is not None and (promise.at is None or expected.p50 < promise.at):
        yield "expectedStart", f"p50 {format_time(expected.p50)}, p90 {format_time(expected.p90)}"
    if promise.domain_gpus:
        yield "intendedSlice", "; ".join(slice_of(places, promise))
        yield "width", f"{counted_noun(promise.width, 'GPU')} in pods of {promise.pod_size}"
    if promise.funding:
        yield (
            "paid by" if promise.domain_gpus else "reserves budget",
            ", ".join(f"{'/'.join(key)} ({gpus})" for key, gpus in promise.funding),
        )
    yield from kept_budget(places, promise)
    yield from deficits(places, run, promise, forecast)
    yield from conflicts_and_remedies(forecast)
    for slip in promise.slips:
        yield "slipped", f"from {instant(slip.before)} to {instant(slip.after)} ({slip.reason})"


def kept_budget(places: Places, promise: Promise) -> Iterator[tuple[str, str]]:
    """Yields how much budget was left idle for a promise without a date, or that none is kept any longer."""
    keep_idle = places.world.policy.keep_idle_ms
    gpus = f"{format_duration(keep_idle)} × {counted_noun(promise.width, 'GPU')}"
    record = places.world.idle_budget.records.get(promise.run_key)
    if promise.at is not None:
        return
    if not promise.keeps_budget:
        yield "kept budget", f"none: money was kept for {gpus}, and younger Runs may use it now"
    elif record is not None and record.used_by(places.world.now):
        used = format_milli(record.used_by(places.world.now) // HOUR)
        limit = format_milli(promise.width * keep_idle * MILLI // HOUR)
        yield "kept idle", f"{used} of at most {limit} GPU-hours ({gpus})"


def deficits(
    places: Places, run: RunState, promise: Promise, forecast: ReservationForecast
) -> Iterator[tuple[str, str]]:
    """Yields what the Run lacks; of a stage that starts together with others, also what all of them lack."""
    together = f"all stages that start together lack {counted_noun(forecast.deficit, 'GPU')}"
    own = slice_deficit(places.world, run, promise) if run.gang else forecast.deficit
    if own:
        text = f"{counted_noun(own, 'GPU')} in {domains_of(places, promise)}"
        yield "deficit", text if own == forecast.deficit else f"{text}; {together}"
    elif forecast.deficit:
        yield "deficit", together
    if forecast.funding_deficit:
        text = f"{counted_noun(forecast.funding_deficit, 'GPU')}"
        yield "funding deficit", f"{text}, for all stages that start together" if run.gang else text


def earliest_start(places: Places, promise: Promise) -> str:
    """``2026-01-05T11:30:00Z (in 30m00s), guaranteed``."""
    if promise.beyond_depth:
        return f"none yet: the first {places.world.policy.promise_depth:,} in line have a date"
    if promise.at is None:
        return "none: no known event makes it possible"
    owners = owners_counted_on(places.world, promise)
    on = f" on {joined_list(owners)}" if owners else ""
    return f"{format_time(promise.at)} ({countdown(places, promise)}), {confidence_of(promise, owners)}{on}"


def countdown(places: Places, promise: Promise) -> str:
    ahead = (promise.at or 0) - places.world.now
    return f"in {age(ahead)}" if ahead > 0 else "now"


def eta(run: RunState) -> str:
    """Returns the promised start of a waiting Run; ``none`` for a promise without a date."""
    return instant(run.promise.at) if run.promise else ""


def instant(at: int | None) -> str:
    return "none" if at is None else format_time(at)


def slice_of(places: Places, promise: Promise) -> Iterator[str]:
    """Yields ``domain=B (nodes b01-b08)`` for each domain; with the number of GPUs if there are several."""
    domains = places.world.fleet.flavor(promise.flavor).domains
    for name, gpus in promise.domain_gpus:
        text = places.domain_with_nodes(name, usable_nodes_of(domains.get(name)))
        yield f"{text}: {counted_noun(gpus, 'GPU')}" if len(promise.domain_gpus) > 1 else text


def domains_of(places: Places, promise: Promise) -> str:
    return joined_list([f"domain={places.called(name)}" for name, _ in promise.domain_gpus])


def conflicts_and_remedies(forecast: ReservationForecast) -> Iterator[tuple[str, str]]:
    """Yields the conflict set, the remedies, and the kill probability of each Run in the conflict set."""
    conflicts = forecast.conflict_set()
    if conflicts:
        name = namer(conflicts)
        yield "conflictSet", f"[{', '.join(sorted(f'run/{name(run)}' for run in conflicts))}]"
    if forecast.remedies:
        separator = ", " if conflicts else "; "
        yield "remedies", separator.join(remedy_texts(forecast.remedies))
    if conflicts:
        odds = [f"{'/'.join(run.key)} {odds_of(forecast, run)}" for run in conflicts]
        stopped = any(forecast.odds.get(run.uid) for run in conflicts)
        yield "odds", f"of being stopped: {', '.join(odds)}" if stopped else "no Run is stopped"


def odds_of(forecast: ReservationForecast, run: RunState) -> str:
    return format_milli(forecast.odds.get(run.uid, 0))


def namer(runs: Sequence[RunState]) -> Callable[[RunState], str]:
    """Returns a function for names of Runs; it adds the namespace if two of these Runs have the same name."""
    names = [run.key[1] for run in runs]

    def name(run: RunState) -> str:
        return run.key[1] if names.count(run.key[1]) == 1 else "/".join(run.key)

    return name


def remedy_texts(remedies: Sequence[ForecastRemedy]) -> Iterator[str]:
    """Yields ``drop spares (32)``, ``shrink malleable (16)``; with a lottery, names the Runs to shrink."""
    has_lottery = any(remedy.kind == "Lottery" for remedy in remedies)
    for remedy in remedies:
        names = ", ".join(sorted(map(namer(remedy.runs), remedy.runs)))
        match remedy.kind:
            case "Reclaim":
                yield f"reclaim {names} ({remedy.gpus})"
            case "DropSpares":
                yield f"drop spares ({remedy.gpus})"
            case "Shrink":
                yield f"shrink {names if has_lottery else 'malleable'} ({remedy.gpus})"
            case "Lottery":
                yield f"lottery conflict set [{names}] ({remedy.gpus})"
            case "Recall":
                yield f"recall charges from {names} ({remedy.gpus})"
            case _:
                yield remedy.message
