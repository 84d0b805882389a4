"""Formats a lottery for its losers: which Runs competed, what was drawn, what was given back, and why."""

from collections.abc import Iterable, Iterator

from jobtree.client.lottery.resolution_records import Resolution
from jobtree.core import Case, Taking, commitment_of
from jobtree.messages.wording import counted_noun, joined_list

CUTS = {"Reclaim": "{} of {} reclaimed", "DropSpares": "{} dropped by {}", "Shrink": "{} given up by {}"}
ORDINALS = ("first", "second", "third")


def lottery_story(resolution: Resolution, uid: str) -> Iterator[str]:
    """Yields what a resolution decided, and last the outcome for the Run with this UID."""
    record, case = resolution.record, resolution.record.case
    name = "Lottery" if record.decision.draws else "Activation"
    starter = resolution.name(record.run)
    yield f"{name} of reservation {resolution.title}, due {resolution.due}: {starter} was to start"
    if not resolution.is_consistent:
        yield "  its record contradicts itself: Jobtree did not write it"
        return
    yield f"  needed   {needed(case)}"
    if commitment_of(bytes.fromhex(record.nonce)) != record.commitment:
        yield "  drawn    no Run: the lottery key is not the one of the commitment"
        return
    if case.takings:
        yield f"  cut      {', '.join(cuts(resolution, considered_takings(resolution)))}"
    if record.beacon.name:
        value = record.beacon.value or "was not available: drawn without it"
        yield f"  beacon   {record.beacon.name}, round {record.beacon.round}: {value}"
    if record.decision.draws:
        yield f"  tickets  {', '.join(tickets(resolution))}: {total(case)} in all, one for each GPU"
        for line in draw_lines(resolution):
            yield f"  {line}"
    else:
        yield "  drawn    no Run: no lottery was needed"
    if record.decision.given_back:
        yield f"  returned {', '.join(returned(resolution))}: not needed"
    yield f"  so       {outcome_for(resolution, uid)}"


def needed(case: Case) -> str:
    """``4 pods of 8 GPUs in nv-a, of which 1 fitted on free GPUs``."""
    free = dict.fromkeys((domain for domain, _ in case.pods), 0)
    for room in case.nodes:
        if room.domain in free:
            free[room.domain] += room.free // case.pod_size
    return "; ".join(
        f"{counted_noun(pods, 'pod')} of {counted_noun(case.pod_size, 'GPU')} "
        f"in {domain.rpartition('/')[2]}, of which {min(pods, free[domain])} fitted on free GPUs"
        for domain, pods in case.pods
    )


def considered_takings(resolution: Resolution) -> list[Taking]:
    """Returns the takings before the draw, including those that were given back."""
    decision, case = resolution.record.decision, resolution.record.case
    if decision.draws:
        return list(case.takings)
    given_back = set(decision.given_back)
    return [
        taking
        for index, taking in enumerate(case.takings)
        if index in decision.takings or taking.key in given_back
    ]


def cuts(resolution: Resolution, takings: Iterable[Taking]) -> Iterator[str]:
    """Yields ``32 spare GPUs dropped by mm1``, ``16 GPUs given up by b/j2``: a text for each kind and Run."""
    gpus: dict[tuple[str, str], int] = {}
    for taking in takings:
        key = (taking.kind, taking.run)
        gpus[key] = gpus.get(key, 0) + sum(number for _, number in taking.gpus)
    for (kind, run), number in gpus.items():
        what = counted_noun(number, "spare GPU" if kind == "DropSpares" else "GPU")
        yield CUTS[kind].format(what, resolution.name(run))


def tickets(resolution: Resolution) -> Iterator[str]:
    for ticket in resolution.record.case.tickets:
        yield f"{resolution.name(ticket.run)} {ticket.weight}"


def total(case: Case) -> int:
    return sum(ticket.weight for ticket in case.tickets)


def draw_lines(resolution: Resolution) -> Iterator[str]:
    """Yields a line for each draw, with its tickets and all tickets at that time."""
    weights = {ticket.run: ticket.weight for ticket in resolution.record.case.tickets}
    for number, run in enumerate(resolution.record.decision.draws):
        weight, all_weights = weights[run], counted_noun(sum(weights.values()), "ticket")
        yield f"drawn    {ordinal(number)} {resolution.name(run)}, with {weight} of {all_weights}"
        del weights[run]


def ordinal(number: int) -> str:
    return ORDINALS[number] if number < len(ORDINALS) else f"{number + 1}th"


def returned(resolution: Resolution) -> Iterator[str]:
    """Yields draws that were undone, then takings that were given back."""
    given_back = set(resolution.record.decision.given_back)
    for run in resolution.record.decision.draws:
        if run in given_back:
            yield f"the draw of {resolution.name(run)}"
    yield from cuts(
        resolution, [taking for taking in resolution.record.case.takings if taking.key in given_back]
    )


def outcome_for(resolution: Resolution, uid: str) -> str:
    """Returns the outcome for one Run."""
    decision, case, name = resolution.record.decision, resolution.record.case, resolution.name(uid)
    weights = {ticket.run: ticket.weight for ticket in case.tickets}
    taken = [case.takings[index] for index in decision.takings if case.takings[index].run == uid]
    if uid == resolution.record.run:
        losers = joined_list([resolution.name(run) for run in decision.losers], most=8)
        return f"{name} started" + (f", and {losers} lost" if losers else "")
    if uid in decision.losers:
        position = ordinal(decision.draws.index(uid))
        starter = resolution.name(resolution.record.run)
        return f"{name} lost: it was drawn {position}, and without its GPUs {starter} would not fit"
    cut = joined_list(list(cuts(resolution, taken)))
    if uid in decision.given_back:
        return f"{name} was drawn, but the other drawn Runs are enough: it continues"
    if uid in weights and decision.draws:
        text = f"{name} was not drawn ({weights[uid]} of {counted_noun(total(case), 'ticket')}): it continues"
        return f"{text}, with {cut}" if cut else text
    return cut or f"{name} gave up nothing and continues"
