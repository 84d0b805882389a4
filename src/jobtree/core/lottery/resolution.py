"""Resolution: what has to give way so that a promised gang packs (SPEC section 6).

A case is plain data: free GPUs per node of the slice, what can be taken in which order, who holds tickets.
``Board.decide`` is a pure function of a case and an order of draws. The planner, the odds and the
verification of a record all call it, so published odds are drawn odds and a record proves itself.

Order: provisional and unpaid work (X1), spares (X2), steps of malleable Runs (X3), then the lottery (X4).
Nothing is carried out before all is decided: what turned out not to be needed is given back, last taken
first (X5).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

TakingKind = Literal["Reclaim", "DropSpares", "Shrink"]
FreedPods = tuple[
    list[tuple[int, int]], list[tuple[int, int]]
]  # pods by domain; GPUs on nodes with parts of pods


class NodeRoom(msgspec.Struct, frozen=True):
    """A node of the slice that may carry the gang's pods, and its GPUs that are free."""

    node: str
    domain: str
    free: int


class Taking(msgspec.Struct, frozen=True):
    """Something that can be taken without a lottery: GPUs per node that it would free."""

    kind: TakingKind
    run: str  # UID
    gpus: tuple[tuple[str, int], ...]
    key: str  # names the leases or the step, so that it can be carried out


class Ticket(msgspec.Struct, frozen=True):
    """A Run that may be drawn: its active GPUs in the slice's domains after all takings, per node."""

    run: str  # UID
    gpus: tuple[tuple[str, int], ...]

    @property
    def weight(self) -> int:
        return sum(count for _, count in self.gpus)


class Case(msgspec.Struct, frozen=True, rename="camel"):
    """All that decides. ``pods`` per domain is what must fit: the promised slice."""

    pod_size: int
    pods: tuple[tuple[str, int], ...]
    nodes: tuple[NodeRoom, ...]
    takings: tuple[Taking, ...]
    tickets: tuple[Ticket, ...]  # sorted by Run UID


class Decision(msgspec.Struct, frozen=True, rename="camel"):
    """What to take: indexes into the case's takings, and Runs that lose. None of it can be spared."""

    packs: int  # 1 if the gang packs then; a record holds integers and strings only
    takings: tuple[int, ...] = ()
    losers: tuple[str, ...] = ()
    draws: tuple[str, ...] = ()  # in the order drawn, given back ones included
    given_back: tuple[str, ...] = ()


