"""Lay out a gang: cover and pack together (C2, P4–P6).

Group by group: with its spares if that fits and is paid anywhere, else without; the earliest tier that
can pay in some domain where the group fits; then pack order. Nothing is kept unless all of it fits.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property

from jobtree.api.kinds.lease import OpenReason, Role
from jobtree.core.accounts.envelope_accounts import FOREVER
from jobtree.core.availability.availability_profile import base_demand, horizon
from jobtree.core.availability.promise_feasibility import all_kept
from jobtree.core.funding.cover import Means, Purses
from jobtree.core.funding.reserved_budget import provisional_notice
from jobtree.core.model.gpu_lease import EnvelopeKey, Slots
from jobtree.core.model.promise import Rank
from jobtree.core.operations.trial import Terms, Trial
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.domain import Domain
from jobtree.core.supply.node_slots import Demand, Selector
from jobtree.core.supply.packing import pick, pick_apart
from jobtree.core.world.payer_candidates import Candidate, Candidates, candidates


class Layout:
    """One attempt to place a Run: what its pods ask for, and who may pay for them."""

    def __init__(  # noqa: PLR0913  an attempt is of a Run, at a size, at an instant, for a reason
        self,
        trial: Trial,
        state: RunState,
        pod_size: int,
        at: int,
        reason: OpenReason,
        *,
        unpaid: bool = False,
        on_spares: bool = False,
        within: dict[str, int] | None = None,
        paid_by: dict[EnvelopeKey, int] | None = None,
    ) -> None:
        assert state.shape is not None
        self.trial = trial
        self.world = trial.world
        self.state = state
        self.shape = state.shape
        self.size = pod_size
        self.at = at
        self.reason = reason
        self.unpaid = unpaid
        self.on_spares = on_spares  # unpaid work may also stand on the slots of others' spares
        self.within = within  # a promised slice: GPUs per domain
        self.flavor = self.world.fleet.flavor(self.shape.flavor)
        self.candidates = self._in_order = candidates(self.world, state)
        self._shared_out = paid_by is not None  # it is known how much each pays, not where
        if self._shared_out:  # those that pay in few places choose theirs first
            self.candidates = tuple(sorted(self._in_order, key=lambda one: -len(one.envelope.selector)))
        self._means = Means(self.world, state, pod_size, at, unpaid=unpaid, promised=paid_by)
        self._demands: dict[Selector, Demand] = {}

    def demand(self, candidate: Candidate | None = None) -> Demand:
        """One pod, where it may stand; with a candidate, where that one also pays for it."""
        return self._demand_on(candidate.envelope.selector if candidate else ())

    def _demand_on(self, paid_on: Selector) -> Demand:
        found = self._demands.get(paid_on)
        if found is None:
            shape = self.shape
            found = self._demands[paid_on] = Demand(
                size=self.size,
                cpu_milli=shape.cpu_milli,
                memory_bytes=shape.memory_bytes,
                tolerations=shape.tolerations,
                node_selector=shape.node_selector,
                paid_on=paid_on,
                on_spares=self.on_spares,
            )
        return found

    @cached_property
    def tiers(self) -> list[Candidates]:
        """Candidates up to and including each tier, nearest first; all, where their parts are known."""
        found = self.candidates
        if self.unpaid or self._shared_out:
            return [found] if found else []
        ends = [
            number + 1
            for number, candidate in enumerate(found)
            if number + 1 == len(found) or found[number + 1].tier != candidate.tier
        ]
        return [found[:end] for end in ends]

    def place(self, width: int) -> bool:
        """Open leases for the whole width, or nothing."""
        if self._means.purses(self.candidates, width // self.size) is None:
            return False
        spares = 0 if self.unpaid else self.shape.spares
        return self._place(width, spares) or (spares > 0 and self._place(width, 0))

    def _place(self, width: int, spares: int) -> bool:
        mark = self.trial.mark()
        if not self.shape.group:
            done = self._place_whole(width // self.size, spares)
        elif self.shape.spread:
            sizes = self.shape.groups(width)
            done = all(self.place_group(n, gpus // self.size, spares) for n, gpus in enumerate(sizes))
        else:
            done = self._place_together(self.shape.groups(width), spares)
        if not done:
            self._take_back(mark)
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
        purses = self._means.purses(self.candidates, pods)
        if purses is None:
            return 0
        for domain in self.flavor.roomiest(demand):
            most = min(pods, domain.placeable(demand), self._payable_in(domain, purses))
            if most > 0:
                most = min(most, self._unheld(domain))
            for part in range(most, 0, -1):
                if self.place_group(group, part, 0, [domain]):
                    return part
        return 0

    def _place_together(self, sizes: list[int], spares: int) -> bool:
        """All groups in one domain (P4): where nearer payers pay for the first groups, then in pack order."""
        mark, best = self.trial.mark(), None
        for domain in self._domains(sum(sizes) // self.size):
            tiers = self._place_in(domain, sizes, spares)
            if tiers is not None and not any(tiers):
                return True
            self._take_back(mark)
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
        for lease in self.state.leases.values():
            if lease.role != "Spare":
                furthest[lease.group] = max(furthest[lease.group], ranks[lease.payer])
        return furthest

    def place_group(
        self, group: int, pods: int, spares: int, only: list[Domain] | None = None
    ) -> Domain | None:
        """Place one group and say where; nothing is opened where it cannot be."""
        for standby in dict.fromkeys((spares, 0)):
            for payers in self.tiers:
                purses = self._means.purses(payers, pods)
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
        mark = self.trial.mark()
        ranks = frozenset(
            node
            for lease in self.state.leases.values()
            if lease.group == group and lease.role != "Spare"
            for node, _ in lease.slots
        )
        for payers in self.tiers:
            if self._take(domain, group, pods, payers, "Spare", ranks=ranks) and self._harmless(domain):
                return True
            self._take_back(mark)
        return False

    def _domains(self, pods: int, only: list[Domain] | None = None) -> Iterator[Domain]:
        """Domains in which that many pods fit, in pack order."""
        demand = self.demand()
        domains: Iterable[Domain] = only or ()
        if only is None:
            domains = self._by_lendable() if self.on_spares else self.flavor.in_pack_order(pods * self.size)
        return (
            domain for domain in domains if domain.placeable(demand) >= pods and self._unheld(domain) >= pods
        )

    def _unheld(self, domain: Domain) -> int:
        """Pods that may be placed here without breaking a promise, or beyond the promised slice."""
        if self.within is not None:
            mine = sum(
                mask.bit_count()
                for lease in self.state.leases.values()
                if lease.role != "Spare"
                for node, mask in lease.slots
                if node in domain.nodes
            )
            return (self.within.get(domain.name, 0) - mine) // self.size
        free = self.unpaid or not domain.promises
        return FOREVER if free else self._unpromised(domain, self.state.standing(self.at))

    def _unpromised(self, domain: Domain, rank: Rank | None) -> int:
        """Pods that stand in no promise's way made before; provisional work may, if time remains (R6)."""
        if self.state.provisional and all(
            promise.run == self.state.key
            or promise.at is None
            or promise.at - self.at >= provisional_notice(self.world, self.state)
            for promise in domain.promises.values()
        ):
            return FOREVER
        end = FOREVER if self.state.known_end is None else self.state.known_end
        one = horizon(self.world, domain, base_demand(self.state, self.size), rank)
        return one.pods(0, self.at, end, self.state.key, rank)

    def _harmless(self, domain: Domain) -> bool:
        """Whether every promise that counts on this domain can still be kept, pod by pod."""
        if not self._may_harm(domain):
            return True
        before = None if self.within is None else self.state.standing(self.at)
        return all_kept(self.world, domain, self.state.key, before)

    def unheld_gpus(self, domain: Domain) -> int:
        return min(domain.placeable(self.demand()), self._unheld(domain)) * self.size

    def _by_lendable(self) -> list[Domain]:
        """Pack order where the slots of spares count as free."""
        demand = self.demand()
        return sorted(
            self.flavor.domains.values(),
            key=lambda domain: (0 if domain.in_use else 1, domain.placeable(demand), domain.name),
        )

    def _payable_in(self, domain: Domain, purses: Purses) -> int:
        """Pods in this domain for which there is place and money, at most: they may want the same place."""
        demand_on = self._demand_on
        return sum([min(pods, domain.placeable(demand_on(paid_on))) for paid_on, pods in purses.items()])

    def _open(self, candidate: Candidate, role: Role, group: int, slots: Slots) -> None:
        class_ = "Opportunistic" if self.unpaid else candidate.class_
        terms = Terms(candidate.envelope, class_, role, group)
        self.trial.open(self.state, terms, slots, self.at, self.reason)
        self._means.spend(candidate)

    def _take_back(self, mark: int) -> None:
        """Undo everything since the mark."""
        if self.trial.mark() > mark:
            self.trial.rollback(mark)
            self._means.forget()

    def _fill(self, domain: Domain, group: int, pods: int, standby: int, payers: Candidates) -> bool:
        """Take the group's pods in this domain, each paid by the first that can, and its spares.

        Where the place that packs best harms a promise, others may not: beside whole nodes, or elsewhere.
        """
        mark = self.trial.mark()
        role: Role = "Opportunistic" if self.unpaid else "Active"
        ranks = self._take(domain, group, pods, payers, role)
        if ranks is not None:
            apart = frozenset(node for node, _ in ranks)
            placed = not standby or self._take(domain, group, standby, payers, "Spare", ranks=apart)
            if placed and self._harmless(domain):
                return True
        self._take_back(mark)
        if ranks is None or standby or not self._may_harm(domain):
            return False
        tried = {node for node, _ in ranks}
        for avoid in (self._kept_whole(domain), tried, tried):
            if avoid:
                slots = self._take(domain, group, pods, payers, role, avoid=frozenset(avoid))
                if slots is None:
                    continue
                if self._harmless(domain):
                    return True
                self._take_back(mark)
                tried |= {node for node, _ in slots}
        return False

    def _may_harm(self, domain: Domain) -> bool:
        return bool(domain.promises) and not (self.unpaid or self.state.provisional)

    def _kept_whole(self, domain: Domain) -> frozenset[str]:
        """Nodes where one more pod would break up what larger ones are promised here."""
        rank = self.state.standing(self.at)
        one = horizon(self.world, domain, base_demand(self.state, self.size), rank)
        wholes = one.held_by(self.state.key, rank).wholes
        if wholes is None:
            return frozenset()
        end = FOREVER if self.state.known_end is None else self.state.known_end
        beside = wholes.beside(self.at, end)
        return frozenset(name for name, gpus in zip(one.rooms.nodes, beside, strict=True) if gpus < self.size)

    def _take(  # noqa: PLR0913  all of it is needed, and none of it belongs together
        self,
        domain: Domain,
        group: int,
        pods: int,
        payers: Candidates,
        role: Role,
        *,
        ranks: frozenset[str] = frozenset(),
        avoid: frozenset[str] = frozenset(),
    ) -> Slots | None:
        """Open leases for so many pods in one role; the slots they got, or None and nothing kept."""
        rate = self.trial.rate(role)
        taken: Slots = ()
        unheld = self._unheld(domain)
        if role == "Spare" and domain.promises:
            still_mine = unheld if self.within is not None else 0
            unheld = self._unpromised(domain, None) - still_mine  # a spare delays no start (P5)
        if role == "Spare" and self._shared_out:
            payers = self._in_order  # nobody's part is known of those
        for candidate in self._means.solvent(payers, rate):
            paid = self._means.pods(candidate, rate)
            if not paid:
                continue
            demand = self.demand(candidate)
            paid = min(pods, paid, domain.placeable(demand), unheld)
            if paid <= 0:
                continue
            slots = pick(domain, paid, demand, avoid) if avoid else pick_apart(domain, paid, demand, ranks)
            if slots is None:
                continue
            self._open(candidate, role, group, slots)
            taken += slots
            pods -= paid
            if not pods:
                return taken
        return None
