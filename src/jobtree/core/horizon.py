"""The horizon of a domain: how many pods it could hold at any coming instant (R2–R4).

There are three answers, by what may be taken: nothing (level 0: free by known ends), spares and steps of
malleable Runs too (level 1), and whatever is not immune to the lottery (level 2). Unpaid work stands in
nobody's way, provisional work not in that of promises made before it. Promises count by number, wherever
the pods will sit: so they do not break when a lottery falls another way.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from itertools import accumulate
from typing import NamedTuple

import msgspec

from jobtree.core.books import FOREVER
from jobtree.core.domain import Domain
from jobtree.core.flow import Flow
from jobtree.core.holdings import Held
from jobtree.core.lease import RunKey
from jobtree.core.payers import last_closing
from jobtree.core.promise import LOTTERY, Level, Promise, Rank
from jobtree.core.reach import reach_of
from jobtree.core.room import Demand, NodeState, Selector
from jobtree.core.runs import RunState
from jobtree.core.steps import shrink_steps
from jobtree.core.wholes import Occupant, Rooms, Wholes
from jobtree.core.world import World

ALWAYS = -1  # released whenever it is asked for
LEVELS: tuple[Level, ...] = (0, 1, 2)
MAX_DOUBLINGS = 4


Sweep = tuple[list[int], list[int]]


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
    closing = last_closing(world, state)
    return end if closing is None else min(end, closing)


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
        key = (*usable, first_to_yield(world, rank))
        if key not in domain.stands:
            domain.stands[key] = (list(self._stays(world, frozenset(usable))), self.notices)
        stays, self.notices = domain.stands[key]
        self._usable, self._stands = usable, stays
        self._swept: list[Sweep | None] = [None for _ in LEVELS]
        self.longest_notice = max((notice for _, _, notice in self.notices), default=0)
        self._notices: tuple[list[int], list[int]] | None = None
        self.promised = self._changes = 0  # which of all states of its promises this is
        self._kept: Kept | None = None
        self._profiles: dict[Level, Profile] = {}
        self._promised: Promised = {}

    def forget_promises(self) -> None:
        """A promise that counts on this domain is about to change; who stands there is not."""
        if self._profiles or self._promised:
            self._kept = (dict(self.domain.promises), self.promised, self._profiles, self._promised)
            self._profiles, self._promised = {}, {}
        self._changes += 1
        self.promised = self._changes

    def recall_promises(self) -> None:
        """It changed. What a plan tried, took back and then carried out is as it was: so are the answers."""
        if self._kept is not None and self._kept[0] == self.domain.promises:
            _, self.promised, self._profiles, self._promised = self._kept

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
                if free:
                    yield Stay(node, free, (ends[0], ALWAYS, ALWAYS))
                yield Stay(node, gpus - free, ends)

    def _at(self, level: Level) -> Sweep:
        """Instants, and the pods that fit from each on; counted when the level is first asked for."""
        known = self._swept[level]
        if known is None:
            known = self._swept[level] = self._sweep(level)
        return known

    def _sweep(self, level: Level) -> Sweep:
        """Pods that fit from each instant on, as stays are released one after another."""
        size, stays = self.size, self._stands
        nodes = self._nodes(self._usable)
        room = {name: max(0, state.node.gpus - state.foreign) for name, state in nodes}
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
            occupants = (
                self._occupant(promise)
                for promise in promises.values()
                if promise.at is not None and promise.run != run and (rank is None or promise.rank < rank)
            )
            known = self._promised[key] = Crowd(occupants, partial(self.most, 0))
            if self._all_usable and known.largest > self.size:
                known.wholes = Wholes(self.size, self.rooms, known.occupants)
        return known

    @cached_property
    def rooms(self) -> Rooms:
        """GPUs on each usable node, as stays are released."""
        free = {name: max(0, state.node.gpus - state.foreign) for name, state in self._nodes(self._usable)}
        for stay in self._stands:
            free[stay.node] -= stay.gpus
        return Rooms(free, [(stay.node, stay.gpus, stay.releases) for stay in self._stands])

    @cached_property
    def _all_usable(self) -> bool:
        """Whether larger pods find no other nodes here than these do."""
        return len(self._usable) == sum(state.offers for state in self.domain.nodes.values())

    def _occupant(self, promise: Promise) -> "Occupant":
        assert promise.at is not None
        gpus = sum(share for name, share in promise.shares if name == self.domain.name)
        pods = -(-gpus // self.size)
        end = FOREVER if promise.end is None else promise.end
        firm = min(end, promise.firm_until)
        return Occupant(promise.at, end, firm, pods, gpus, promise.pod_size)

    def most(self, level: Level, at: int) -> int:
        """Pods that could fit at that instant, promises apart: never fewer than with them."""
        times, pods = self._at(level)
        return pods[bisect_right(times, at) - 1]

    def pods(self, level: Level, at: int, end: int, run: RunKey | None, rank: Rank | None) -> int:
        """Pods for somebody who comes at that instant and is certain to be gone at ``end``.

        Promises made before that begin in between must find as much free as without it (R6). What is
        promised to itself by then it may have already now: that takes nothing more from them (R7).
        """
        found = self.most(level, at)
        if not self.domain.promises:
            return found
        crowd = self.held_by(run, rank)
        own = self.domain.promises.get(run) if run is not None and rank is None else None
        mine = None if own is None or own.at is None else self._occupant(own)
        most = min(found - crowd.taken(level, at), crowd.left(crowd.within(at, end), mine))
        return most if crowd.wholes is None or most <= 0 else crowd.wholes.pods(level, at, end, most)

    def profile(self, level: Level) -> "Profile":
        """The same for a newcomer who may stay for ever, at all instants."""
        known = self._profiles.get(level)
        if known is None:
            starts, present = self._at(level)
            pods = present
            if self.domain.promises:
                crowd, starts = self.held_by(None, None), self.instants(level, None, None)
                present = [self.most(level, at) - crowd.taken(level, at) for at in starts]
                pods = [min(have, crowd.lowest_after(at)) for at, have in zip(starts, present, strict=True)]
                if crowd.wholes is not None:
                    stays = zip(starts, pods, strict=True)
                    pods = [crowd.wholes.pods(level, at, FOREVER, most) for at, most in stays]
            known = self._profiles[level] = Profile(starts, [*starts[1:], FOREVER], present, pods)
        return known

    def first(self, level: Level, pods: int) -> int | None:
        """The first instant at which so many could fit, promises apart; None: never."""
        times, counts = self._at(level)
        found = bisect_left(counts, pods)
        return times[found] if found < len(times) else None

    def steps(self, level: Level, at: int) -> Iterator[tuple[int, int]]:
        """From that instant on, the pods that fit and from when, promises apart."""
        times, pods = self._at(level)
        now = bisect_right(times, at) - 1
        yield at, pods[now]
        yield from zip(times[now + 1 :], pods[now + 1 :], strict=True)

    def instants(self, level: Level, run: RunKey | None, rank: Rank | None) -> list[int]:
        """Instants at which more may fit than before, in order."""
        found = set(self._at(level)[0])
        for occupant in self.held_by(run, rank).occupants:
            found.update((occupant.at, occupant.firm_until if level == LOTTERY else occupant.end))
        found.discard(FOREVER)
        return sorted(found)

    def notice(self, at: int) -> int:
        """How much notice those need who could be drawn here at that instant."""
        if self._notices is None:
            instants = sorted({instant for immune, end, _ in self.notices for instant in (immune, end)})
            needed = [
                max([notice for immune, end, notice in self.notices if immune <= instant < end], default=0)
                for instant in instants
            ]
            self._notices = (instants, [0, *needed])
        instants, needed = self._notices
        return needed[bisect_right(instants, at)]

    def noticed(self, now: int, at: int) -> bool:
        """Whether all who could be drawn here at that instant have had notice, if told now."""
        return at >= now + self.longest_notice or at >= now + self.notice(at)


class Profile(NamedTuple):
    """What a newcomer would find, behind all promises, from the beginning to the end of time."""

    starts: list[int]  # from when
    ends: list[int]  # until when
    present: list[int]  # pods that would fit just then
    pods: list[int]  # pods that could stay for ever

    def first(self, pods: int, *, staying: bool) -> int | None:
        """The first instant at which it would find so many; None: never."""
        found = zip(self.starts, self.pods if staying else self.present, strict=True)
        return next((start for start, have in found if have >= pods), None)

    def at(self, instant: int) -> int:
        return self.pods[bisect_right(self.starts, instant) - 1]

    def since(self, instant: int) -> "zip[tuple[int, int, int]]":
        """From the part with that instant on."""
        now = bisect_right(self.starts, instant) - 1
        return zip(self.starts[now:], self.ends[now:], self.pods[now:], strict=True)


class Crowd:
    """Promises that count in one domain together: how many pods they take up at any instant.

    ``most`` says what fits without them, so that what they leave when each begins is known once and for all.
    """

    __slots__ = (
        "_begun",
        "_ended",
        "_firm",
        "_lefts",
        "_lowest",
        "_starts",
        "largest",
        "occupants",
        "wholes",
    )

    def __init__(self, occupants: Iterable[Occupant], most: Callable[[int], int]) -> None:
        self.occupants = list(occupants)
        self.largest = max((one.size for one in self.occupants), default=0)
        self.wholes: Wholes | None = None  # where there are larger pods among them
        self._starts = sorted({one.at for one in self.occupants})
        self._begun = Flow((one.at, one.pods) for one in self.occupants)
        self._ended = Flow((max(one.at, one.end), one.pods) for one in self.occupants)
        self._firm = Flow((max(one.at, one.firm_until), one.pods) for one in self.occupants)
        self._lefts = [most(start) - self.taken(0, start) for start in self._starts]
        self._lowest = [*accumulate(reversed(self._lefts), min, initial=FOREVER)][::-1]

    def taken(self, level: Level, at: int) -> int:
        """A lottery may draw those that are no longer firm."""
        gone = self._firm if level == LOTTERY else self._ended
        return self._begun.until(at) - gone.until(at)

    def within(self, after: int, before: int) -> slice:
        """Those of its instants in between at which one of them begins."""
        return slice(bisect_right(self._starts, after), bisect_left(self._starts, before))

    def lowest_after(self, at: int) -> int:
        """What they leave at the least when any of them begins later."""
        return self._lowest[bisect_right(self._starts, at)]

    def left(self, part: slice, mine: Occupant | None) -> int:
        """What it leaves at the least at these instants; who has a promise of its own finds that at least."""
        if mine is None:
            return min(self._lefts[part], default=FOREVER)
        pairs = zip(self._starts[part], self._lefts[part], strict=True)
        return min(
            (max(left, mine.pods) if mine.at <= at < mine.end else left for at, left in pairs),
            default=FOREVER,
        )


Promised = dict[tuple[Rank | None, RunKey | None], Crowd]
Kept = tuple[dict[RunKey, Promise], int, dict[Level, Profile], Promised]  # answers about earlier promises


def _by_run(world: World, names: dict[str, None]) -> dict[tuple[str, str], list[Held]]:
    by_run: dict[tuple[str, str], list[Held]] = {}
    for name in names:
        held = world.held[name]
        by_run.setdefault(held.lease.run, []).append(held)
    return dict(sorted(by_run.items()))


def _releases(world: World, state: RunState | None, rank: Rank | None) -> tuple[int, int, int]:
    if state is None or (rank is not None and state.yields_to(rank)):
        return (ALWAYS, ALWAYS, ALWAYS)
    end, lapse = certain_end(world, state), state.lapses_at
    if lapse is not None:
        end = min(end, lapse)
    return (end, end, min(end, immune_until(world, state)))


def horizon(world: World, domain: Domain, demand: Demand, rank: Rank | None) -> Horizon:
    """The domain's horizon as somebody of that rank sees it, remembered until something there changes."""
    key = (demand, first_to_yield(world, rank))
    known = domain.horizons.get(key)
    if known is None:
        known = domain.horizons[key] = Horizon(world, domain, demand, rank)
    return known


def first_to_yield(world: World, rank: Rank | None) -> int | None:
    """When the oldest provisional work began that yields to that rank: all younger ones do too (R6)."""
    if rank is None or not world.provisional:
        return None
    began = (world.runs[key].since for key in world.provisional)
    return min((since for since in began if since is not None and rank[0] <= since), default=None)


def base_demand(state: RunState, size: int, paid_on: Selector = ()) -> Demand:
    """A pod as horizons see it: where it may stand and is paid for, without CPU and memory."""
    assert state.shape is not None
    return Demand(
        size=size,
        tolerations=state.shape.tolerations,
        node_selector=state.shape.node_selector,
        paid_on=paid_on,
    )


def is_kept(world: World, domain: Domain, promise: Promise) -> bool:
    """Whether the domain can still keep its share of a promise, in pods of that promise's size."""
    if promise.at is None:
        return True
    demand = base_demand(world.runs[promise.run], promise.pod_size, reach_of(world, promise))
    one = horizon(world, domain, demand, promise.rank)
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