class CaseSolver:
    """A case laid out for deciding it, once or many times: nodes and domains by number."""

    def __init__(self, case: Case) -> None:
        self.case = case
        size = self._size = case.pod_size
        domains = {domain: number for number, (domain, _) in enumerate(case.pods)}
        rooms = [room for room in case.nodes if room.domain in domains]
        numbers = {room.node: number for number, room in enumerate(rooms)}
        self._free = [room.free for room in rooms]
        self._domain = [domains[room.domain] for room in rooms]
        self._missing = [pods for _, pods in case.pods]
        for room in rooms:
            self._missing[domains[room.domain]] -= room.free // size
        takings = [self._numbered(taking.gpus, numbers) for taking in case.takings]
        tickets = [self._numbered(ticket.gpus, numbers) for ticket in case.tickets]
        parts = [node for gpus in (*takings, *tickets) for node, count in gpus if count % size]
        self._shared = {node for node, times in Counter(parts).items() if times > 1}
        self._takings = [self._freed_by(gpus) for gpus in takings]
        self._tickets = [self._freed_by(gpus) for gpus in tickets]

    @staticmethod
    def _numbered(gpus: Iterable[tuple[str, int]], numbers: dict[str, int]) -> list[tuple[int, int]]:
        """GPUs on nodes that this gang could use."""
        return [(numbers[node], count) for node, count in gpus if node in numbers]

    def _freed_by(self, gpus: list[tuple[int, int]]) -> FreedPods:
        """What these GPUs give: on a node where at most one holds parts of pods, always the same."""
        pods: dict[int, int] = {}
        for node, count in gpus:
            if node not in self._shared:
                more = (self._free[node] % self._size + count) // self._size
                pods[self._domain[node]] = pods.get(self._domain[node], 0) + more
        shared = [(node, count) for node, count in gpus if node in self._shared]
        return [(domain, more) for domain, more in pods.items() if more], shared

    def decide(self, order: Iterator[int]) -> Decision:
        """Take as much as needed: the case's takings in their order, then tickets in the order drawn."""
        stage, taken = self.before_draws()
        drawn: list[int] = []
        while stage.short:
            index = next(order, -1)
            if index < 0:
                return Decision(packs=0, draws=tuple(self.case.tickets[index].run for index in drawn))
            self.draw(stage, index)
            drawn.append(index)
        return self._give_back(stage, taken, drawn)

    def before_draws(self) -> "tuple[SolverState, list[int]]":
        """Where the draws begin, and what was taken before."""
        stage = SolverState(self._free.copy(), self._missing.copy(), sum(pods > 0 for pods in self._missing))
        taken: list[int] = []
        for index, gpus in enumerate(self._takings):
            if not stage.short:
                break
            stage.short += self._add(stage.free, stage.missing, gpus, 1)
            taken.append(index)
        return stage, taken

    def draw(self, stage: "SolverState", index: int) -> None:
        """That ticket is drawn."""
        stage.short += self._add(stage.free, stage.missing, self._tickets[index], 1)

    def losers(self, stage: "SolverState", drawn: Iterable[int]) -> list[int]:
        """Of the tickets drawn, last first, those without which it would not pack; others go back (X5)."""
        free, missing, losers = stage.free, stage.missing, []
        for index in drawn:
            gpus = self._tickets[index]
            if self._add(free, missing, gpus, -1):
                self._add(free, missing, gpus, 1)
                losers.append(index)
        return losers

    def losers_of_order(self, stage: "SolverState", path: Sequence[int], order: Iterable[int]) -> list[int]:
        """After these draws, draw in that order until it packs, then give back: who loses."""
        drawn = list(path)
        if len(stage.missing) == 1:
            return self._losers_in_one_domain(stage, drawn, order)
        for index in order:
            self.draw(stage, index)
            drawn.append(index)
            if not stage.short:
                return self.losers(stage, reversed(drawn))
        return []

    def _losers_in_one_domain(
        self, stage: "SolverState", drawn: list[int], order: Iterable[int]
    ) -> list[int]:
        """The same in one domain, where all that counts is how many pods are missing."""
        free, missing, size, tickets = stage.free, stage.missing[0], self._size, self._tickets
        for index in order:
            drawn.append(index)
            pods, shared = tickets[index]
            if pods:
                missing -= pods[0][1]
            for node, count in shared:
                had = free[node]
                has = free[node] = had + count
                missing -= has // size - had // size
            if missing <= 0:
                return self._give_back_in_one_domain(free, missing, drawn)
        return []

    def _give_back_in_one_domain(self, free: list[int], missing: int, drawn: list[int]) -> list[int]:
        losers, size, tickets = [], self._size, self._tickets
        for index in reversed(drawn):
            pods, shared = tickets[index]
            more = pods[0][1] if pods else 0
            for node, count in shared:
                has = free[node]
                more += has // size - (has - count) // size
            if missing + more > 0:
                losers.append(index)
                continue
            missing += more
            for node, count in shared:
                free[node] -= count
        return losers

    def _add(self, free: list[int], missing: list[int], given: FreedPods, sign: int) -> int:
        """Free these GPUs (or, with sign −1, occupy them again); by how many domains more fall short."""
        change, size, (pods, shared) = 0, self._size, given
        for where, more in pods:
            before = missing[where]
            after = missing[where] = before - sign * more
            change += (after > 0) - (before > 0)
        for node, count in shared:
            had = free[node]
            has = free[node] = had + sign * count
            more = has // size - had // size
            if more:
                where = self._domain[node]
                before = missing[where]
                after = missing[where] = before - more
                change += (after > 0) - (before > 0)
        return change

    def _give_back(self, stage: "SolverState", taken: list[int], drawn: list[int]) -> Decision:
        """Last taken first: draws, then takings. What was taken from a loser goes with it (X5)."""
        case, free, missing = self.case, stage.free, stage.missing
        lost = self.losers(stage, reversed(drawn))
        losers = [case.tickets[index].run for index in lost]
        returned = [case.tickets[index].run for index in reversed(drawn) if index not in lost]
        kept: list[int] = []
        for index in reversed(taken):
            if case.takings[index].run in losers:
                continue
            if self._add(free, missing, self._takings[index], -1):
                self._add(free, missing, self._takings[index], 1)
                kept.append(index)
            else:
                returned.append(case.takings[index].key)
        return Decision(
            packs=1,
            takings=tuple(reversed(kept)),
            losers=tuple(reversed(losers)),
            draws=tuple(case.tickets[index].run for index in drawn),
            given_back=tuple(returned),
        )


class SolverState:
    """How far a decision has come: free GPUs per node, pods missing per domain, domains that fall short."""

    __slots__ = ("free", "missing", "short")

    def __init__(self, free: list[int], missing: list[int], short: int) -> None:
        self.free = free
        self.missing = missing
        self.short = short

    def copy(self) -> "SolverState":
        return SolverState(self.free.copy(), self.missing.copy(), self.short)
