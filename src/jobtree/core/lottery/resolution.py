"""Resolution: decides what must be reclaimed so that a promised gang packs (section 6 of the specification).

A case is plain data: free GPUs per node of the slice, takings in their order, and tickets.
``CaseSolver.decide`` is a pure function of a case and an order of draws. The planner, the kill probabilities
and the verification of a record all call it, so the published probabilities are those of the draw.

The order is provisional and opportunistic work (X1), spares (X2), steps of malleable Runs (X3), Runs that
were told of a recall (C11), then the lottery (X4). Whatever turns out not to be needed is given back, last
taken first (X5).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

TakingKind = Literal["Reclaim", "DropSpares", "Shrink", "Recall"]
FreedPods = tuple[list[tuple[int, int]], list[tuple[int, int]]]
"""Freed pods by domain, and freed GPUs on nodes where several victims hold parts of pods."""


class NodeRoom(msgspec.Struct, frozen=True):
    """A node of the slice on which the pods of the gang may run, and its free GPUs."""

    node: str
    domain: str
    free: int


class Taking(msgspec.Struct, frozen=True):
    """Something that can be taken without a lottery, and the GPUs per node that it frees."""

    kind: TakingKind
    run: str  # UID
    gpus: tuple[tuple[str, int], ...]
    key: str  # names the leases or the step


class Ticket(msgspec.Struct, frozen=True):
    """A Run that may be drawn: its active GPUs in the slice's domains after all takings, per node."""

    run: str  # UID
    gpus: tuple[tuple[str, int], ...]

    @property
    def weight(self) -> int:
        return sum(count for _, count in self.gpus)


class Case(msgspec.Struct, frozen=True, rename="camel"):
    """All inputs of a resolution. ``pods`` is the promised slice: pods per domain that must fit."""

    pod_size: int
    pods: tuple[tuple[str, int], ...]
    nodes: tuple[NodeRoom, ...]
    takings: tuple[Taking, ...]
    tickets: tuple[Ticket, ...]  # sorted by Run UID


class Decision(msgspec.Struct, frozen=True, rename="camel"):
    """What to take: indexes of takings, and the Runs that lose. Without any of it the gang does not pack."""

    packs: int  # 1 if the gang packs then, else 0: a record has no booleans
    takings: tuple[int, ...] = ()
    losers: tuple[str, ...] = ()
    draws: tuple[str, ...] = ()  # UIDs in the order drawn, including those given back
    given_back: tuple[str, ...] = ()


