"""The coming hours, played through several times in counts of GPUs per domain and envelope.

In each course every Run in the way ends at another part of its distribution (``lifetimes``), and waiting Runs
start one behind the other, where and as soon as they fit and can be paid, each in one of the
``MOST_DOMAINS`` likeliest domains. What they take up then is not there for those behind them.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from jobtree.api.schema.quantities import MILLI
from jobtree.core.accounts.envelope_accounts import FOREVER, EnvelopeState
from jobtree.core.availability.availability_profile import placement_demand
from jobtree.core.availability.payer_placement import pays_in
from jobtree.core.availability.step_functions import (
    OccupiedInterval,
    StepFunction,
    change_instants,
    first_after_intervals,
    first_between_intervals,
    gpus_over_time,
    pods_over_time,
)
from jobtree.core.model.gpu_lease import EnvelopeKey, RunKey
from jobtree.core.model.promise import Promise
from jobtree.core.runs.notice import min_provisional_ms
from jobtree.core.runs.run_state import RunState
from jobtree.core.start_forecast.run_end_forecast import SAMPLE_PATHS, RunEndForecast
from jobtree.core.supply.domain import Domain
from jobtree.core.supply.node_slots import NodeSelector, PodDemand
from jobtree.core.world.payer_candidates import payer_candidates
from jobtree.core.world.world import World

MOST_DOMAINS = 12  # that one Run is tried in
MOST_TURNS = 256


class StartQuery:
    """One waiting Run's question: what it needs, and when each domain would have that, visits apart."""

    def __init__(self, run: RunState, promise: Promise, domains: Sequence[Domain], notice: int) -> None:
        shape = run.shape
        assert shape is not None
        self.run = run
        self.promise = promise
        self.domains = domains
        self.demand = placement_demand(run, promise.pod_size)
        self.latest = FOREVER if promise.at is None else promise.at
        self.stay = FOREVER if shape.max_duration is None else shape.max_duration
        if shape.checkpoint is not None:  # it may start provisionally, and make way when others come (R6)
            self.stay = min(self.stay, notice)
        self.sizes = shape.groups(promise.width) if shape.group and shape.spread else [promise.width]
        self.firsts: dict[tuple[str, int], list[int]] = {}  # by domain and pods, in every course


