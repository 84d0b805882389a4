"""Simulates the coming hours on several sample paths, in GPUs per domain and envelope.

On each path every Run in the way ends at another part of its distribution (``run_end_forecast``). Waiting
Runs start one after the other, where and as soon as they fit and can be paid, each in one of its
``MAX_DOMAINS`` likeliest domains. What they use is then not free for those behind them.
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
    earliest_fit_for_duration,
    earliest_open_ended_fit,
    gpus_over_time,
    increase_instants,
    pods_over_time,
)
from jobtree.core.funding.payer_candidates import payer_candidates
from jobtree.core.model.gpu_lease import EnvelopeKey, RunKey
from jobtree.core.model.promise import Promise
from jobtree.core.runs.notice import min_provisional_ms
from jobtree.core.runs.run_state import RunState
from jobtree.core.start_forecast.run_end_forecast import SAMPLE_PATHS, RunEndForecast
from jobtree.core.supply.domain import Domain
from jobtree.core.supply.node_slots import NodeSelector, PodDemand
from jobtree.core.world.world import World

MAX_DOMAINS = 12  # tried for one Run
MAX_ROUNDS = 256


class StartQuery:
    """What one waiting Run needs, and when each domain would have that if no simulated Run used it."""

    def __init__(self, run: RunState, promise: Promise, domains: Sequence[Domain], notice: int) -> None:
        shape = run.shape
        assert shape is not None
        self.run = run
        self.promise = promise
        self.domains = domains
        self.demand = placement_demand(run, promise.pod_size)
        self.latest = FOREVER if promise.at is None else promise.at
        self.stay = FOREVER if shape.max_duration is None else shape.max_duration
        if shape.checkpoint is not None:  # it may start provisionally and end when others start (R6)
            self.stay = min(self.stay, notice)
        self.sizes = shape.groups(promise.width) if shape.group and shape.spread else [promise.width]
        self.firsts: dict[tuple[str, int], list[int]] = {}  # by domain and pods, on each path


class SamplePaths:
    def __init__(self, world: World) -> None:
        self._world = world
        self._run_ends = RunEndForecast(world)
        self._pods_over_time: dict[tuple[str, str, PodDemand], list[StepFunction]] = {}
        self._firsts: dict[tuple[str, str, PodDemand, int], list[int]] = {}
        self._domain_orders: dict[str, list[Domain]] = {}
        self._payable: dict[tuple[str, str, frozenset[NodeSelector]], bool] = {}
        self._domains_with_history: set[tuple[str, str]] = set()  # domains with Runs that have a history
        self._gpus_over_time: dict[EnvelopeKey, list[StepFunction]] = {}
        self._slots_taken: list[dict[tuple[str, str], list[OccupiedInterval]]] = [
            {} for _ in range(SAMPLE_PATHS)
        ]
        self._budget_taken: list[dict[EnvelopeKey, list[OccupiedInterval]]] = [
            {} for _ in range(SAMPLE_PATHS)
        ]

    def simulate_start(self, run: RunState, promise: Promise) -> list[int]:
        """When a waiting Run starts on each path, behind those simulated before; none if nothing is known."""
        notice = min_provisional_ms(self._world.policy, run)
        query = StartQuery(run, promise, self._domains(run, promise), notice)
        spans = self._run_ends.likely_durations(run)
        starts = [self._simulate_path(path, query, spans[path]) for path in range(SAMPLE_PATHS)]
        informed = any(
            self._domain_has_history(domain) for domain in query.domains
        ) or self._payers_have_history(run)
        return starts if informed else []

    def _simulate_path(self, path: int, query: StartQuery, duration: int) -> int:
        """When the Run starts on one path; what it uses then is not free for those behind it."""
        promise, latest = query.promise, query.latest
        at, rounds, chosen = self._world.now, 0, list(promise.domain_gpus)
        while rounds < MAX_ROUNDS:
            placed = self._place(path, query, at)
            at = latest if placed is None else placed[0]
            if placed is None or at >= latest:
                break
            chosen = placed[1]
            paid = self._first_paid(path, query.run, promise, at)
            if paid == at:
                break
            at, rounds = paid, rounds + 1
        if at >= latest or rounds == MAX_ROUNDS:
            at, chosen = latest, list(promise.domain_gpus)
        if at < FOREVER:
            self._occupy(path, promise, chosen, at, min(FOREVER, at + duration))
        return at

    def _occupy(
        self, path: int, promise: Promise, chosen: Sequence[tuple[str, int]], start: int, end: int
    ) -> None:
        for name, gpus in chosen:
            intervals = self._slots_taken[path].setdefault((promise.flavor, name), [])
            insort(intervals, OccupiedInterval(end, start, gpus))
        for key, gpus in promise.funding:
            self._budget_taken[path].setdefault(key, []).append(OccupiedInterval(end, start, gpus))

    # Room

    def _domains(self, run: RunState, promise: Promise) -> list[Domain]:
        """Domains where the Run may start: the promised slice first, then those with most GPUs free."""
        promised_gpus = dict(promise.domain_gpus)
        selectors = frozenset(payer.envelope.selector for payer in payer_candidates(self._world, run))
        order, by_name = self._order(promise.flavor), self._world.fleet.flavor(promise.flavor).domains
        promised = sorted((by_name[name] for name in promised_gpus if name in by_name), key=freest_order)
        domains_that_pay = (
            domain
            for domain in chain(promised, (domain for domain in order if domain.name not in promised_gpus))
            if domain.capacity >= promise.pod_size and self._pays(domain, selectors)
        )
        return list(islice(domains_that_pay, MAX_DOMAINS))

    def _order(self, flavor: str) -> list[Domain]:
        """Domains of the flavor, those with most GPUs free first."""
        if flavor not in self._domain_orders:
            self._domain_orders[flavor] = sorted(
                self._world.fleet.flavor(flavor).domains.values(), key=freest_order
            )
        return self._domain_orders[flavor]

    def _pays(self, domain: Domain, selectors: frozenset[NodeSelector]) -> bool:
        key = (domain.flavor, domain.name, selectors)
        if key not in self._payable:
            self._payable[key] = pays_in(domain, selectors)
        return self._payable[key]

    def _place(self, path: int, query: StartQuery, at: int) -> tuple[int, list[tuple[str, int]]] | None:
        """The first instant at which all groups of the Run fit, and the GPUs per domain."""
        pod_size, first_times, chosen = query.promise.pod_size, query.firsts, list[tuple[str, int]]()
        for gpus in query.sizes:
            before, best = query.latest, ""
            for domain in query.domains:
                needed = self._needed(query, gpus, chosen, domain) if chosen else gpus // pod_size
                firsts = first_times.get((domain.name, needed)) or self._first_times(query, domain, needed)
                if firsts[path] >= before:
                    continue
                first = self._first_room(path, query, domain, needed, at, before)
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
        """Pods that must fit into a domain: of this group and of those that were put there before."""
        taken = sum([share for name, share in chosen if name == domain.name])
        return (gpus + taken) // query.promise.pod_size

    def _first_times(self, query: StartQuery, domain: Domain, needed: int) -> list[int]:
        """On each path, the first instant at which so many pods fit if no simulated Run uses the domain."""
        first_times = query.firsts.get((domain.name, needed))
        if first_times is None:
            key = (domain.flavor, domain.name, query.demand, needed)
            cached = self._firsts.get(key)
            if cached is None:
                cached = self._firsts[key] = [
                    times[index] if (index := bisect_left(pods, needed)) < len(pods) else FOREVER
                    for times, pods in self._room(domain, query.demand)
                ]
            first_times = query.firsts[domain.name, needed] = cached
        return first_times

    def _first_room(  # noqa: PLR0913, PLR0917  one question with its circumstances
        self, path: int, query: StartQuery, domain: Domain, needed: int, at: int, before: int
    ) -> int | None:
        """The first instant from ``at`` on with room for so many pods beside the simulated Runs.

        Instants from ``before`` on are not searched.
        """
        intervals = self._slots_taken[path].get((domain.flavor, domain.name), ())
        if not intervals:
            return max(at, self._first_times(query, domain, needed)[path])
        room, pod_size = self._room(domain, query.demand)[path], query.promise.pod_size
        if query.stay == FOREVER:
            return earliest_open_ended_fit(at, room, intervals, pod_size, needed, before)
        return earliest_fit_for_duration(at, room, intervals, pod_size, needed, query.stay, before)

    def _room(self, domain: Domain, demand: PodDemand) -> list[StepFunction]:
        """The pods that fit into a domain over time, on each path."""
        key = (domain.flavor, domain.name, demand)
        cached = self._pods_over_time.get(key)
        if cached is None:
            nodes = domain.usable_node_names(demand)
            holdings = [
                (position, run_key, gpus)
                for position, node in enumerate(nodes)
                for run_key, gpus in self._on(domain, node)
            ]
            free = [domain.nodes[node].free for node in nodes]
            for position, node in enumerate(nodes):
                for name in self._world.leases_by_node.get(node, ()):
                    lease = self._world.posted_leases[name].lease
                    if lease.role == "Opportunistic":  # it ends for any funded start
                        mask = dict(lease.slots)[node] & ~domain.nodes[node].spare
                        free[position] += mask.bit_count()
            cached = self._pods_over_time[key] = self._releases(free, holdings, demand.size)
        return cached

    def _on(self, domain: Domain, node: str) -> Iterator[tuple[RunKey, int]]:
        """Runs with funded GPUs on a node."""
        for name in self._world.leases_by_node.get(node, ()):
            lease = self._world.posted_leases[name].lease
            if lease.role != "Opportunistic" and node in domain.nodes:
                yield lease.run_key, dict(lease.slots)[node].bit_count()

    def _domain_has_history(self, domain: Domain) -> bool:
        key, with_history = (domain.flavor, domain.name), self._run_ends.runs_with_history
        if key not in self._domains_with_history and any(
            run_key in with_history for node in domain.nodes for run_key, _ in self._on(domain, node)
        ):
            self._domains_with_history.add(key)
        return key in self._domains_with_history

    # Budget

    def _payers_have_history(self, run: RunState) -> bool:
        payers = payer_candidates(self._world, run)
        return any(
            lease.run_key in self._run_ends.runs_with_history
            for payer in payers
            for lease in payer.envelope.leases.values()
        )

    def _first_paid(self, path: int, run: RunState, promise: Promise, at: int) -> int:
        """The first instant from ``at`` on at which the payers together have enough."""
        payers = [payer.envelope for payer in payer_candidates(self._world, run)]
        pod_size = promise.pod_size

        def paid_at(instant: int) -> bool:  # one pod has one payer
            pods = sum([self._funds_at(path, envelope, instant) // pod_size for envelope in payers])
            return pods * pod_size >= promise.width

        if paid_at(at):
            return at
        later = [envelope.start for envelope in payers if envelope.start > at]
        for envelope in payers:
            times, _ = self._envelope_steps(envelope)[path]
            later += increase_instants(at, times, self._budget_taken[path].get(envelope.key, ()))
        for instant in sorted({at, *later})[1:MAX_ROUNDS]:
            if paid_at(instant):
                return instant
        return FOREVER

    def _funds_at(self, path: int, envelope: EnvelopeState, at: int) -> int:
        if not envelope.open_at(at):
            return 0
        times, gpus = self._envelope_steps(envelope)[path]
        intervals = self._budget_taken[path].get(envelope.key, ())
        taken = sum(interval.gpus for interval in intervals if interval.start <= at < interval.end)
        return max(0, gpus[bisect_right(times, at) - 1] - taken)

    def _envelope_steps(self, envelope: EnvelopeState) -> list[StepFunction]:
        """The GPUs that an envelope has left over time, on each path."""
        cached = self._gpus_over_time.get(envelope.key)
        if cached is None:
            holdings = [(0, lease.run_key, lease.charge // MILLI) for lease in envelope.leases.values()]
            free = [envelope.account.free_charge() // MILLI]
            cached = self._gpus_over_time[envelope.key] = self._releases(free, holdings, 1)
        return cached

    def _releases(
        self, free: list[int], holdings: list[tuple[int, RunKey, int]], pod_size: int
    ) -> list[StepFunction]:
        """What fits over time, in pods of that size, on each path, as Runs end and release their GPUs."""
        if not holdings:
            return [pods_over_time(free, (), pod_size)] * SAMPLE_PATHS
        positions, run_keys, gpus = zip(*holdings, strict=True)
        # The ends of all of them, path by path.
        ends = zip(*[self._run_ends.likely_ends(run_key) for run_key in run_keys], strict=True)
        if pod_size == 1:  # then the node does not matter
            return [gpus_over_time(sum(free), zip(ends_in_path, gpus, strict=True)) for ends_in_path in ends]
        return [
            pods_over_time(free, releases_in_order(zip(ends_in_path, positions, gpus, strict=True)), pod_size)
            for ends_in_path in ends
        ]


def freest_order(domain: Domain) -> tuple[int, int, str]:
    return (-domain.free, -domain.capacity, domain.name)


def releases_in_order(released: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """The releases that happen at all, by instant."""
    return sorted(release for release in released if release[0] < FOREVER)
