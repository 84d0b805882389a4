"""Skips waiting Runs that are certain to be refused for the same causes as before.

When a Run ends, most waiting Runs still lack room or budget. This is found from upper bounds: the pods that
fit in each domain beside all promises, and what the payers have left. A Run is skipped only if it is certain
to be refused for the causes in its verdict, so a pass that asks all Runs makes the same plan. Runs whose pods
are alike share their bounds.
"""

import msgspec

from jobtree.api.schema.quantities import MILLI
from jobtree.core.accounts.envelope_accounts import FOREVER, EnvelopeState
from jobtree.core.accounts.payers import PayerCandidates, payers_of_owner
from jobtree.core.availability.availability_profile import availability_profile, placement_demand
from jobtree.core.funding.cover import GangFunding, funding_refusals
from jobtree.core.funding.current_funding_lower_bound import CurrentFundingLowerBound
from jobtree.core.funding.current_funding_upper_bound import CurrentFundingUpperBound
from jobtree.core.funding.future_funding import fundable_ever
from jobtree.core.funding.future_recall import family_reservations
from jobtree.core.funding.payer_candidates import payer_candidates
from jobtree.core.model.gang_shape import GangShape
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import Precedence
from jobtree.core.operations.family_promises import gangs_in_the_way, may_start_before_family
from jobtree.core.operations.reclaim import is_paid_in_part, recallable_leases
from jobtree.core.planning.recall_capacity import RecallCapacity, RecallKey
from jobtree.core.runs.notice import min_provisional_ms
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.domain import Domain
from jobtree.core.supply.flavor_pool import FlavorPool
from jobtree.core.supply.node_slots import PodDemand
from jobtree.core.world.inactive_queue import (
    DateSignature,
    MaxGpus,
    WaitSignature,
    date_signature,
    lacks_room_only,
)
from jobtree.core.world.world import World

ANY_GPUS = MaxGpus(FOREVER, FOREVER)


class PlacementKey(msgspec.Struct, frozen=True):
    """Everything that the room for a Run depends on, except its own promise."""

    flavor: str
    demand: PodDemand
    chunk: int  # pods that must sit together
    duration: int | None
    notice: int | None  # the least time of a provisional start, in ms; None: it may not be provisional
    recall_key: RecallKey | None = None  # the family charges that are left out


class FreePods(msgspec.Struct, frozen=True):
    """Pods that fit now, in whole groups: in all domains together, and in the domain that holds most."""

    together: int
    alone: int


