"""Lay out a gang: cover and pack together (C2, P4–P6).

Group by group: with its spares if that fits and is paid anywhere, else without; the earliest tier that
can pay in some domain where the group fits; then pack order. Nothing is kept unless all of it fits.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property

from jobtree.api.kinds.lease import OpenReason, Role
from jobtree.core.accounts.envelope_accounts import FOREVER
from jobtree.core.availability.availability_profile import availability_profile, placement_demand
from jobtree.core.availability.promise_feasibility import keeps_all_promises
from jobtree.core.funding.cover import GangFunding, GpusBySelector
from jobtree.core.model.gpu_lease import EnvelopeKey, Slots
from jobtree.core.model.promise import Precedence
from jobtree.core.operations.trial import LeaseTerms, Trial
from jobtree.core.runs.notice import min_provisional_ms
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.domain import Domain
from jobtree.core.supply.node_slots import NodeSelector, PodDemand
from jobtree.core.supply.packing import pick_slots, pick_slots_apart
from jobtree.core.world.payer_candidates import PayerCandidate, PayerCandidates, payer_candidates


class GangLayout:
    """One attempt to place a Run: what its pods ask for, and who may pay for them."""

    def __init__(  # noqa: PLR0913  an attempt is of a Run, at a size, at an instant, for a reason
        self,
        trial: Trial,
        run: RunState,
        pod_size: int,
        at: int,
        reason: OpenReason,
        *,
        opportunistic: bool = False,
        may_use_spares: bool = False,
        promised_slice: dict[str, int] | None = None,
        promised_payers: dict[EnvelopeKey, int] | None = None,
    ) -> None:
        assert run.shape is not None
        self.trial = trial
        self.world = trial.world
        self.run = run
        self.shape = run.shape
        self.size = pod_size
        self.at = at
        self.reason = reason
        self.opportunistic = opportunistic
        self.may_use_spares = may_use_spares  # unpaid work may also stand on the slots of others' spares
        self.promised_slice = promised_slice  # a promised slice: GPUs per domain
        self.flavor = self.world.fleet.flavor(self.shape.flavor)
        self.candidates = self._in_order = payer_candidates(self.world, run)
        self._payer_parts_known = promised_payers is not None  # it is known how much each pays, not where
        if self._payer_parts_known:  # those that pay in few places choose theirs first
            self.candidates = tuple(sorted(self._in_order, key=lambda one: -len(one.envelope.selector)))
        self._means = GangFunding(
            self.world, run, pod_size, at, unpaid=opportunistic, promised=promised_payers
        )
        self._demands: dict[NodeSelector, PodDemand] = {}

    def demand(self, candidate: PayerCandidate | None = None) -> PodDemand:
        """One pod, where it may stand; with a candidate, where that one also pays for it."""
        return self._demand_on(candidate.envelope.selector if candidate else ())

    def _demand_on(self, paid_on: NodeSelector) -> PodDemand:
        found = self._demands.get(paid_on)
        if found is None:
            shape = self.shape
            found = self._demands[paid_on] = PodDemand(
                size=self.size,
                cpu_milli=shape.cpu_milli,
                memory_bytes=shape.memory_bytes,
                tolerations=shape.tolerations,
                node_selector=shape.node_selector,
                payer_selectors=paid_on,
                may_use_spares=self.may_use_spares,
            )
        return found

    @cached_property
    def tiers(self) -> list[PayerCandidates]:
        """Candidates up to and including each tier, nearest first; all, where their parts are known."""
        found = self.candidates
        if self.opportunistic or self._payer_parts_known:
            return [found] if found else []
        ends = [
            number + 1
            for number, candidate in enumerate(found)
            if number + 1 == len(found) or found[number + 1].tier != candidate.tier
        ]
        return [found[:end] for end in ends]

    def place(self, width: int) -> bool:
        """Open leases for the whole width, or nothing."""
        if self._means.affordable_by_selector(self.candidates, width // self.size) is None:
            return False
        spares = 0 if self.opportunistic else self.shape.spares
        return self._place(width, spares) or (spares > 0 and self._place(width, 0))

    def _place(self, width: int, spares: int) -> bool:
        mark = self.trial.checkpoint()
        if not self.shape.group:
            done = self._place_whole(width // self.size, spares)
        elif self.shape.spread:
            sizes = self.shape.groups(width)
            done = all(self.place_group(n, gpus // self.size, spares) for n, gpus in enumerate(sizes))
        else:
            done = self._place_together(self.shape.groups(width), spares)
        if not done:
            self._rollback(mark)
        return done

    def _place_whole(self, pods: int, spares: int) -> bool:
        """One group if any domain can hold it, else spill over the fewest domains (P4)."""
        group = 0
        while pods:
            if self.place_group(group, pods, spares):
                return True
            if not self.shape.spread:
                return False
            part = self._place_part(group, pods)
            if not part:
                return False
            pods -= part
            group += 1
        return True

    def _place_part(self, group: int, pods: int) -> int:
        """Fill the domain that takes most of what is left; how many pods it took."""
        demand = self.demand()
        purses = self._means.affordable_by_selector(self.candidates, pods)
        if purses is None:
            return 0
        for domain in self.flavor.domains_by_room(demand):
            most = min(pods, domain.placeable(demand), self._payable_in(domain, purses))
            if most > 0:
                most = min(most, self._unreserved_pods(domain))
            for part in range(most, 0, -1):
                if self.place_group(group, part, 0, [domain]):
                    return part
        return 0

    def _place_together(self, sizes: list[int], spares: int) -> bool:
        """All groups in one domain (P4): where nearer payers pay for the first groups, then in pack order."""
        mark, best = self.trial.checkpoint(), None
        for domain in self._domains(sum(sizes) // self.size):
            tiers = self._place_in(domain, sizes, spares)
            if tiers is not None and not any(tiers):
                return True
            self._rollback(mark)
            if tiers is not None and (best is None or tiers < best[0]):
                best = (tiers, domain)
        return best is not None and self._place_in(best[1], sizes, spares) is not None

    def _place_in(self, domain: Domain, sizes: list[int], spares: int) -> list[int] | None:
        """Place all groups in that domain; the furthest tier that pays for each."""
        ranks: dict[EnvelopeKey, int] = {}
        for number, payers in enumerate(self.tiers):
            for one in payers:
                ranks.setdefault(one.envelope.key, number)
        for group, gpus in enumerate(sizes):
            if not self.place_group(group, gpus // self.size, spares, [domain]):
                return None
        furthest = [0] * len(sizes)
        for lease in self.run.leases.values():
            if lease.role != "Spare":
                furthest[lease.group] = max(furthest[lease.group], ranks[lease.payer])
        return furthest

    def place_group(
        self, group: int, pods: int, spares: int, only: list[Domain] | None = None
    ) -> Domain | None:
        """Place one group and say where; nothing is opened where it cannot be."""
        for standby in dict.fromkeys((spares, 0)):
            for payers in self.tiers:
                purses = self._means.affordable_by_selector(payers, pods)
                if purses is None:
                    continue
                anywhere = purses.get((), 0) >= pods
                for domain in self._domains(pods + standby, only):
                    if not anywhere and self._payable_in(domain, purses) < pods:
                        continue
                    if self._fill(domain, group, pods, standby, payers):
                        return domain
        return None

    def place_spares(self, group: int, pods: int, domain: Domain) -> bool:
        """Place standby pods of a group that stands already; nothing is opened where they cannot be."""
        mark = self.trial.checkpoint()
        ranks = frozenset(
            node
            for lease in self.run.leases.values()
            if lease.group == group and lease.role != "Spare"
            for node, _ in lease.slots
        )
        for payers in self.tiers:
            if self._lease_pods(domain, group, pods, payers, "Spare", ranks=ranks) and self._keeps_promises(
                domain
            ):
                return True
            self._rollback(mark)
        return False

    def _domains(self, pods: int, only: list[Domain] | None = None) -> Iterator[Domain]:
        """Domains in which that many pods fit, in pack order."""
        demand = self.demand()
        domains: Iterable[Domain] = only or ()
        if only is None:
            domains = (
                self._by_lendable() if self.may_use_spares else self.flavor.in_pack_order(pods * self.size)
            )
        return (
            domain
            for domain in domains
            if domain.placeable(demand) >= pods and self._unreserved_pods(domain) >= pods
        )

    def _unreserved_pods(self, domain: Domain) -> int:
        """Pods that may be placed here without breaking a promise, or beyond the promised slice."""
        if self.promised_slice is not None:
            mine = sum(
                mask.bit_count()
                for lease in self.run.leases.values()
                if lease.role != "Spare"
                for node, mask in lease.slots
                if node in domain.nodes
            )
            return (self.promised_slice.get(domain.name, 0) - mine) // self.size
        free = self.opportunistic or not domain.promises
        return FOREVER if free else self._pods_beside_promises(domain, self.run.precedence_at(self.at))

    def _pods_beside_promises(self, domain: Domain, precedence: Precedence | None) -> int:
        """Pods that stand in no promise's way made before; provisional work may, if time remains (R6)."""
        if self.run.provisional and all(
            promise.run_key == self.run.key
            or promise.at is None
            or promise.at - self.at >= min_provisional_ms(self.world.policy, self.run.checkpoint_ms)
            for promise in domain.promises.values()
        ):
            return FOREVER
        end = FOREVER if self.run.known_end is None else self.run.known_end
        one = availability_profile(self.world, domain, placement_demand(self.run, self.size), precedence)
        return one.pods(0, self.at, end, self.run.key, precedence)

    def _keeps_promises(self, domain: Domain) -> bool:
        """Whether every promise that counts on this domain can still be kept, pod by pod."""
        if not self._may_break_promise(domain):
            return True
        before = None if self.promised_slice is None else self.run.precedence_at(self.at)
        return keeps_all_promises(self.world, domain, self.run.key, before)

    def unreserved_gpus(self, domain: Domain) -> int:
        return min(domain.placeable(self.demand()), self._unreserved_pods(domain)) * self.size

    def _by_lendable(self) -> list[Domain]:
        """Pack order where the slots of spares count as free."""
        demand = self.demand()
        return sorted(
            self.flavor.domains.values(),
            key=lambda domain: (0 if domain.in_use else 1, domain.placeable(demand), domain.name),
        )

    def _payable_in(self, domain: Domain, purses: GpusBySelector) -> int:
        """Pods in this domain for which there is place and money, at most: they may want the same place."""
        demand_on = self._demand_on
        return sum([min(pods, domain.placeable(demand_on(paid_on))) for paid_on, pods in purses.items()])

    def _open(self, candidate: PayerCandidate, role: Role, group: int, slots: Slots) -> None:
        class_ = "Opportunistic" if self.opportunistic else candidate.class_
        terms = LeaseTerms(candidate.envelope, class_, role, group)
        self.trial.open(self.run, terms, slots, self.at, self.reason)
        self._means.invalidate_payer(candidate)

    def _rollback(self, mark: int) -> None:
        """Undo everything since the mark."""
        if self.trial.checkpoint() > mark:
            self.trial.rollback(mark)
            self._means.invalidate()

    def _fill(self, domain: Domain, group: int, pods: int, standby: int, payers: PayerCandidates) -> bool:
        """Take the group's pods in this domain, each paid by the first that can, and its spares.

        Where the place that packs best harms a promise, others may not: beside whole nodes, or elsewhere.
        """
        mark = self.trial.checkpoint()
        role: Role = "Opportunistic" if self.opportunistic else "Active"
        ranks = self._lease_pods(domain, group, pods, payers, role)
        if ranks is not None:
            apart = frozenset(node for node, _ in ranks)
            placed = not standby or self._lease_pods(domain, group, standby, payers, "Spare", ranks=apart)
            if placed and self._keeps_promises(domain):
                return True
        self._rollback(mark)
        if ranks is None or standby or not self._may_break_promise(domain):
            return False
        tried = {node for node, _ in ranks}
        for avoid in (self._nodes_for_larger_pods(domain), tried, tried):
            if avoid:
                slots = self._lease_pods(domain, group, pods, payers, role, avoid=frozenset(avoid))
                if slots is None:
                    continue
                if self._keeps_promises(domain):
                    return True
                self._rollback(mark)
                tried |= {node for node, _ in slots}
        return False

    def _may_break_promise(self, domain: Domain) -> bool:
        return bool(domain.promises) and not (self.opportunistic or self.run.provisional)

    def _nodes_for_larger_pods(self, domain: Domain) -> frozenset[str]:
        """Nodes where one more pod would break up what larger ones are promised here."""
        precedence = self.run.precedence_at(self.at)
        one = availability_profile(self.world, domain, placement_demand(self.run, self.size), precedence)
        wholes = one.promises_before(self.run.key, precedence).wholes
        if wholes is None:
            return frozenset()
        end = FOREVER if self.run.known_end is None else self.run.known_end
        beside = wholes.beside(self.at, end)
        return frozenset(
            name for name, gpus in zip(one.node_availability.nodes, beside, strict=True) if gpus < self.size
        )

    def _lease_pods(  # noqa: PLR0913  all of it is needed, and none of it belongs together
        self,
        domain: Domain,
        group: int,
        pods: int,
        payers: PayerCandidates,
        role: Role,
        *,
        ranks: frozenset[str] = frozenset(),
        avoid: frozenset[str] = frozenset(),
    ) -> Slots | None:
        """Open leases for so many pods in one role; the slots they got, or None and nothing kept."""
        rate = self.trial.rate(role)
        taken: Slots = ()
        unheld = self._unreserved_pods(domain)
        if role == "Spare" and domain.promises:
            still_mine = unheld if self.promised_slice is not None else 0
            unheld = self._pods_beside_promises(domain, None) - still_mine  # a spare delays no start (P5)
        if role == "Spare" and self._payer_parts_known:
            payers = self._in_order  # nobody's part is known of those
        for candidate in self._means.not_exhausted(payers, rate):
            paid = self._means.pods(candidate, rate)
            if not paid:
                continue
            demand = self.demand(candidate)
            paid = min(pods, paid, domain.placeable(demand), unheld)
            if paid <= 0:
                continue
            slots = (
                pick_slots(domain, paid, demand, avoid)
                if avoid
                else pick_slots_apart(domain, paid, demand, ranks)
            )
            if slots is None:
                continue
            self._open(candidate, role, group, slots)
            taken += slots
            pods -= paid
            if not pods:
                return taken
        return None
