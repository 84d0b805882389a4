"""Places the pods of a gang on domains together with their payers (C2, P4–P6).

All groups go to one domain if one can hold and pay them with their spares, by tiers as near as several could.
Else groups are placed one after the other. Each is placed with its spares if that fits and can be paid
anywhere, and else without; by the nearest tier that can pay in a domain where the group fits; then in few
domains, the fullest first. If one group fails, no lease of the gang stays open.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from jobtree.api.kinds.lease import OpenReason, Role
from jobtree.core.accounts.envelope_accounts import FOREVER
from jobtree.core.accounts.payers import PayerCandidate, PayerCandidates
from jobtree.core.availability.availability_profile import availability_profile, placement_demand
from jobtree.core.availability.promise_feasibility import keeps_all_promises
from jobtree.core.funding.cover import GangFunding, PodsBySelector
from jobtree.core.funding.payer_candidates import payer_candidates
from jobtree.core.model.gpu_lease import EnvelopeKey, Slots
from jobtree.core.model.promise import Precedence
from jobtree.core.operations.trial import LeaseTerms, Trial
from jobtree.core.runs.notice import min_provisional_ms
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.domain import Domain
from jobtree.core.supply.domain_filling import fewest_fullest_first
from jobtree.core.supply.node_slots import NodeSelector, PodDemand
from jobtree.core.supply.packing import pick_slots, pick_slots_apart


class DomainOfGang(NamedTuple):
    """A domain that can hold all groups of a gang."""

    domain: Domain
    tiers: list[int]  # the furthest that pays for each group
    is_nearest: bool  # whether no other place is known to have nearer payers


class GangLayout:
    """One attempt to place a Run: the demand of its pods, and the payers that may be charged."""

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
        self.pod_size = pod_size
        self.at = at
        self.reason = reason
        self.opportunistic = opportunistic
        self.may_use_spares = may_use_spares  # opportunistic work may also use the slots of others' spares
        self.promised_slice = promised_slice  # GPUs per domain, where the Run starts as promised
        self.flavor = self.world.fleet.flavor(self.shape.flavor)
        self.candidates = self._in_order = payer_candidates(self.world, run)
        self._payer_shares_known = (
            promised_payers is not None
        )  # how much each pays is promised, but not where
        if self._payer_shares_known:  # those that pay on few nodes choose first
            self.candidates = tuple(
                sorted(self._in_order, key=lambda candidate: -len(candidate.envelope.selector))
            )
        self._funding = GangFunding(
            self.world, run, pod_size, at, opportunistic=opportunistic, promised=promised_payers
        )
        self._demands: dict[NodeSelector, PodDemand] = {}

    def demand(self, candidate: PayerCandidate | None = None) -> PodDemand:
        """The demand of one pod; with a candidate, only on nodes where that candidate pays."""
        return self._demand_on(candidate.envelope.selector if candidate else ())

    def _demand_on(self, paid_on: NodeSelector) -> PodDemand:
        demand = self._demands.get(paid_on)
        if demand is None:
            shape = self.shape
            demand = self._demands[paid_on] = PodDemand(
                size=self.pod_size,
                cpu_milli=shape.cpu_milli,
                memory_bytes=shape.memory_bytes,
                others=shape.requirements.others,
                requirements=shape.requirements,
                tolerations=shape.tolerations,
                node_selector=shape.node_selector,
                avoided_nodes=self.run.avoided_nodes,
                payer_selectors=paid_on,
                may_use_spares=self.may_use_spares,
            )
        return demand

    @cached_property
    def tiers(self) -> list[PayerCandidates]:
        """Candidates up to and including each tier, nearest first; all of them if their shares are known."""
        candidates = self.candidates
        if self.opportunistic or self._payer_shares_known:
            return [candidates] if candidates else []
        ends = [
            number + 1
            for number, candidate in enumerate(candidates)
            if number + 1 == len(candidates) or candidates[number + 1].tier != candidate.tier
        ]
        return [candidates[:end] for end in ends]

    def place(self, width: int) -> bool:
        """Opens leases for the whole width, or none."""
        if self._funding.affordable_by_selector(self.candidates, width // self.pod_size) is None:
            return False
        spares = 0 if self.opportunistic else self.shape.spares
        return self._place(width, spares) or (spares > 0 and self._place(width, 0))

    def _place(self, width: int, spares: int) -> bool:
        checkpoint = self.trial.checkpoint()
        group_gpus = self.shape.groups(width)
        if not self.shape.group:
            done = self._place_whole(width // self.pod_size, spares)
        elif self.shape.spread:
            done = self._place_groups(group_gpus, spares)
        else:
            done = self._place_together(group_gpus, spares) is not None
        if not done:
            self._rollback(checkpoint)
        return done

    def _place_groups(self, group_gpus: list[int], spares: int) -> bool:
        """Places all groups in one domain if none needs a further tier there, and else in few (P4)."""
        checkpoint = self.trial.checkpoint()
        best = self._place_together(group_gpus, spares, all_spares=True) if len(group_gpus) > 1 else None
        if best is not None and best.is_nearest:
            return True
        self._rollback(checkpoint)
        if self._place_apart(group_gpus, spares) and (best is None or self._tiers_of_groups() < best.tiers):
            return True
        self._rollback(checkpoint)
        return best is not None and self._place_in(best.domain, group_gpus, spares) is not None

    def _place_apart(self, group_gpus: list[int], spares: int) -> bool:
        """Places each group by itself: in as few domains as possible, the fullest first."""
        first = self._domains_to_fill(group_gpus, spares) if len(group_gpus) > 1 else ()
        return all(
            self.place_group(n, gpus // self.pod_size, spares, first=first)
            for n, gpus in enumerate(group_gpus)
        )

    def _domains_to_fill(self, group_gpus: list[int], spares: int) -> list[Domain]:
        """Returns the domains that can hold the groups, with their spares if possible."""
        demand = self.demand()
        for spare_pods in dict.fromkeys((spares, 0)):
            pods = group_gpus[0] // self.pod_size + spare_pods
            domains = [*self._domains(pods)]
            rooms = [
                min(domain.placeable(demand), self._unreserved_pods(domain)) // pods for domain in domains
            ]
            positions = fewest_fullest_first(rooms, len(group_gpus))
            if positions:
                return [domains[position] for position in positions]
        return []

    def _place_whole(self, pods: int, spares: int) -> bool:
        """Places one group if a domain can hold it, and else several in as few domains as possible (P4)."""
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
        """Fills the domain that holds most of these pods; returns how many it took."""
        demand = self.demand()
        affordable = self._funding.affordable_by_selector(self.candidates, pods)
        if affordable is None:
            return 0
        for domain in self.flavor.domains_by_room(demand):
            most = min(pods, domain.placeable(demand), self._payable_in(domain, affordable))
            if most > 0:
                most = min(most, self._unreserved_pods(domain))
            for part in range(most, 0, -1):
                if self.place_group(group, part, 0, [domain]):
                    return part
        return 0

    def _place_together(
        self, group_gpus: list[int], spares: int, *, all_spares: bool = False
    ) -> "DomainOfGang | None":
        """Places all groups in one domain (P4).

        It takes the domain where nearer payers pay for the first groups; among equals, the first in order. Of
        domains in which the same payers have the same room, only the first is tried. Where all payers have
        all the room that they can pay for, no other place has nearer payers.
        """
        checkpoint = self.trial.checkpoint()
        pods = sum(group_gpus) // self.pod_size
        spare_pods = spares * len(group_gpus) if all_spares else 0
        affordable = self._funding.affordable_by_selector(self.candidates, pods) or {}
        most = tuple(min(pods, count) for count in affordable.values())
        best: DomainOfGang | None = None
        placed: set[tuple[int, ...]] = set()
        for domain in self._domains(pods + spare_pods):
            payable = tuple(
                min(count, domain.placeable(self._demand_on(paid_on)))
                for count, paid_on in zip(most, affordable, strict=True)
            )
            if sum(payable) < pods or payable in placed:
                continue
            tiers = self._place_in(domain, group_gpus, spares, spare_pods)
            if tiers is None:
                continue
            placed.add(payable)
            is_nearest = payable == most or not any(tiers)
            if best is None or tiers < best.tiers:
                best = DomainOfGang(domain, tiers, is_nearest)
            elif is_nearest:
                best = best._replace(is_nearest=True)
            if is_nearest:
                break
            self._rollback(checkpoint)
        if best is not None and self._domain_of_ranks() is not best.domain:
            self._rollback(checkpoint)
            self._place_in(best.domain, group_gpus, spares, spare_pods)
        return best

    def _domain_of_ranks(self) -> Domain | None:
        """Returns the domain of the Run's first lease; None if it has none."""
        lease = next(iter(self.run.leases.values()), None)
        return None if lease is None else self.world.fleet.domain_by_node[lease.slots[0][0]]

    def _place_in(
        self, domain: Domain, group_gpus: list[int], spares: int, least_spares: int = 0
    ) -> list[int] | None:
        """Places all groups in the domain, with at least so many spares; returns their furthest tiers."""
        checkpoint = self.trial.checkpoint()
        for group, gpus in enumerate(group_gpus):
            if not self.place_group(group, gpus // self.pod_size, spares, [domain]):
                self._rollback(checkpoint)
                return None
        spare_gpus = sum(lease.gpus for lease in self.run.leases.values() if lease.role == "Spare")
        if spare_gpus < least_spares * self.pod_size:
            self._rollback(checkpoint)
            return None
        return self._tiers_of_groups()

    def _tiers_of_groups(self) -> list[int]:
        """Returns the number of the furthest tier that pays for each group."""
        tier_numbers: dict[EnvelopeKey, int] = {}
        for number, payers in enumerate(self.tiers):
            for candidate in payers:
                tier_numbers.setdefault(candidate.envelope.key, number)
        furthest: dict[int, int] = {}
        for lease in self.run.leases.values():
            if lease.role != "Spare":
                furthest[lease.group] = max(furthest.get(lease.group, 0), tier_numbers[lease.payer])
        return [furthest[group] for group in sorted(furthest)]

    def place_group(
        self,
        group: int,
        pods: int,
        spares: int,
        only: list[Domain] | None = None,
        first: Sequence[Domain] = (),
    ) -> Domain | None:
        """Places one group and returns its domain, one of ``first`` if possible; else opens no lease."""
        for spare_pods in dict.fromkeys((spares, 0)):
            for payers in self.tiers:
                affordable = self._funding.affordable_by_selector(payers, pods)
                if affordable is None:
                    continue
                anywhere = affordable.get((), 0) >= pods
                for domain in self._domains(pods + spare_pods, only, first):
                    if not anywhere and self._payable_in(domain, affordable) < pods:
                        continue
                    if self._fill(domain, group, pods, spare_pods, payers):
                        return domain
        return None

    def place_spares(self, group: int, pods: int, domain: Domain) -> bool:
        """Places spares of a group that is running; opens no lease if they do not fit."""
        checkpoint = self.trial.checkpoint()
        rank_nodes = frozenset(
            node
            for lease in self.run.leases.values()
            if lease.group == group and lease.role != "Spare"
            for node, _ in lease.slots
        )
        for payers in self.tiers:
            if self._lease_pods(
                domain, group, pods, payers, "Spare", rank_nodes=rank_nodes
            ) and self._keeps_promises(domain, self._holding_promises()):
                return True
            self._rollback(checkpoint)
        return False

    def _domains(
        self, pods: int, only: list[Domain] | None = None, first: Sequence[Domain] = ()
    ) -> Iterator[Domain]:
        """Domains in which that many pods fit: those to take first, then in pack order."""
        demand = self.demand()
        domains: Iterable[Domain] = only or ()
        if only is None:
            domains = (
                self._by_lendable()
                if self.may_use_spares
                else self.flavor.in_pack_order(pods * self.pod_size)
            )
        return (
            domain
            for domain in chain(first, (domain for domain in domains if domain not in first))
            if domain.placeable(demand) >= pods and self._unreserved_pods(domain) >= pods
        )

    def _unreserved_pods(self, domain: Domain) -> int:
        """How many pods may use this domain without breaking a promise, or within the promised slice."""
        if self.promised_slice is not None:
            placed_gpus = sum(
                mask.bit_count()
                for lease in self.run.leases.values()
                if lease.role != "Spare"
                for node, mask in lease.slots
                if node in domain.nodes
            )
            return (self.promised_slice.get(domain.name, 0) - placed_gpus) // self.pod_size
        free = self.opportunistic or not domain.promises
        return FOREVER if free else self._pods_beside_promises(domain, self.run.precedence_at(self.at))

    def _pods_beside_promises(self, domain: Domain, precedence: Precedence | None) -> int:
        """How many pods fit beside the promises that hold against the Run.

        Promises do not limit a provisional Run if enough time remains before each is due (R6).
        """
        if self.run.provisional and all(
            promise.run_key == self.run.key
            or promise.at is None
            or promise.at - self.at >= min_provisional_ms(self.world.policy, self.run)
            for promise in domain.promises.values()
        ):
            return FOREVER
        end = FOREVER if self.run.known_end is None else self.run.known_end
        profile = availability_profile(
            self.world, domain, placement_demand(self.run, self.pod_size), precedence
        )
        return profile.pods(0, self.at, end, self.run.key, precedence)

    def _keeps_promises(self, domain: Domain, before: Precedence | None) -> bool:
        """Whether every promise on this domain, made before that precedence, can be kept, pod by pod."""
        return not self._may_break_promise(domain) or keeps_all_promises(
            self.world, domain, self.run.key, before
        )

    def _holding_promises(self) -> Precedence | None:
        """Before which precedence promises hold against the Run; None: all promises."""
        return None if self.promised_slice is None else self.run.precedence_at(self.at)

    def unreserved_gpus(self, domain: Domain) -> int:
        """GPUs of this domain that the Run may use now."""
        return min(domain.placeable(self.demand()), self._unreserved_pods(domain)) * self.pod_size

    def _by_lendable(self) -> list[Domain]:
        """Domains in pack order, with the slots of spares counted as free."""
        demand = self.demand()
        return sorted(
            self.flavor.domains.values(),
            key=lambda domain: (0 if domain.in_use else 1, domain.placeable(demand), domain.name),
        )

    def _payable_in(self, domain: Domain, affordable: PodsBySelector) -> int:
        """An upper bound on the pods here that have room and a payer: payers may want the same nodes."""
        demand_on = self._demand_on
        return sum([min(pods, domain.placeable(demand_on(paid_on))) for paid_on, pods in affordable.items()])

    def _open(self, candidate: PayerCandidate, role: Role, group: int, slots: Slots) -> None:
        class_ = "Opportunistic" if self.opportunistic else candidate.class_
        terms = LeaseTerms(candidate.envelope, class_, role, group)
        self.trial.open(self.run, terms, slots, self.at, self.reason)
        self._funding.invalidate_payer(candidate)

    def _rollback(self, checkpoint: int) -> None:
        """Undoes everything since the checkpoint."""
        if self.trial.checkpoint() > checkpoint:
            self.trial.rollback(checkpoint)
            self._funding.invalidate()

    def _fill(self, domain: Domain, group: int, pods: int, spare_pods: int, payers: PayerCandidates) -> bool:
        """Opens leases here for the pods and spares of a group, each charged to the first that can pay.

        If the nodes that pack best break a promise, others are tried: nodes that are promised to no larger
        pods, all but the node with the fewest of its pods, then nodes that were not tried yet. A Run that
        starts as promised yields to no later promise, but breaks none if other nodes do as well.
        """
        checkpoint = self.trial.checkpoint()
        tried: dict[str, int] = {}  # nodes, and the GPUs there
        acceptable: frozenset[str] | None = None  # nodes to avoid, so that no promise breaks that holds
        for avoid in self._nodes_to_avoid(domain, spare_pods, tried):
            slots = self._lease_group(domain, group, pods, spare_pods, payers, avoid)
            if slots is not None:
                if self._keeps_promises(domain, None):
                    return True
                if acceptable is None and self._keeps_promises(domain, self._holding_promises()):
                    acceptable = avoid
                tried.update((node, mask.bit_count()) for node, mask in slots)
            self._rollback(checkpoint)
            if slots is None and not avoid:
                return False
        return (
            acceptable is not None
            and self._lease_group(domain, group, pods, spare_pods, payers, acceptable) is not None
        )

    def _nodes_to_avoid(
        self, domain: Domain, spare_pods: int, tried: dict[str, int]
    ) -> Iterator[frozenset[str]]:
        """Yields sets of nodes to avoid; the nodes tried so far are added meanwhile."""
        yield frozenset()
        if spare_pods or not self._may_break_promise(domain):
            return
        nodes_for_larger_pods = self._nodes_for_larger_pods(domain)
        if nodes_for_larger_pods:
            yield nodes_for_larger_pods
        if len(tried) > 1:  # the rest of the gang may need the others anyway
            yield frozenset({min(tried, key=lambda name: (tried[name], name))})
        yield frozenset(tried)
        yield frozenset(tried)

    def _lease_group(  # noqa: PLR0913, PLR0917  all of it is needed, and none of it belongs together
        self,
        domain: Domain,
        group: int,
        pods: int,
        spare_pods: int,
        payers: PayerCandidates,
        avoid: frozenset[str],
    ) -> Slots | None:
        """Opens leases for the pods and spares of a group; returns the slots of its ranks."""
        role: Role = "Opportunistic" if self.opportunistic else "Active"
        slots = self._lease_pods(domain, group, pods, payers, role, avoid=avoid)
        if slots is None or not spare_pods:
            return slots
        apart = frozenset(node for node, _ in slots)
        spares = self._lease_pods(domain, group, spare_pods, payers, "Spare", rank_nodes=apart)
        return None if spares is None else slots

    def _may_break_promise(self, domain: Domain) -> bool:
        return bool(domain.promises) and not (self.opportunistic or self.run.provisional)

    def _nodes_for_larger_pods(self, domain: Domain) -> frozenset[str]:
        """Nodes on which one more pod would take GPUs that larger pods are promised as a whole."""
        profile = availability_profile(self.world, domain, placement_demand(self.run, self.pod_size), None)
        fragmentation = profile.promises_before(self.run.key, None).fragmentation
        if fragmentation is None:
            return frozenset()
        end = FOREVER if self.run.known_end is None else self.run.known_end
        left_over = fragmentation.gpus_beside_larger(self.at, end)
        return frozenset(
            name
            for name, gpus in zip(profile.node_availability.nodes, left_over, strict=True)
            if gpus < self.pod_size
        )

    def _lease_pods(  # noqa: PLR0913  all of it is needed, and none of it belongs together
        self,
        domain: Domain,
        group: int,
        pods: int,
        payers: PayerCandidates,
        role: Role,
        *,
        rank_nodes: frozenset[str] = frozenset(),
        avoid: frozenset[str] = frozenset(),
    ) -> Slots | None:
        """Opens leases for so many pods in one role; returns their slots, or None if they do not all fit."""
        rate = self.trial.rate(role)
        taken: Slots = ()
        unreserved = self._unreserved_pods(domain)
        if role == "Spare" and domain.promises:
            own_pods = unreserved if self.promised_slice is not None else 0
            unreserved = self._pods_beside_promises(domain, None) - own_pods  # a spare delays no start (P5)
        if role == "Spare" and self._payer_shares_known:
            payers = self._in_order  # no payer's share of the spares is promised
        for candidate in self._funding.not_exhausted(payers, rate):
            paid = self._funding.pods(candidate, rate)
            if not paid:
                continue
            demand = self.demand(candidate)
            paid = min(pods, paid, domain.placeable(demand), unreserved)
            if paid <= 0:
                continue
            slots = (
                pick_slots(domain, paid, demand, avoid)
                if avoid
                else pick_slots_apart(domain, paid, demand, rank_nodes)
            )
            if slots is None:
                continue
            self._open(candidate, role, group, slots)
            taken += slots
            pods -= paid
            if not pods:
                return taken
        return None
