"""The horizon of a domain: how many pods it could hold at any coming instant (R2–R4).

There are three answers, by what may be taken: nothing (level 0: free by known ends), spares and steps of
malleable Runs too (level 1), and whatever is not immune to the lottery (level 2). Unpaid work stands in
nobody's way, provisional work not in that of promises made before it. Promises count by number, wherever
the pods will sit: so they do not break when a lottery falls another way.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

import msgspec

from jobtree.core.books import FOREVER
from jobtree.core.cover import candidates
from jobtree.core.fleet import Demand, Domain, NodeState
from jobtree.core.flow import Flow
from jobtree.core.lease import RunKey
from jobtree.core.promise import LOTTERY, Level, Promise, Rank
from jobtree.core.runs import RunState
from jobtree.core.steps import shrink_steps
from jobtree.core.world import Held, World

ALWAYS = -1  # released whenever it is asked for
LEVELS: tuple[Level, ...] = (0, 1, 2)
MAX_DOUBLINGS = 4


class Stay(msgspec.Struct, frozen=True):
    """GPUs on one node that somebody holds, and when each level could have them."""

    node: str
    gpus: int
    releases: tuple[int, int, int]


def immune_until(world: World, state: RunState) -> int:
    """A Run cannot be drawn before that: its minimum runtime, doubled with each lottery lost (R4)."""
    began = world.now if state.since is None else state.since
    return began + immunity(world, state)


def immunity(world: World, state: RunState) -> int:
    return world.policy.min_runtime_ms << min(state.lost, MAX_DOUBLINGS)


def notice_for(world: World, state: RunState) -> int:
    """How long before a draw its holder must know: its checkpoint, within bounds (R3)."""
    policy = world.policy
    checkpoint = state.shape.checkpoint if state.shape else None
    if checkpoint is None:
        return policy.min_notice_ms
    return max(policy.min_notice_ms, min(checkpoint, policy.max_notice_ms))


def certain_end(world: World, state: RunState) -> int:
    """When the Run's GPUs are free for certain: by maxDuration, or when nobody could pay any longer."""
    end = FOREVER if state.known_end is None else state.known_end
    payers = candidates(world, state)
    if payers:
        end = min(end, max(candidate.envelope.end for candidate in payers))
    return end


