"""The story of a lottery, for those who lost it: who competed, what was drawn, what was given back, why."""

from collections.abc import Iterable, Iterator

from jobtree.cli.shell.wording import counted_noun, joined_list
from jobtree.cli.views.lottery.resolution_records import Resolution
from jobtree.core import Case, Taking, commitment_of

CUTS = {"Reclaim": "{} of {} reclaimed", "DropSpares": "{} dropped by {}", "Shrink": "{} given up by {}"}
ORDINALS = ("first", "second", "third")


def lottery_story(told: Resolution, uid: str) -> Iterator[str]:
    """What one resolution decided, and last what it meant for this Run."""
    record, case = told.record, told.record.case
    name = "Lottery" if record.decision.draws else "Activation"
    yield f"{name} of reservation {told.title}, due {told.due}: {told.name(record.run)} was to start"
    if not told.tellable:
        yield "  its record contradicts itself: whoever wrote it, it was not Jobtree"
        return
    yield f"  needed   {needed(case)}"
    if commitment_of(bytes.fromhex(record.nonce)) != record.commitment:
        yield "  drawn    nobody: the lottery key is not the one that was committed with"
        return
    if case.takings:
        yield f"  cut      {', '.join(cuts(told, considered(told)))}"
    if record.beacon.name:
        value = record.beacon.value or "was not at hand: drawn without it"
        yield f"  beacon   {record.beacon.name}, round {record.beacon.round}: {value}"
    if record.decision.draws:
        yield f"  tickets  {', '.join(tickets(told))}: {total(case)} in all, one for each GPU"
        for line in draw_lines(told):
            yield f"  {line}"
    else:
        yield "  drawn    nobody: no lottery was needed"
    if record.decision.given_back:
        yield f"  returned {', '.join(returned(told))}: not needed in the end"
    yield f"  so       {part(told, uid)}"


def needed(case: Case) -> str:
    """``4 pods of 8 GPUs in nv-a, of which 1 fitted into what was free``."""
    free = dict.fromkeys((domain for domain, _ in case.pods), 0)
    for room in case.nodes:
        if room.domain in free:
            free[room.domain] += room.free // case.pod_size
    return "; ".join(
        f"{counted_noun(pods, 'pod')} of {counted_noun(case.pod_size, 'GPU')} "
        f"in {domain.rpartition('/')[2]}, of which {min(pods, free[domain])} fitted into what was free"
        for domain, pods in case.pods
    )


def considered(told: Resolution) -> list[Taking]:
    """Cuts that were made before anybody was drawn, given back ones included."""
    decision, case = told.record.decision, told.record.case
    if decision.draws:
        return list(case.takings)
    back = set(decision.given_back)
    return [one for index, one in enumerate(case.takings) if index in decision.takings or one.key in back]


def cuts(told: Resolution, takings: Iterable[Taking]) -> Iterator[str]:
    """``32 spare GPUs dropped by mm1, 16 GPUs given up by b/j2``: by kind and Run."""
    gpus: dict[tuple[str, str], int] = {}
    for one in takings:
        gpus[one.kind, one.run] = gpus.get((one.kind, one.run), 0) + sum(number for _, number in one.gpus)
    for (kind, run), number in gpus.items():
        what = counted_noun(number, "spare GPU" if kind == "DropSpares" else "GPU")
        yield CUTS[kind].format(what, told.name(run))


def tickets(told: Resolution) -> Iterator[str]:
    for ticket in told.record.case.tickets:
        yield f"{told.name(ticket.run)} {ticket.weight}"


def total(case: Case) -> int:
    return sum(ticket.weight for ticket in case.tickets)


def draw_lines(told: Resolution) -> Iterator[str]:
    """Each draw, with the chance that it had at its turn."""
    weights = {ticket.run: ticket.weight for ticket in told.record.case.tickets}
    for number, run in enumerate(told.record.decision.draws):
        mine, all_of = weights[run], sum(weights.values())
        yield f"drawn    {ordinal(number)} {told.name(run)}, with {mine} of {counted_noun(all_of, 'ticket')}"
        del weights[run]


def ordinal(number: int) -> str:
    return ORDINALS[number] if number < len(ORDINALS) else f"{number + 1}th"


def returned(told: Resolution) -> Iterator[str]:
    """Draws that were undone, then cuts that were."""
    back = set(told.record.decision.given_back)
    for run in told.record.decision.draws:
        if run in back:
            yield f"the draw of {told.name(run)}"
    yield from cuts(told, [one for one in told.record.case.takings if one.key in back])


def part(told: Resolution, uid: str) -> str:
    """What it came to for one Run."""
    decision, case, name = told.record.decision, told.record.case, told.name(uid)
    weights = {ticket.run: ticket.weight for ticket in case.tickets}
    mine = [case.takings[index] for index in decision.takings if case.takings[index].run == uid]
    if uid == told.record.run:
        losers = joined_list([told.name(run) for run in decision.losers], most=8)
        return f"{name} started" + (f", and {losers} lost" if losers else "")
    if uid in decision.losers:
        place = ordinal(decision.draws.index(uid))
        starter = told.name(told.record.run)
        return f"{name} lost: it was drawn {place}, and without its GPUs {starter} would not fit"
    cut = joined_list(list(cuts(told, mine)))
    if uid in decision.given_back:
        return f"{name} was drawn, but the others that were drawn are enough: it runs on"
    if uid in weights and decision.draws:
        said = f"{name} was not drawn ({weights[uid]} of {counted_noun(total(case), 'ticket')}): it runs on"
        return f"{said}, with {cut}" if cut else said
    return cut or f"{name} gave nothing and runs on"
