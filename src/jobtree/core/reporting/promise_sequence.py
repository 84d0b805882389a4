"""Promises that are due one after the other, and what each takes once those before it have started (R12, X9).

What an earlier promise takes is gone for a later one: free GPUs, spares, steps, tickets. So the promises of
domains that share promises are carried out in the order in which they are due, each in every outcome of those
before it. An outcome is who is stopped, what is taken, where the started Runs are and who is immune, with its
probability. A few outcomes are followed exactly, of many a sample. Nothing is drawn and no nonce is used.

A Run that is stopped in an outcome cannot be stopped there again, so the probabilities of a Run to be stopped
by each of these promises add up to that of being stopped by any. A running Run with a ticket is told at least
0.001, also if no lottery seems to be needed: a node may be lost before the draw.
"""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple, TypeVar

import msgspec

from jobtree.core.accounts.envelope_accounts import FOREVER
from jobtree.core.availability.occupancy import domain_occupancy
from jobtree.core.lottery.kill_probability import SAMPLES, LoserShares, kill_probabilities, loser_shares
from jobtree.core.lottery.resolution import Case, CaseSolver, NodeRoom, Ticket
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import LOTTERY, Promise
from jobtree.core.model.versioned_cache import Version, VersionedCache
from jobtree.core.operations.victims import NodeGpus, PromiseCase
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.domain import Domain
from jobtree.core.supply.packing import choose_nodes
from jobtree.core.world.world import World

MAX_STARTS = 32  # of the coming starts, so many are carried out before a later one
MAX_OUTCOMES = 128  # that are followed after the first lottery, and half as many after each further one
MIN_OUTCOMES = 8  # that are followed in any case
MIN_SAMPLES = 24  # of the lottery in one of many outcomes
CARRIED_SAMPLES = 256  # of a lottery, to find the outcomes that are followed
WHOLE, NEVER = Fraction(1), Fraction(0)
HALF = Fraction(1, 2)

Item = TypeVar("Item")
cached_kill_probabilities = lru_cache(maxsize=4_096)(kill_probabilities)
cached_loser_shares = lru_cache(maxsize=4_096)(loser_shares)
"""Computed again only when the case changes."""


class Arrival(NamedTuple):
    """A Run that has started by then: its GPUs by node, until when it is immune, and when it ends."""

    run: str  # UID
    gpus: NodeGpus
    immune_until: int
    end: int


class Immunity(NamedTuple):
    """A Run that is immune until then; stages that start together draw in the lottery that gives it."""

    run: str  # UID
    until: int
    lottery: str  # name of the Reservation


class StartsOutcome(NamedTuple):
    """What the starts so far have changed."""

    gone: frozenset[str] = frozenset()  # UIDs of Runs that were stopped
    taken: frozenset[str] = frozenset()  # keys of spares and steps
    confirmed: frozenset[str] = frozenset()  # UIDs of provisional Runs that got what they were promised
    arrivals: tuple[Arrival, ...] = ()
    immunities: frozenset[Immunity] = frozenset()


class StartForecast(msgspec.Struct, frozen=True, eq=False):
    """What one promise takes, behind those that are due before it."""

    promise_case: PromiseCase  # as if no other promise were due before
    case: Case  # in the likeliest outcome of those; in one with a lottery, if there is any
    taken: Sequence[int] | None  # indexes of its takings that suffice without a lottery, if there are such
    drawable: tuple[RunState, ...]  # who has a ticket if there is a lottery
    odds: dict[str, int]  # probabilities to be stopped, in thousandths, by UID: of all stages of a gang


class Branch(NamedTuple):
    """The case of one start in one outcome of those before it."""

    outcome: StartsOutcome
    share: Fraction
    case: Case
    taken: Sequence[int] | None  # as in the forecast

    @property
    def holds_lottery(self) -> bool:
        return self.taken is None and bool(self.case.tickets)