class AdmissionPrefilter:
    """Bounds on what waiting Runs could get; valid until the world changes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._pods_by_domain: dict[PlacementKey, dict[str, int]] = {}
        self._free_pods: dict[PlacementKey, FreePods] = {}
        self._partly_opportunistic: dict[str, bool] = {}
        self._offering_by_size: dict[tuple[str, int, RecallKey | None], list[Domain]] = {}
        self._recallable_gpus: dict[tuple[str, str], int] = {}
        self._free_gpus: dict[tuple[str, int], int] = {}
        self._gpus_beside_promises: dict[tuple[str, PodDemand], int] = {}
        self._counted_on: dict[tuple[str, str], bool] = {}
        self._funding_lower_bound = CurrentFundingLowerBound(world)
        self._funding_upper_bound = CurrentFundingUpperBound(world)
        self._recall_capacity = RecallCapacity(world)
        self._dateless: dict[DateSignature, Precedence] = {}

    def max_gpus_for(self, signature: WaitSignature) -> MaxGpus:
        """An upper bound on the GPUs for Runs with this signature; those that need more stay inactive."""
        world, flavor = self._world, self._world.fleet.flavor(signature.flavor)
        if (
            world.recheck_all_promises
            or world.has_edited_payers(signature.owner, signature.flavor, signature.sponsors)
            or flavor.biggest_node != signature.biggest_node
            or (world.sweep_due and self._has_partly_opportunistic(flavor))
        ):
            return ANY_GPUS
        if signature.dateless is not None and world.provisional_runs:
            return ANY_GPUS
        recallable = self._recallable_for(signature) if world.sweep_due else 0
        if not signature.lacks_room_only:
            free = (max(0, payer.envelope.account.free_charge()) for payer in self._payers_for(signature))
            paid = sum(charge // MILLI for charge in free) + recallable
            return MaxGpus(paid, paid)
        if recallable or flavor.opportunistic_slots:
            reachable = flavor.free + flavor.opportunistic_slots + recallable
            return MaxGpus(reachable, reachable)
        in_pods = self._gpus_in_whole_pods(flavor, signature.pod_size)
        if signature.staying_pods is None or self._family_counts_on(signature.owner, signature.flavor):
            return MaxGpus(in_pods, in_pods)
        return MaxGpus(self._gpus_for_good(flavor, signature.staying_pods), in_pods)

    def _payers_for(self, signature: WaitSignature) -> PayerCandidates:
        key = (signature.owner, signature.flavor, signature.sponsors)
        return payers_of_owner(self._world.budgets, *key).candidates

    def _recallable_for(self, signature: WaitSignature) -> int:
        """An upper bound on the GPUs that the owner's envelopes pay for other owners of the family."""
        own = (payer.envelope for payer in self._payers_for(signature) if payer.tier == 0)
        return sum(map(self._recallable_from, own))

    @staticmethod
    def _recallable_from(envelope: EnvelopeState) -> int:
        """An upper bound on the GPUs that an envelope pays for other owners of the family."""
        charges = envelope.by_class
        return -(-(charges["shared"].amount + charges["spare"].amount) // MILLI)

    def _gpus_for_good(self, flavor: FlavorPool, demand: PodDemand) -> int:
        """GPUs that such pods could have until they end, beside all promises."""
        cached = self._gpus_beside_promises.get((flavor.name, demand))
        if cached is None:
            world, now = self._world, self._world.now
            profiles = (
                availability_profile(world, domain, demand, None)
                for domain in flavor.in_pack_order(demand.size)
            )
            pods = sum(max(0, profile.pods(0, now, FOREVER, None, None)) for profile in profiles)
            cached = self._gpus_beside_promises[flavor.name, demand] = pods * demand.size
        return cached

    def _gpus_in_whole_pods(self, flavor: FlavorPool, pod_size: int) -> int:
        """Free GPUs in whole pods of that size, on any node."""
        cached = self._free_gpus.get((flavor.name, pod_size))
        if cached is None:
            pods = sum(domain.max_pods_of_size(pod_size) for domain in flavor.in_pack_order(pod_size))
            cached = self._free_gpus[flavor.name, pod_size] = pods * pod_size
        return cached

    def is_certainly_refused(self, run: RunState) -> bool:
        """Whether asking this Run is certain to change nothing, not even its verdict."""
        if run.phase == "Running":
            return self._stays_opportunistic(run)
        world, shape = self._world, run.shape
        flavor = world.fleet.flavors.get(run.flavor)
        if not run.waiting or shape is None or flavor is None or not self._has_reported_promise(run):
            return False
        pod_size = shape.pod_size(flavor.biggest_node)
        if self._is_asked_anyway(run, shape, flavor, pod_size):
            return False
        if self._fits(run, shape, self._placement_key(run, shape, flavor, pod_size)):
            return self._is_refused_for_funding(run, shape, flavor, pod_size)
        return self._is_refused_for_room(run, shape, flavor, pod_size)

    def _is_asked_anyway(self, run: RunState, shape: GangShape, flavor: FlavorPool, pod_size: int) -> bool:
        """Whether the Run might start opportunistically, find a date, or use GPUs of partly funded work."""
        if shape.allow_opportunistic and flavor.free + flavor.spare_slots >= shape.min:
            return True
        may_find_date = (
            self._world.should_search_date(run)
            and not self.is_known_dateless(run)
            and self._may_find_date(run, pod_size)
        )
        if (run.waits_for_funding and self._world.provisional_runs) or may_find_date:
            return True
        if self._may_start_before_family(run, shape, flavor, pod_size):
            return True
        return (
            self._world.considers_recalls(run)
            and self._has_partly_opportunistic(flavor)
            and self._recall_may_suffice(run, shape, flavor, pod_size)
        )

    def _may_start_before_family(
        self, run: RunState, shape: GangShape, flavor: FlavorPool, pod_size: int
    ) -> bool:
        """Whether the Run might start if its owner's budget were not promised to the family (C14).

        Its own promise and those to the family may hold all the room that it lacks.
        """
        if not self._family_counts_on(run.owner, run.flavor) or not may_start_before_family(self._world, run):
            return False
        held: dict[str, int] = {}  # GPUs by domain
        gangs = gangs_in_the_way(self._world, run)
        for promise in (run.promise, *(promise for gang in gangs for promise, _ in gang)):
            for name, gpus in promise.domain_gpus if promise else ():
                held[name] = held.get(name, 0) + gpus
        kind = self._placement_key_without(run, shape, flavor, pod_size)
        self._room(kind)
        pods = [
            min(flavor.domains[name].max_pods_of_size(pod_size), beside + held.get(name, 0) // pod_size)
            for name, beside in self._pods_by_domain[kind].items()
        ]
        return (sum(pods) if shape.spread else max(pods, default=0)) >= shape.min // pod_size

    def _family_counts_on(self, owner: str, flavor: str) -> bool:
        """Whether a promise to the family counts on an envelope of this owner (C14)."""
        cached = self._counted_on.get((owner, flavor))
        if cached is None:
            cached = self._counted_on[owner, flavor] = any(
                envelope.spec.flavor == flavor and family_reservations(self._world, envelope, None)
                for envelope in self._world.budgets.by_owner.get(owner, ())
            )
        return cached

    # Hints for a start that is tried

    def may_start_by_reclaim(self, run: RunState) -> bool:
        """Whether the Run might find room if all opportunistic work ended (P7)."""
        shape, flavor = run.shape, self._world.fleet.flavors.get(run.flavor)
        if shape is None or flavor is None or not self._bounds_apply(run):
            return True
        pod_size = shape.pod_size(flavor.biggest_node)
        paid_in_part = self._world.considers_recalls(run) and self._has_partly_opportunistic(flavor)
        recall_key = self._recall_capacity.all_recallable(run) if paid_in_part else None
        return self._fits(run, shape, self._placement_key_without(run, shape, flavor, pod_size, recall_key))

    def may_start_by_recall(self, run: RunState) -> bool:
        """Whether the Run might start if its owner recalled all family charges (C11)."""
        shape, flavor = run.shape, self._world.fleet.flavors.get(run.flavor)
        if shape is None or flavor is None or not self._bounds_apply(run):
            return True
        pod_size = shape.pod_size(flavor.biggest_node)
        return self._recallable_by(run) > 0 and self._recall_may_suffice(run, shape, flavor, pod_size)

    # Promises without a date

    def is_known_dateless(self, run: RunState) -> bool:
        """Whether no date was found for another Run like it, with an earlier precedence (C12)."""
        promise = run.promise
        if promise is None or promise.beyond_depth or run.gang or run.quotas:
            return False
        first_precedence = self._dateless.get(date_signature(run, promise))
        return first_precedence is not None and first_precedence < promise.precedence

    def record_dateless(self, run: RunState) -> None:
        if run.promise is not None:
            self._dateless.setdefault(date_signature(run, run.promise), run.promise.precedence)

    def _may_find_date(self, run: RunState, pod_size: int) -> bool:
        """Whether the Run could be paid one day, or its verdict may change although it has no date."""
        reserved = run.promise is not None and run.promise.funding
        return not reserved or fundable_ever(self._world, run, pod_size)

    def _bounds_apply(self, run: RunState) -> bool:
        """Whether the bounds hold for the Run: its promise is not due, and it cannot end provisional work."""
        return run.precedence_at(self._world.now) is None and not (
            run.waits_for_funding and self._world.provisional_runs
        )

    def _has_partly_opportunistic(self, flavor: FlavorPool) -> bool:
        """Whether the end of some opportunistic work frees more than its opportunistic GPUs (C13, J3)."""
        if not flavor.opportunistic_slots:
            return False
        cached = self._partly_opportunistic.get(flavor.name)
        if cached is None:
            runs = (self._world.runs[order[1:]] for order in self._world.queue)
            cached = self._partly_opportunistic[flavor.name] = any(
                run.flavor == flavor.name and is_paid_in_part(run) for run in runs
            )
        return cached

    def _has_reported_promise(self, run: RunState) -> bool:
        """Whether the Run has a promise that is not due and a verdict."""
        return (
            run.promise is not None
            and run.verdict is not None
            and run.verdict.phase == "Reserved"
            and not self._world.recheck_all_promises
            and not self._world.has_edited_payers(run.owner, run.flavor, run.sponsors)
            and run.precedence_at(self._world.now) is None
        )

    def _is_refused_for_room(
        self, run: RunState, shape: GangShape, flavor: FlavorPool, pod_size: int
    ) -> bool:
        """Whether a Run that does not fit is refused, even if its owner recalls family charges (C11)."""
        world, now = self._world, self._world.now
        recallable = self._recallable_by(run)
        if recallable and flavor.free + flavor.opportunistic_slots + recallable >= shape.min:
            if not lacks_room_only(run):
                return self._recall_is_insufficient(run, shape, flavor, pod_size)
            return self._funding_lower_bound.certainly_pays(
                run, shape.total, pod_size
            ) or not funding_refusals(world, run, shape.total, pod_size, now, anywhere=True)
        return lacks_room_only(run) or not self._payable(run, shape, pod_size)

    def _recall_is_insufficient(
        self, run: RunState, shape: GangShape, flavor: FlavorPool, pod_size: int
    ) -> bool:
        """Whether all family charges together are too little, in budget or in room."""
        return not self._recall_may_suffice(run, shape, flavor, pod_size) or not self._fits(
            run,
            shape,
            self._placement_key_without(
                run, shape, flavor, pod_size, self._recall_capacity.actually_recallable(run)
            ),
        )

    def _recall_may_suffice(self, run: RunState, shape: GangShape, flavor: FlavorPool, pod_size: int) -> bool:
        """Whether the Run might be paid and fit if all family charges, and what ends with them, were gone."""
        if self._funding_upper_bound.pods(run, pod_size) * pod_size < shape.min:
            return False
        recall_key = self._recall_capacity.all_recallable(run)
        return self._fits(run, shape, self._placement_key_without(run, shape, flavor, pod_size, recall_key))

    def _placement_key_without(
        self,
        run: RunState,
        shape: GangShape,
        flavor: FlavorPool,
        pod_size: int,
        recall_key: RecallKey | None = None,
    ) -> PlacementKey:
        """The key beside all promises, without what is recalled."""
        return msgspec.structs.replace(
            self._placement_key(run, shape, flavor, pod_size), notice=None, recall_key=recall_key
        )

    def _recallable_by(self, run: RunState) -> int:
        """GPUs that the Run's owner pays for other owners of the family, if it may recall them (R14)."""
        if not self._world.considers_recalls(run):
            return 0
        key = (run.owner, run.flavor)
        cached = self._recallable_gpus.get(key)
        if cached is None:
            leases = recallable_leases(self._world, run, self._world.now)
            cached = self._recallable_gpus[key] = sum(lease.gpus for lease in leases)
        return cached

    def _is_refused_for_funding(
        self, run: RunState, shape: GangShape, flavor: FlavorPool, pod_size: int
    ) -> bool:
        """Whether a Run that fits lacks budget, as its verdict says, and cannot recall any."""
        if lacks_room_only(run):
            return False
        if self._recallable_by(run) and not self._recall_is_insufficient(run, shape, flavor, pod_size):
            return False
        provisional_ms = 0 if shape.checkpoint is None else self._min_provisional_ms(run)
        if (
            provisional_ms
            and self._funding_upper_bound.pods_before(run, pod_size, provisional_ms) * pod_size < shape.min
        ):
            return True
        if provisional_ms and self._gpus_in_whole_pods(flavor, pod_size) >= shape.min:
            return False  # it might start provisionally on free slots
        return not self._payable(run, shape, pod_size)

    def _min_provisional_ms(self, run: RunState) -> int:
        return min_provisional_ms(self._world.policy, run)

    def _stays_opportunistic(self, run: RunState) -> bool:
        """Whether no payer can pay for the smallest opportunistic lease of a running Run (C8)."""
        if run.precedence_at(self._world.now) is not None:
            return False
        pod_size = run.pod_size
        if run.provisional:
            provisional_ms = self._min_provisional_ms(run)
            payable_pods = self._funding_upper_bound.pods_before(run, pod_size, provisional_ms)
        else:
            payable_pods = self._funding_upper_bound.pods(run, pod_size, recalled=False)
        opportunistic = (lease.gpus for lease in run.leases.values() if lease.role == "Opportunistic")
        return payable_pods * pod_size < min(opportunistic, default=0)

    def _payable(self, run: RunState, shape: GangShape, pod_size: int) -> bool:
        funding = GangFunding(self._world, run, pod_size, self._world.now, opportunistic=False)
        return (
            funding.affordable_by_selector(payer_candidates(self._world, run), shape.min // pod_size)
            is not None
        )

    # Room

    def _fits(self, run: RunState, shape: GangShape, kind: PlacementKey) -> bool:
        """Whether the Run's pods might fit at its least width."""
        room = self._room(kind)
        whole = shape.min // kind.demand.size // kind.chunk * kind.chunk
        if (room.together if shape.spread else room.alone) >= whole:
            return True
        return self._fits_with_own_promise(run, kind, whole, spread=shape.spread)

    def _placement_key(
        self, run: RunState, shape: GangShape, flavor: FlavorPool, pod_size: int
    ) -> PlacementKey:
        return PlacementKey(
            flavor=flavor.name,
            demand=placement_demand(run, pod_size),
            chunk=max(1, shape.group // pod_size) if shape.spread else 1,
            duration=shape.max_duration,
            notice=None if shape.checkpoint is None else self._min_provisional_ms(run),
        )

    def _fits_with_own_promise(
        self, run: RunState, kind: PlacementKey, needed_pods: int, *, spread: bool
    ) -> bool:
        """The same, with the room that is reserved for the Run's own promise."""
        rooms = self._pods_by_domain[kind]
        own_pods = {
            name: self._pods(kind, self._world.fleet.flavors[kind.flavor].domains[name], run.key)
            for name, _ in (run.promise.domain_gpus if run.promise else ())
            if name in rooms
        }
        if not spread:
            return max(own_pods.values(), default=0) >= needed_pods
        extra = sum(pods_here - rooms[name] for name, pods_here in own_pods.items())
        return self._free_pods[kind].together + extra >= needed_pods

    def _room(self, kind: PlacementKey) -> FreePods:
        cached = self._free_pods.get(kind)
        if cached is None:
            pods_by_domain = {
                domain.name: self._pods(kind, domain, None) for domain in self._offering_domains(kind)
            }
            self._pods_by_domain[kind] = pods_by_domain
            cached = self._free_pods[kind] = FreePods(
                sum(pods_by_domain.values()), max(pods_by_domain.values(), default=0)
            )
        return cached

    def _offering_domains(self, kind: PlacementKey) -> list[Domain]:
        """Domains that could hold a pod if opportunistic work ended, or what is recalled."""
        flavor, pod_size = self._world.fleet.flavors[kind.flavor], kind.demand.size
        key = (kind.flavor, pod_size, kind.recall_key)
        cached = self._offering_by_size.get(key)
        if cached is None:
            freed = () if kind.recall_key is None else self._recall_capacity.freed_domains(kind.recall_key)
            anywhere = flavor.opportunistic_slots or freed
            domains = flavor.domains.values() if anywhere else flavor.in_pack_order(pod_size)
            cached = self._offering_by_size[key] = [
                domain
                for domain in domains
                if domain.free + domain.opportunistic_slots >= pod_size or domain.name in freed
            ]
        return cached

    def _pods(self, kind: PlacementKey, domain: Domain, run_key: RunKey | None) -> int:
        """Pods that fit here now: beside all promises, or provisionally before they are due."""
        world, now = self._world, self._world.now
        end = FOREVER if kind.duration is None else now + kind.duration
        if kind.recall_key is not None:
            pods = self._recall_capacity.pods(kind.recall_key, domain, kind.demand, end, run_key)
        elif kind.notice is not None and all(
            promise.run_key == run_key or promise.at is None or promise.at - now >= kind.notice
            for promise in domain.promises.values()
        ):
            pods = availability_profile(world, domain, kind.demand, None).max_pods(0, now)
        else:
            pods = availability_profile(world, domain, kind.demand, None).pods(0, now, end, run_key, None)
        return max(0, pods) // kind.chunk * kind.chunk
