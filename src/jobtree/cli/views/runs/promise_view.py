"""What a Reservation promises, in the words of the contract: when, where, what is missing, who gives way."""

from collections.abc import Callable, Iterator, Sequence

from jobtree.api.schema.quantities import format_milli, format_time
from jobtree.cli.shell.wording import age, counted_noun, joined_list
from jobtree.cli.views.place_names import Places
from jobtree.core import (
    ExpectedStarts,
    ForecastRemedy,
    Promise,
    ReservationForecast,
    RunState,
    StartEstimate,
    reservation_forecast,
    usable_nodes_of,
)

ROOM = 17


def promise_lines(places: Places, run: RunState, indent: str = "  ") -> Iterator[str]:
    """The Reservation of a Run, a fact a line; nothing where it has none."""
    promise = run.promise
    if promise is None:
        return
    outcome = reservation_forecast(places.world, run, promise)
    yield f"{indent}Reservation {promise.name}:"
    expected = ExpectedStarts(places.world).estimate(run)
    for name, text in facts(places, promise, outcome, expected):
        yield f"{indent}  {name:<{ROOM}}{text}"


def facts(
    places: Places, promise: Promise, outcome: ReservationForecast, expected: StartEstimate | None
) -> Iterator[tuple[str, str]]:
    """Name and value of all that is worth saying, in order."""
    yield "earliestStart", earliest_start(places, promise)
    if expected is not None and (promise.at is None or expected.p50 < promise.at):
        yield "expectedStart", f"p50 {format_time(expected.p50)}, p90 {format_time(expected.p90)}"
    if promise.domain_gpus:
        yield "slice", "; ".join(slice_of(places, promise))
        yield "width", f"{counted_noun(promise.width, 'GPU')} in pods of {promise.pod_size}"
    if promise.funding:
        yield (
            "paid by" if promise.domain_gpus else "keeps money of",
            ", ".join(f"{'/'.join(key)} ({gpus})" for key, gpus in promise.funding),
        )
    if outcome.deficit:
        yield "deficit", f"{counted_noun(outcome.deficit, 'GPU')} in {domains_of(places, promise)}"
    if outcome.funding_deficit:
        yield "funding deficit", f"{counted_noun(outcome.funding_deficit, 'GPU')}"
    yield from give_way(outcome)
    for slip in promise.slips:
        yield "slipped", f"from {instant(slip.before)} to {instant(slip.after)} ({slip.reason})"


def earliest_start(places: Places, promise: Promise) -> str:
    """``2026-01-05T11:30:00Z (in 30m00s), guaranteed``."""
    if promise.at is None:
        return "none: nothing known will make it possible"
    confidence = "window-aligned" if promise.window_aligned else "guaranteed"
    return f"{format_time(promise.at)} ({countdown(places, promise)}), {confidence}"


def countdown(places: Places, promise: Promise) -> str:
    ahead = (promise.at or 0) - places.world.now
    return f"in {age(ahead)}" if ahead > 0 else "now"


def eta(run: RunState) -> str:
    """When a waiting Run will start; ``none`` where nobody can say."""
    return instant(run.promise.at) if run.promise else ""


def instant(at: int | None) -> str:
    return "none" if at is None else format_time(at)


def slice_of(places: Places, promise: Promise) -> Iterator[str]:
    """``domain=B (nodes b01-b08)``, for each domain; with GPUs where there are several."""
    domains = places.world.fleet.flavor(promise.flavor).domains
    for name, gpus in promise.domain_gpus:
        text = places.domain_with_nodes(name, usable_nodes_of(domains.get(name)))
        yield f"{text}: {counted_noun(gpus, 'GPU')}" if len(promise.domain_gpus) > 1 else text


def domains_of(places: Places, promise: Promise) -> str:
    return joined_list([f"domain={places.called(name)}" for name, _ in promise.domain_gpus])


def give_way(outcome: ReservationForecast) -> Iterator[tuple[str, str]]:
    """Who would have to, and how likely it is that they are stopped altogether."""
    conflicts = outcome.conflict_set()
    if conflicts:
        named = namer(conflicts)
        yield "conflict set", f"[{', '.join(sorted(f'run/{named(run)}' for run in conflicts))}]"
    if outcome.remedies:
        joint = ", " if conflicts else "; "
        yield "remedies", joint.join(worded(outcome.remedies))
    if conflicts:
        odds = [f"{'/'.join(run.key)} {odds_of(outcome, run)}" for run in conflicts]
        stopped = any(outcome.odds.get(run.uid) for run in conflicts)
        yield "odds", f"of being stopped: {', '.join(odds)}" if stopped else "nobody is stopped"


def odds_of(outcome: ReservationForecast, run: RunState) -> str:
    return format_milli(outcome.odds.get(run.uid, 0))


def namer(runs: Sequence[RunState]) -> Callable[[RunState], str]:
    """Names alone, and with their namespace where one name stands for two of these Runs."""
    names = [run.key[1] for run in runs]

    def name(run: RunState) -> str:
        return run.key[1] if names.count(run.key[1]) == 1 else "/".join(run.key)

    return name


def worded(remedies: Sequence[ForecastRemedy]) -> Iterator[str]:
    """``drop spares (32), shrink malleable (16)``; where a lottery follows, the Runs are named."""
    drawn = any(remedy.kind == "Lottery" for remedy in remedies)
    for remedy in remedies:
        named = namer(remedy.runs)
        who = ", ".join(sorted(named(run) for run in remedy.runs))
        match remedy.kind:
            case "Reclaim":
                yield f"reclaim {who} ({remedy.gpus})"
            case "DropSpares":
                yield f"drop spares ({remedy.gpus})"
            case "Shrink":
                yield f"shrink {who if drawn else 'malleable'} ({remedy.gpus})"
            case "Lottery":
                yield f"lottery conflict set [{who}] ({remedy.gpus})"
            case "Recall":
                yield f"recall money from {who} ({remedy.gpus})"
            case _:
                yield remedy.message