class Horizon:
    """What one domain could hold, for one kind of pod, as things stand."""

    def __init__(self, world: World, domain: Domain, demand: Demand, rank: Rank | None) -> None:
        self.domain = domain
        self._rank = rank  # who looks: provisional work yields to those promised before its own promise
        self.size = demand.size
        usable = domain.usable_nodes(demand)
        self.capacity = sum(
            max(0, domain.nodes[name].node.gpus - domain.nodes[name].foreign) // demand.size
            for name in usable
        )
        self.notices: list[tuple[int, int, int]] = []  # immune until, certain end, notice
        stays = list(self._stays(world, frozenset(usable)))
        self._times: list[list[int]] = []
        self._pods: list[list[int]] = []
        for level in LEVELS:
            times, pods = self._sweep(usable, stays, level)
            self._times.append(times)
            self._pods.append(pods)
        self.longest_notice = max((notice for _, _, notice in self.notices), default=0)
        self._profiles: dict[Level, list[tuple[int, int, int]]] = {}
        self._promised: dict[tuple[Rank | None, RunKey | None], Crowd] = {}

    def forget_promises(self) -> None:
        """A promise that counts on this domain changed; who stands there did not."""
        self._profiles.clear()
        self._promised.clear()

    def _stays(self, world: World, usable: frozenset[str]) -> Iterator[Stay]:
        names = {name: None for node in sorted(usable) for name in world.by_node.get(node, ())}
        for run, held in _by_run(world, names).items():
            state = world.runs.get(run)
            ends = _releases(world, state, self._rank)
            if state is not None and ends[0] != ALWAYS:
                self.notices.append((immune_until(world, state), ends[0], notice_for(world, state)))
            loose = {} if state is None or ends[0] == ALWAYS else self._loose(world, state)
            for one in held:
                yield from self._parts(one, usable, ends, loose)

    def _loose(self, world: World, state: RunState) -> dict[tuple[str, str], int]:
        """GPUs of its steps that lie wholly in this domain, by lease and node.

        A step that reaches into other domains is not counted, so no step is counted twice and what
        is counted here can be taken whatever other domains a slice has.
        """
        loose: dict[tuple[str, str], int] = {}
        for step in shrink_steps(world, state):
            if all(piece.node in self.domain.nodes for piece in step):
                for piece in step:
                    key = (piece.lease, piece.node)
                    loose[key] = loose.get(key, 0) + piece.mask.bit_count()
        return loose

    def _parts(
        self,
        held: Held,
        usable: frozenset[str],
        ends: tuple[int, int, int],
        loose: dict[tuple[str, str], int],
    ) -> Iterator[Stay]:
        lease = held.lease
        for node, mask in lease.slots:
            if node not in usable:
                continue
            gpus = mask.bit_count()
            if lease.role == "Opportunistic":
                gpus = (mask & ~self.domain.nodes[node].spare).bit_count()
                yield Stay(node, gpus, (ALWAYS, ALWAYS, ALWAYS))
            elif lease.role == "Spare":
                yield Stay(node, gpus, (ends[0], ALWAYS, ALWAYS))
            else:
                free = loose.get((lease.name, node), 0)
                yield Stay(node, free, (ends[0], ALWAYS, ALWAYS))
                yield Stay(node, gpus - free, ends)

    def _sweep(self, usable: list[str], stays: list[Stay], level: Level) -> tuple[list[int], list[int]]:
        """Pods that fit from each instant on, as stays are released one after another."""
        size = self.size
        room = {name: max(0, state.node.gpus - state.foreign) for name, state in self._nodes(usable)}
        for stay in stays:
            room[stay.node] -= stay.gpus
        pods = sum(max(0, free) // size for free in room.values())
        times, counts = [ALWAYS], [pods]
        for stay in sorted(stays, key=lambda stay: (stay.releases[level], stay.node)):
            at = stay.releases[level]
            if at >= FOREVER:
                break
            before = room[stay.node]
            after = room[stay.node] = before + stay.gpus
            pods += max(0, after) // size - max(0, before) // size
            if times[-1] == at:
                counts[-1] = pods
            elif pods != counts[-1]:
                times.append(at)
                counts.append(pods)
        return times, counts

    def _nodes(self, usable: list[str]) -> Iterator[tuple[str, NodeState]]:
        return ((name, self.domain.nodes[name]) for name in usable)

    def held_by(self, run: RunKey | None, rank: Rank | None) -> "Crowd":
        """Others' promises made before that rank (all, without one), with what each takes up here."""
        promises = self.domain.promises
        key = (rank, run if run in promises else None)
        known = self._promised.get(key)
        if known is None:
            known = self._promised[key] = Crowd(
                self._occupant(promise)
                for promise in promises.values()
                if promise.at is not None and promise.run != run and (rank is None or promise.rank < rank)
            )
        return known

    def _occupant(self, promise: Promise) -> "Occupant":
        assert promise.at is not None
        pods = -(-sum(gpus for name, gpus in promise.shares if name == self.domain.name) // self.size)
        end = FOREVER if promise.end is None else promise.end
        return Occupant(promise.at, end, min(end, promise.firm_until), pods)

    def most(self, level: Level, at: int) -> int:
        """Pods that could fit at that instant, promises apart: never fewer than with them."""
        return self._pods[level][bisect_right(self._times[level], at) - 1]

    def pods(self, level: Level, at: int, end: int, run: RunKey | None, rank: Rank | None) -> int:
        """Pods for somebody who comes at that instant and is certain to be gone at ``end``.

        Promises made before that begin in between must find as much free as without it (R6). What is
        promised to itself by then it may have already now: that takes nothing more from them (R7).
        """
        found = self.most(level, at)
        if not self.domain.promises:
            return found
        crowd = self.held_by(run, rank)
        found -= crowd.taken(level, at)
        own = self.domain.promises.get(run) if run is not None else None
        mine = None if own is None or own.at is None or rank is not None else self._occupant(own)
        for later in crowd.within(at, end):
            left = self.most(0, later) - crowd.taken(0, later)
            if mine is not None and mine.at <= later < mine.end:
                left = max(left, mine.pods)
            found = min(found, left)
        return found

    def profile(self, level: Level) -> list[tuple[int, int, int]]:
        """For a newcomer who may stay for ever: from when, until when, and how many pods it would find."""
        known = self._profiles.get(level)
        if known is None:
            found = self.instants(level, None, None)
            ends = [*found[1:], FOREVER]
            known = self._profiles[level] = [
                (at, end, self.pods(level, at, FOREVER, None, None))
                for at, end in zip(found, ends, strict=True)
            ]
        return known

    def first(self, level: Level, pods: int) -> int | None:
        """The first instant at which so many could fit, promises apart; None: never."""
        found = bisect_left(self._pods[level], pods)
        return self._times[level][found] if found < len(self._times[level]) else None

    def steps(self, level: Level, at: int) -> Iterator[tuple[int, int]]:
        """From that instant on, the pods that fit and from when, promises apart."""
        times, pods = self._times[level], self._pods[level]
        now = bisect_right(times, at) - 1
        yield at, pods[now]
        yield from zip(times[now + 1 :], pods[now + 1 :], strict=True)

    def instants(self, level: Level, run: RunKey | None, rank: Rank | None) -> list[int]:
        """Instants at which more may fit than before, in order."""
        found = set(self._times[level])
        for occupant in self.held_by(run, rank).occupants:
            found.update((occupant.at, occupant.firm_until if level == LOTTERY else occupant.end))
        found.discard(FOREVER)
        return sorted(found)

    def notice(self, at: int) -> int:
        """How much notice those need who could be drawn here at that instant."""
        return max([notice for immune, end, notice in self.notices if immune <= at < end], default=0)

    def noticed(self, now: int, at: int) -> bool:
        """Whether all who could be drawn here at that instant have had notice, if told now."""
        return at >= now + self.longest_notice or at >= now + self.notice(at)


class Occupant(msgspec.Struct, frozen=True):
    """A promise as it counts in one domain: from when, until when, and how many pods.

    It counts in full: whoever gives way to it might have been gone later anyway.
    """

    at: int
    end: int
    firm_until: int
    pods: int


class Crowd:
    """Promises that count in one domain together: how many pods they take up at any instant."""

    __slots__ = ("_begun", "_ended", "_firm", "_starts", "occupants")

    def __init__(self, occupants: Iterable[Occupant]) -> None:
        self.occupants = list(occupants)
        self._starts = sorted({one.at for one in self.occupants})
        self._begun = Flow((one.at, one.pods) for one in self.occupants)
        self._ended = Flow((max(one.at, one.end), one.pods) for one in self.occupants)
        self._firm = Flow((max(one.at, one.firm_until), one.pods) for one in self.occupants)

    def taken(self, level: Level, at: int) -> int:
        """A lottery may draw those that are no longer firm."""
        gone = self._firm if level == LOTTERY else self._ended
        return self._begun.until(at) - gone.until(at)

    def within(self, after: int, before: int) -> list[int]:
        """Instants in between at which one of them begins."""
        return self._starts[bisect_right(self._starts, after) : bisect_left(self._starts, before)]


def _by_run(world: World, names: dict[str, None]) -> dict[tuple[str, str], list[Held]]:
    by_run: dict[tuple[str, str], list[Held]] = {}
    for name in names:
        held = world.held[name]
        by_run.setdefault(held.lease.run, []).append(held)
    return dict(sorted(by_run.items()))


def _releases(world: World, state: RunState | None, rank: Rank | None) -> tuple[int, int, int]:
    if state is None or (rank is not None and state.yields_to(rank)):
        return (ALWAYS, ALWAYS, ALWAYS)
    end = certain_end(world, state)
    return (end, end, min(end, immune_until(world, state)))


def horizon(world: World, domain: Domain, demand: Demand, rank: Rank | None) -> Horizon:
    """The domain's horizon as somebody of that rank sees it, remembered until something there changes."""
    key = (demand, rank if world.provisional else None)
    known = domain.horizons.get(key)
    if known is None:
        known = domain.horizons[key] = Horizon(world, domain, demand, rank)
    return known


def base_demand(state: RunState, size: int) -> Demand:
    """A pod as horizons see it: where it may stand, without CPU and memory."""
    assert state.shape is not None
    return Demand(size=size, tolerations=state.shape.tolerations, node_selector=state.shape.node_selector)


def is_kept(world: World, domain: Domain, promise: Promise) -> bool:
    """Whether the domain can still keep its share of a promise, in pods of that promise's size."""
    if promise.at is None:
        return True
    one = horizon(world, domain, base_demand(world.runs[promise.run], promise.pod_size), promise.rank)
    at, end = max(promise.at, world.now), FOREVER if promise.end is None else promise.end
    gpus = sum(share for name, share in promise.shares if name == domain.name)
    return one.pods(promise.level, at, end, promise.run, promise.rank) * promise.pod_size >= gpus


def all_kept(world: World, domain: Domain, state: RunState) -> bool:
    """Whether the domain keeps all promises that hold against this Run, now that it stands there (R6)."""
    rank = state.standing(world.now)
    return all(
        is_kept(world, domain, promise)
        for promise in domain.promises.values()
        if promise.run != state.key and (rank is None or promise.rank < rank)
    )