class DueStart:
    """The start of one promise, to be carried out in the outcomes of those before it."""

    def __init__(self, world: World, run: RunState, promise: Promise) -> None:
        self.run, self.promise = run, promise
        self.uid = world.run_graph.members(run)[0].uid
        self.promise_case = PromiseCase(world, run, promise)
        self.at = self.promise_case.at
        victims = self.promise_case.victims
        self._stopping = {
            victim.taking.key
            for victim in victims
            if victim.taking.kind in ("Reclaim", "Recall") and not victim.step
        }

    def branch(self, outcome: StartsOutcome, share: Fraction) -> Branch:
        case = self.case_in(outcome)
        decision = CaseSolver(msgspec.structs.replace(case, tickets=())).decide(iter(()))
        return Branch(outcome, share, case, decision.takings if decision.packs else None)

    def case_in(self, outcome: StartsOutcome) -> Case:
        """Returns the case that is left after an outcome."""
        case = self.promise_case.case
        if outcome == StartsOutcome():
            return case
        immune = {
            immunity.run
            for immunity in outcome.immunities
            if immunity.until > self.at and immunity.lottery != self.promise.name
        }
        present = [arrival for arrival in outcome.arrivals if arrival.end > self.at]
        freed = self._freed_in(outcome, present)
        tickets = {
            ticket.run: dict(ticket.gpus)
            for ticket in case.tickets
            if ticket.run not in outcome.gone and ticket.run not in immune
        }
        for arrival in present if self.promise.disruption == LOTTERY else ():
            if arrival.immune_until <= self.at and arrival.run not in immune:
                tickets.setdefault(arrival.run, {}).update(arrival.gpus)
        return msgspec.structs.replace(
            case,
            nodes=tuple(
                NodeRoom(room.node, room.domain, max(0, room.free + freed.get(room.node, 0)))
                for room in case.nodes
            ),
            takings=tuple(
                taking
                for taking in case.takings
                if taking.run not in outcome.gone
                and taking.key not in outcome.taken
                and not (taking.kind == "Reclaim" and taking.run in outcome.confirmed)
            ),
            tickets=tuple(Ticket(uid, tuple(sorted(gpus.items()))) for uid, gpus in sorted(tickets.items())),
        )

    def _freed_in(self, outcome: StartsOutcome, present: Iterable[Arrival]) -> dict[str, int]:
        """Returns the GPUs by node that an outcome frees, less those that started Runs use."""
        freed: dict[str, int] = {}
        held = self.promise_case.held
        parts = [gpus for uid, gpus in held.items() if uid in outcome.gone]
        parts += [
            taking.gpus
            for taking in self.promise_case.case.takings
            if taking.key in outcome.taken and taking.run not in outcome.gone
        ]
        for gpus in parts:
            add_gpus(freed, gpus, 1)
        for arrival in present:
            add_gpus(freed, arrival.gpus, -1)
        return freed

    def reclaimed(self, branch: Branch) -> set[str]:
        """Returns the UIDs of the Runs that end as a whole before a lottery."""
        takings = branch.case.takings
        indexes = range(len(takings)) if branch.taken is None else branch.taken
        return {takings[index].run for index in indexes if takings[index].key in self._stopping}

    def takes_place(self, branch: Branch) -> bool:
        """Whether the Run starts: a provisional Run only if it was stopped, else it is confirmed."""
        return self.run.waiting or (self.run.provisional and self.uid in branch.outcome.gone)

    def decided(
        self, branches: Iterable[Branch]
    ) -> Iterator[tuple[tuple[Branch, tuple[str, ...] | None], Fraction]]:
        """Yields each branch with each set of losers, and the probability; None: the gang does not start."""
        for branch in branches:
            shares = self._loser_sets(branch)
            if not shares:
                yield (branch, None), branch.share
            for losers, share in shares.items():
                yield (branch, losers), branch.share * share

    def _loser_sets(self, branch: Branch) -> LoserShares:
        if not self.takes_place(branch):
            return {}
        if branch.taken is not None:
            return {(): WHOLE}
        samples = max(MIN_SAMPLES, int(CARRIED_SAMPLES * branch.share))
        return cached_loser_shares(branch.case, samples) if branch.holds_lottery else {}

    def carry_out(self, branch: Branch, losers: Sequence[str]) -> StartsOutcome:
        """Returns the outcome after this start if these Runs lose."""
        outcome, case = branch.outcome, branch.case
        index_by_uid = {ticket.run: index for index, ticket in enumerate(case.tickets)}
        decision = CaseSolver(case).decide(iter([index_by_uid[uid] for uid in losers]))
        takings = [case.takings[index] for index in decision.takings]
        stopped = [*losers, *(taking.run for taking in takings if taking.key in self._stopping)]
        freed: dict[str, int] = {}
        for taking in takings:
            if taking.run not in losers:
                add_gpus(freed, taking.gpus, 1)
        for uid in losers:
            add_gpus(freed, self._gpus_of(outcome, uid), 1)
        free = {room.node: room.free + freed.get(room.node, 0) for room in case.nodes}
        survivors = (
            Immunity(ticket.run, self.at + self.promise_case.world.policy.peace_ms, self.promise.name)
            for ticket in (case.tickets if losers else ())
            if ticket.run not in losers
        )
        arrival = Arrival(self.uid, self._slots(case, free), self.promise.immune_until, self._end)
        return StartsOutcome(
            gone=outcome.gone.union(stopped),
            taken=outcome.taken.union(taking.key for taking in takings if taking.key not in self._stopping),
            confirmed=outcome.confirmed,
            arrivals=(*(one for one in outcome.arrivals if one.run not in losers), arrival),
            immunities=frozenset((*(one for one in outcome.immunities if one.until > self.at), *survivors)),
        )

    @property
    def _end(self) -> int:
        return FOREVER if self.promise.end is None else self.promise.end

    def _gpus_of(self, outcome: StartsOutcome, uid: str) -> NodeGpus:
        """Returns the GPUs of a loser by node, those taken from it before not counted."""
        gpus = dict(self.promise_case.held.get(uid, ()))
        for taking in self.promise_case.case.takings:
            if taking.run == uid and taking.key in outcome.taken:
                add_gpus(gpus, taking.gpus, -1)
        for arrival in outcome.arrivals:
            if arrival.run == uid:
                add_gpus(gpus, arrival.gpus, 1)
        return tuple(gpus.items())

    def _slots(self, case: Case, free: dict[str, int]) -> NodeGpus:
        """Returns the nodes that the gang takes, as packing chooses them, with their GPUs."""
        size, nodes = case.pod_size, {}
        for domain, pods in case.pods:
            names_by_free: dict[int, list[str]] = {}
            for room in case.nodes:
                if room.domain == domain and free[room.node] >= size:
                    names_by_free.setdefault(free[room.node], []).append(room.node)
            choices = [(gpus, gpus // size, sorted(names)) for gpus, names in sorted(names_by_free.items())]
            for name, count in choose_nodes(choices, pods, size) or ():
                nodes[name] = count * size
        return tuple(sorted(nodes.items()))


def add_gpus(total: dict[str, int], gpus: NodeGpus, sign: int) -> None:
    for node, count in gpus:
        total[node] = total.get(node, 0) + sign * count


class PromiseSequence:
    """The promises of domains that share promises, carried out in the order in which they are due."""

    def __init__(self, world: World, due: Sequence[tuple[RunState, Promise]]) -> None:
        self._world, self._due = world, due
        self._position = {run.key: number for number, (run, _) in enumerate(due)}
        self._outcomes: list[tuple[StartsOutcome, Fraction]] = [(StartsOutcome(), WHOLE)]
        self._branches: dict[int, tuple[DueStart, list[Branch]]] = {}  # by position
        self._forecasts: dict[RunKey, StartForecast] = {}
        self._carried_out = self._lotteries = 0

    def forecast(self, run_key: RunKey) -> StartForecast:
        """Returns the forecast of the start of a Run; of those before it, at most ``MAX_STARTS`` count."""
        position = self._position[run_key]
        while self._carried_out < min(position, MAX_STARTS):
            self._carry_out_next()
        if run_key not in self._forecasts:
            self._forecasts[run_key] = self._forecast(*self._branches_of(position))
        return self._forecasts[run_key]

    def _branches_of(self, position: int) -> tuple[DueStart, list[Branch]]:
        """Returns a start, and its case in each outcome of those that are carried out."""
        if position not in self._branches:
            start = DueStart(self._world, *self._due[position])
            self._branches[position] = (
                start,
                [start.branch(outcome, share) for outcome, share in self._outcomes],
            )
        return self._branches[position]

    def _carry_out_next(self) -> None:
        run, promise = self._due[self._carried_out]
        start, branches = self._branches_of(self._carried_out)
        if run.key not in self._forecasts:
            self._forecasts[run.key] = self._forecast(start, branches)
        most = max(MIN_OUTCOMES, MAX_OUTCOMES >> self._lotteries)
        self._lotteries += any(branch.holds_lottery and start.takes_place(branch) for branch in branches)
        after: dict[StartsOutcome, Fraction] = {}
        for (branch, losers), share in evenly_sampled(start.decided(branches), most):
            if losers is not None:
                then = start.carry_out(branch, losers)
            elif run.provisional and start.uid not in branch.outcome.gone:
                then = confirmed(branch.outcome, Immunity(start.uid, promise.immune_until, promise.name))
            else:
                then = branch.outcome
            after[then] = after.get(then, 0) + share
        self._outcomes = [*after.items()]
        del self._branches[self._carried_out]
        self._carried_out += 1

    def _forecast(self, start: DueStart, branches: Sequence[Branch]) -> StartForecast:
        odds: dict[str, Fraction] = {}
        for branch in branches:
            odds.update({ticket.run: odds.get(ticket.run, NEVER) for ticket in branch.case.tickets})
            if not start.takes_place(branch):
                continue
            for uid in start.reclaimed(branch):
                odds[uid] = odds.get(uid, NEVER) + branch.share
            for uid, chance in chances(branch).items():
                odds[uid] += branch.share * chance
        shown = max(branches, key=lambda branch: (branch.holds_lottery, branch.share))
        running = start.promise_case.by_ticket
        told = {
            uid: min(1000, max(1, round(chance * 1000)))
            for uid, chance in odds.items()
            if chance or uid in running
        }
        tickets = {
            ticket.run for branch in branches if branch.holds_lottery for ticket in branch.case.tickets
        }
        gangs = self._gangs(start)
        drawable = [run for uid, gang in gangs.items() if uid in tickets & told.keys() for run in gang]
        odds_of_all = {run.uid: told[uid] for uid, gang in gangs.items() if uid in told for run in gang}
        return StartForecast(start.promise_case, shown.case, shown.taken, tuple(drawable), odds_of_all)

    def _gangs(self, start: DueStart) -> dict[str, list[RunState]]:
        """Returns the Runs that use the slice, now or then, by the UID of their tickets, with their gangs."""
        run_graph = self._world.run_graph
        started = [run for run, _ in self._due[: self._carried_out]]
        gangs = [run_graph.members(run) for run in (*start.promise_case.holders, *started)]
        return {gang[0].uid: gang for gang in gangs}


def chances(branch: Branch) -> dict[str, Fraction]:
    """Returns the probability that each Run loses the lottery of a branch; empty if none is needed."""
    if not branch.holds_lottery:
        return {}
    if branch.share == WHOLE:
        return {uid: Fraction(odds, 1000) for uid, odds in cached_kill_probabilities(branch.case).items()}
    chance: dict[str, Fraction] = {}
    samples = max(MIN_SAMPLES, int(SAMPLES * branch.share))
    for losers, share in cached_loser_shares(branch.case, samples).items():
        for uid in losers:
            chance[uid] = chance.get(uid, NEVER) + share
    return chance


def confirmed(outcome: StartsOutcome, immunity: Immunity) -> StartsOutcome:
    """Returns the outcome after a provisional Run, if it still runs, got what it was promised."""
    if immunity.run in outcome.gone:
        return outcome
    return outcome._replace(
        confirmed=outcome.confirmed | {immunity.run}, immunities=outcome.immunities | {immunity}
    )


def evenly_sampled(weighted: Iterable[tuple[Item, Fraction]], most: int) -> Sequence[tuple[Item, Fraction]]:
    """Returns at most so many of the items: if there are more, a sample at equal steps of their weight."""
    items = list(weighted)
    if len(items) <= most:
        return items
    sample, passed = [], Fraction(0)
    step = sum((share for _, share in items), start=passed) / most
    for item, share in items:
        first, passed = passed, passed + share
        steps = int(passed / step + HALF) - int(first / step + HALF)
        if steps:
            sample.append((item, steps * step))
    return sample


SEQUENCES = VersionedCache[tuple[Version | int, ...], PromiseSequence]()


SPANNED_DOMAINS = VersionedCache[None, frozenset[str]]()


def start_forecast(world: World, run: RunState, promise: Promise) -> StartForecast:
    """Returns the forecast of a promise with a date, cached until something changes in its domains."""
    domains, due = domains_that_meet(world, promise)
    if not domains:
        return PromiseSequence(world, [(run, promise)]).forecast(run.key)
    is_overdue = any(promise.at is not None and promise.at <= world.now for _, promise in due)
    key: tuple[Version | int, ...] = (
        world.now if is_overdue else 0,
        *(domain.occupancy_version for domain in domains),
        *(domain.feasibility_version for domain in domains),
    )
    cached = SEQUENCES.at(domains[0].occupancy_version)
    sequence = cached.get(key)
    if sequence is None:
        sequence = cached[key] = PromiseSequence(world, due)
    return sequence.forecast(run.key)


def domains_that_meet(world: World, promise: Promise) -> tuple[list[Domain], list[tuple[RunState, Promise]]]:
    """Returns the domains of a promise and all that promises or Runs join with them, and their promises.

    Runs join domains only if not more promises are due there than are carried out.
    """
    domains = joined_domains(world, promise, by_runs=True)
    due = due_promises(world, domains)
    if len(due) > MAX_STARTS:
        domains = joined_domains(world, promise, by_runs=False)
        due = due_promises(world, domains)
    return domains, due


def joined_domains(world: World, promise: Promise, *, by_runs: bool) -> list[Domain]:
    """Returns the domains of a promise and all that others with shares in several join with them, by name."""
    flavor = world.fleet.flavor(promise.flavor)
    joined = {domain.name: domain for domain in flavor.domains_of_slice(promise.domain_gpus)}
    unseen = list(joined.values())
    while unseen:
        domain = unseen.pop()
        names = {name for other in domain.promises.values() for name, _ in other.domain_gpus}
        if by_runs:
            promised = [world.runs[run_key] for run_key in domain.promises]
            names |= spanned_domains(world, domain) | domains_of(world, promised)
        for name in sorted(names):
            if name in flavor.domains and name not in joined:
                joined[name] = flavor.domains[name]
                unseen.append(flavor.domains[name])
    return [joined[name] for name in sorted(joined)]


def spanned_domains(world: World, domain: Domain) -> frozenset[str]:
    """Returns the domains in which the Runs of a domain have leases, cached until one of them changes."""
    cached = SPANNED_DOMAINS.at(domain.occupancy_version)
    names = cached.get(None)
    if names is None:
        run_keys = {lease.posted.lease.run_key for lease in domain_occupancy(world, domain).leases}
        runs = [world.runs[run_key] for run_key in run_keys & world.runs.keys()]
        names = cached[None] = domains_of(world, runs)
    return names


def domains_of(world: World, runs: Iterable[RunState]) -> frozenset[str]:
    """Returns the domains in which these Runs have leases."""
    domain_by_node = world.fleet.domain_by_node
    nodes = {node for run in runs for lease in run.leases.values() for node, _ in lease.slots}
    return frozenset(domain_by_node[node].name for node in nodes if node in domain_by_node)


def due_promises(world: World, domains: Iterable[Domain]) -> list[tuple[RunState, Promise]]:
    """Returns the promises of these domains in the order in which they are due."""
    promises = {key: promise for domain in domains for key, promise in domain.promises.items()}
    dated = [(promise.at, promise) for promise in promises.values() if promise.at is not None]
    dated.sort(key=lambda entry: (entry[0], entry[1].precedence))
    return [(world.runs[promise.run_key], promise) for _, promise in dated]