class CaseSolver:
    """A case with nodes and domains as numbers, to be decided once or many times."""

    def __init__(self, case: Case) -> None:
        self.case = case
        pod_size = self._pod_size = case.pod_size
        domains = {domain: number for number, (domain, _) in enumerate(case.pods)}
        rooms = [room for room in case.nodes if room.domain in domains]
        numbers = {room.node: number for number, room in enumerate(rooms)}
        self._free = [room.free for room in rooms]
        self._domain = [domains[room.domain] for room in rooms]
        self._missing = [pods for _, pods in case.pods]
        for room in rooms:
            self._missing[domains[room.domain]] -= room.free // pod_size
        takings = [self._numbered(taking.gpus, numbers) for taking in case.takings]
        tickets = [self._numbered(ticket.gpus, numbers) for ticket in case.tickets]
        parts = [node for gpus in (*takings, *tickets) for node, count in gpus if count % pod_size]
        self._shared = {node for node, times in Counter(parts).items() if times > 1}
        self._takings = [self._freed_by(gpus) for gpus in takings]
        self._tickets = [self._freed_by(gpus) for gpus in tickets]

    @staticmethod
    def _numbered(gpus: Iterable[tuple[str, int]], numbers: dict[str, int]) -> list[tuple[int, int]]:
        """The GPUs on nodes that this gang could use, by number of the node."""
        return [(numbers[node], count) for node, count in gpus if node in numbers]

    def _freed_by(self, gpus: list[tuple[int, int]]) -> FreedPods:
        """Returns what these GPUs free.

        On nodes where at most one victim holds parts of pods, the freed pods do not depend on other victims.
        """
        pods: dict[int, int] = {}
        for node, count in gpus:
            if node not in self._shared:
                more = (self._free[node] % self._pod_size + count) // self._pod_size
                pods[self._domain[node]] = pods.get(self._domain[node], 0) + more
        shared = [(node, count) for node, count in gpus if node in self._shared]
        return [(domain, more) for domain, more in pods.items() if more], shared

    def decide(self, draw_order: Iterator[int]) -> Decision:
        """Takes as much as needed: takings in the order of the case, then tickets in the order drawn."""
        state, taken = self.before_draws()
        drawn: list[int] = []
        while state.short:
            index = next(draw_order, -1)
            if index < 0:
                return Decision(packs=0, draws=tuple(self.case.tickets[index].run for index in drawn))
            self.draw(state, index)
            drawn.append(index)
        return self._give_back(state, taken, drawn)

    def before_draws(self) -> "tuple[SolverState, list[int]]":
        """Returns the state before the first draw, and the takings that lead to it."""
        state = SolverState(self._free.copy(), self._missing.copy(), sum(pods > 0 for pods in self._missing))
        taken: list[int] = []
        for index, gpus in enumerate(self._takings):
            if not state.short:
                break
            state.short += self._add(state.free, state.missing, gpus, 1)
            taken.append(index)
        return state, taken

    def draw(self, state: "SolverState", index: int) -> None:
        """Frees the GPUs of a drawn ticket."""
        state.short += self._add(state.free, state.missing, self._tickets[index], 1)

    def losers(self, state: "SolverState", drawn: Iterable[int]) -> list[int]:
        """Returns the drawn tickets that are needed to pack, last drawn first; gives back the others (X5)."""
        free, missing, losers = state.free, state.missing, []
        for index in drawn:
            gpus = self._tickets[index]
            if self._add(free, missing, gpus, -1):
                self._add(free, missing, gpus, 1)
                losers.append(index)
        return losers

    def losers_of_order(
        self, state: "SolverState", first: Sequence[int], draw_order: Iterable[int]
    ) -> list[int]:
        """Returns the losers if ``first`` are drawn and then tickets in that order until the gang packs."""
        drawn = list(first)
        if len(state.missing) == 1:
            return self._losers_in_one_domain(state, drawn, draw_order)
        for index in draw_order:
            self.draw(state, index)
            drawn.append(index)
            if not state.short:
                return self.losers(state, reversed(drawn))
        return []

    def _losers_in_one_domain(
        self, state: "SolverState", drawn: list[int], draw_order: Iterable[int]
    ) -> list[int]:
        """The same for a slice in one domain, where only the number of missing pods counts."""
        free, missing, pod_size, tickets = state.free, state.missing[0], self._pod_size, self._tickets
        for index in draw_order:
            drawn.append(index)
            pods, shared = tickets[index]
            if pods:
                missing -= pods[0][1]
            for node, count in shared:
                had = free[node]
                has = free[node] = had + count
                missing -= has // pod_size - had // pod_size
            if missing <= 0:
                return self._give_back_in_one_domain(free, missing, drawn)
        return []

    def _give_back_in_one_domain(self, free: list[int], missing: int, drawn: list[int]) -> list[int]:
        losers, pod_size, tickets = [], self._pod_size, self._tickets
        for index in reversed(drawn):
            pods, shared = tickets[index]
            more = pods[0][1] if pods else 0
            for node, count in shared:
                has = free[node]
                more += has // pod_size - (has - count) // pod_size
            if missing + more > 0:
                losers.append(index)
                continue
            missing += more
            for node, count in shared:
                free[node] -= count
        return losers

    def _add(self, free: list[int], missing: list[int], given: FreedPods, sign: int) -> int:
        """Frees these GPUs, or occupies them with sign −1; returns the change in domains that fall short."""
        change, pod_size, (pods, shared) = 0, self._pod_size, given
        for where, more in pods:
            before = missing[where]
            after = missing[where] = before - sign * more
            change += (after > 0) - (before > 0)
        for node, count in shared:
            had = free[node]
            has = free[node] = had + sign * count
            more = has // pod_size - had // pod_size
            if more:
                where = self._domain[node]
                before = missing[where]
                after = missing[where] = before - more
                change += (after > 0) - (before > 0)
        return change

    def _give_back(self, state: "SolverState", taken: list[int], drawn: list[int]) -> Decision:
        """Gives back what is not needed, last taken first. A loser's own takings are dropped (X5)."""
        case, free, missing = self.case, state.free, state.missing
        lost = self.losers(state, reversed(drawn))
        losers = [case.tickets[index].run for index in lost]
        returned = [case.tickets[index].run for index in reversed(drawn) if index not in lost]
        needed: list[int] = []
        for index in reversed(taken):
            if case.takings[index].run in losers:
                continue
            if self._add(free, missing, self._takings[index], -1):
                self._add(free, missing, self._takings[index], 1)
                needed.append(index)
            else:
                returned.append(case.takings[index].key)
        return Decision(
            packs=1,
            takings=tuple(reversed(needed)),
            losers=tuple(reversed(losers)),
            draws=tuple(case.tickets[index].run for index in drawn),
            given_back=tuple(returned),
        )


class SolverState:
    """Free GPUs per node, missing pods per domain, and the number of domains that fall short."""

    __slots__ = ("free", "missing", "short")

    def __init__(self, free: list[int], missing: list[int], short: int) -> None:
        self.free = free
        self.missing = missing
        self.short = short

    def copy(self) -> "SolverState":
        return SolverState(self.free.copy(), self.missing.copy(), self.short)