class SamplePaths:
    def __init__(self, world: World) -> None:
        self._world = world
        self._lifetimes = RunEndForecast(world)
        self._rooms: dict[tuple[str, str, PodDemand], list[StepFunction]] = {}
        self._firsts: dict[tuple[str, str, PodDemand, int], list[int]] = {}
        self._orders: dict[str, list[Domain]] = {}
        self._payable: dict[tuple[str, str, frozenset[NodeSelector]], bool] = {}
        self._told: set[tuple[str, str]] = set()  # domains where something is known of somebody
        self._funds: dict[EnvelopeKey, list[StepFunction]] = {}
        self._placed: list[dict[tuple[str, str], list[OccupiedInterval]]] = [{} for _ in range(SAMPLE_PATHS)]
        self._paid: list[dict[EnvelopeKey, list[OccupiedInterval]]] = [{} for _ in range(SAMPLE_PATHS)]

    def simulate_start(self, run: RunState, promise: Promise) -> list[int]:
        """When a waiting Run starts in each course, behind those that came before; none if nobody can say."""
        notice = min_provisional_ms(self._world.policy, run.checkpoint_ms)
        query = StartQuery(run, promise, self._domains(run, promise), notice)
        spans = self._lifetimes.likely_durations(run)
        starts = [self._simulate_path(number, query, spans[number]) for number in range(SAMPLE_PATHS)]
        informed = any(
            self._domain_has_history(domain) for domain in query.domains
        ) or self._payers_have_history(run)
        return starts if informed else []

    def _simulate_path(self, number: int, query: StartQuery, span: int) -> int:
        """When it starts in one course; what it takes up then is not there for those behind it."""
        promise, latest = query.promise, query.latest
        at, turns, chosen = self._world.now, 0, list(promise.domain_gpus)
        while turns < MOST_TURNS:
            placed = self._place(number, query, at)
            at = latest if placed is None else placed[0]
            if placed is None or at >= latest:
                break
            chosen = placed[1]
            paid = self._first_paid(number, query.run, promise, at)
            if paid == at:
                break
            at, turns = paid, turns + 1
        if at >= latest or turns == MOST_TURNS:
            at, chosen = latest, list(promise.domain_gpus)
        if at < FOREVER:
            self._occupy(number, promise, chosen, at, min(FOREVER, at + span))
        return at

    def _occupy(
        self, number: int, promise: Promise, chosen: Sequence[tuple[str, int]], start: int, end: int
    ) -> None:
        for name, gpus in chosen:
            visits = self._placed[number].setdefault((promise.flavor, name), [])
            insort(visits, OccupiedInterval(end, start, gpus))
        for key, gpus in promise.funding:
            self._paid[number].setdefault(key, []).append(OccupiedInterval(end, start, gpus))

    # Places

    def _domains(self, run: RunState, promise: Promise) -> list[Domain]:
        """Where it may start: the promised slice first, then where most is free."""
        mine = dict(promise.domain_gpus)
        selectors = frozenset(one.envelope.selector for one in payer_candidates(self._world, run))
        order, domains = self._order(promise.flavor), self._world.fleet.flavor(promise.flavor).domains
        first = sorted((domains[name] for name in mine if name in domains), key=freest_order)
        found = (
            one
            for one in chain(first, (one for one in order if one.name not in mine))
            if one.capacity >= promise.pod_size and self._pays(one, selectors)
        )
        return list(islice(found, MOST_DOMAINS))

    def _order(self, flavor: str) -> list[Domain]:
        """Its domains, those first where most is free."""
        if flavor not in self._orders:
            self._orders[flavor] = sorted(self._world.fleet.flavor(flavor).domains.values(), key=freest_order)
        return self._orders[flavor]

    def _pays(self, domain: Domain, selectors: frozenset[NodeSelector]) -> bool:
        key = (domain.flavor, domain.name, selectors)
        if key not in self._payable:
            self._payable[key] = pays_in(domain, selectors)
        return self._payable[key]

    def _place(self, number: int, query: StartQuery, at: int) -> tuple[int, list[tuple[str, int]]] | None:
        """The first instant at which all its groups have a place, and where that is."""
        size, known, chosen = query.promise.pod_size, query.firsts, list[tuple[str, int]]()
        for gpus in query.sizes:
            before, best = query.latest, ""
            for domain in query.domains:
                needed = self._needed(query, gpus, chosen, domain) if chosen else gpus // size
                firsts = known.get((domain.name, needed)) or self._first_times(query, domain, needed)
                if firsts[number] >= before:
                    continue
                first = self._first_room(number, query, domain, needed, at, before)
                if first is not None and first < before:
                    before, best = first, domain.name
                if first == at:
                    break
            if not best:
                return None
            at = max(at, before)
            chosen.append((best, gpus))
        return at, chosen

    @staticmethod
    def _needed(query: StartQuery, gpus: int, chosen: Sequence[tuple[str, int]], domain: Domain) -> int:
        """Pods that must fit into a domain: of this group, and of those that will sit there too."""
        taken = sum([share for name, share in chosen if name == domain.name])
        return (gpus + taken) // query.promise.pod_size

    def _first_times(self, query: StartQuery, domain: Domain, needed: int) -> list[int]:
        """In every course, when so many pods fit into a domain if nobody else comes."""
        mine = query.firsts.get((domain.name, needed))
        if mine is None:
            key = (domain.flavor, domain.name, query.demand, needed)
            known = self._firsts.get(key)
            if known is None:
                known = self._firsts[key] = [
                    times[found] if (found := bisect_left(pods, needed)) < len(pods) else FOREVER
                    for times, pods in self._room(domain, query.demand)
                ]
            mine = query.firsts[domain.name, needed] = known
        return mine

    def _first_room(  # noqa: PLR0913, PLR0917  one question with its circumstances
        self, number: int, query: StartQuery, domain: Domain, needed: int, at: int, before: int
    ) -> int | None:
        """The first instant from ``at`` on with room for so many pods that nobody promised before will take.

        What comes ``before`` is enough: later ones are not looked for.
        """
        visits = self._placed[number].get((domain.flavor, domain.name), ())
        if not visits:
            return max(at, self._first_times(query, domain, needed)[number])
        room, size = self._room(domain, query.demand)[number], query.promise.pod_size
        if query.stay == FOREVER:
            return first_after_intervals(at, room, visits, size, needed, before)
        return first_between_intervals(at, room, visits, size, needed, query.stay, before)

    def _room(self, domain: Domain, demand: PodDemand) -> list[StepFunction]:
        """Pods that fit into a domain, from instant to instant, in every course."""
        key = (domain.flavor, domain.name, demand)
        known = self._rooms.get(key)
        if known is None:
            nodes = domain.usable_node_names(demand)
            held = [
                (place, run_key, gpus)
                for place, node in enumerate(nodes)
                for run_key, gpus in self._on(domain, node)
            ]
            free = [domain.nodes[node].free for node in nodes]
            for place, node in enumerate(nodes):
                for name in self._world.leases_by_node.get(node, ()):
                    lease = self._world.posted_leases[name].lease
                    if lease.role == "Opportunistic":  # it stands in nobody's way
                        mask = dict(lease.slots)[node] & ~domain.nodes[node].spare
                        free[place] += mask.bit_count()
            known = self._rooms[key] = self._releases(free, held, demand.size)
        return known

    def _on(self, domain: Domain, node: str) -> Iterator[tuple[RunKey, int]]:
        """Runs with GPUs on a node that somebody pays for."""
        for name in self._world.leases_by_node.get(node, ()):
            lease = self._world.posted_leases[name].lease
            if lease.role != "Opportunistic" and node in domain.nodes:
                yield lease.run_key, dict(lease.slots)[node].bit_count()

    def _domain_has_history(self, domain: Domain) -> bool:
        key, told = (domain.flavor, domain.name), self._lifetimes.runs_with_history
        if key not in self._told and any(
            run_key in told for node in domain.nodes for run_key, _ in self._on(domain, node)
        ):
            self._told.add(key)
        return key in self._told

    # Money

    def _payers_have_history(self, run: RunState) -> bool:
        payers = payer_candidates(self._world, run)
        return any(
            lease.run_key in self._lifetimes.runs_with_history
            for one in payers
            for lease in one.envelope.leases.values()
        )

    def _first_paid(self, number: int, run: RunState, promise: Promise, at: int) -> int:
        """The first instant from ``at`` on at which its payers together have enough."""
        payers = [one.envelope for one in payer_candidates(self._world, run)]
        size = promise.pod_size

        def paid_at(instant: int) -> bool:  # one pod has one payer
            pods = sum([self._funds_at(number, envelope, instant) // size for envelope in payers])
            return pods * size >= promise.width

        if paid_at(at):
            return at
        later = [envelope.start for envelope in payers if envelope.start > at]
        for envelope in payers:
            times, _ = self._envelope_steps(envelope)[number]
            later += change_instants(at, times, self._paid[number].get(envelope.key, ()))
        for instant in sorted({at, *later})[1:MOST_TURNS]:
            if paid_at(instant):
                return instant
        return FOREVER

    def _funds_at(self, number: int, envelope: EnvelopeState, at: int) -> int:
        if not envelope.open_at(at):
            return 0
        times, gpus = self._envelope_steps(envelope)[number]
        visits = self._paid[number].get(envelope.key, ())
        taken = sum(one.gpus for one in visits if one.start <= at < one.end)
        return max(0, gpus[bisect_right(times, at) - 1] - taken)

    def _envelope_steps(self, envelope: EnvelopeState) -> list[StepFunction]:
        """GPUs that an envelope has left, from instant to instant, in every course."""
        known = self._funds.get(envelope.key)
        if known is None:
            held = [(0, lease.run_key, lease.charge // MILLI) for lease in envelope.leases.values()]
            free = [envelope.account.free_charge() // MILLI]
            known = self._funds[envelope.key] = self._releases(free, held, 1)
        return known

    def _releases(
        self, free: list[int], held: list[tuple[int, RunKey, int]], size: int
    ) -> list[StepFunction]:
        """What fits, in units of that size, as those who hold GPUs in some places end in every course."""
        if not held:
            return [pods_over_time(free, (), size)] * SAMPLE_PATHS
        places, runs, gpus = zip(*held, strict=True)
        ends = zip(
            *[self._lifetimes.likely_ends(run) for run in runs], strict=True
        )  # of all of them, by course
        if size == 1:  # then it does not matter where
            return [gpus_over_time(sum(free), zip(column, gpus, strict=True)) for column in ends]
        return [
            pods_over_time(free, releases_in_order(zip(column, places, gpus, strict=True)), size)
            for column in ends
        ]


def freest_order(domain: Domain) -> tuple[int, int, str]:
    return (-domain.free, -domain.capacity, domain.name)


def releases_in_order(released: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """What ever comes free, by the instant."""
    return sorted(one for one in released if one[0] < FOREVER)
