"""Chances: which waiting Runs need not be asked, since nothing could come of it.

When a Run ends, most of those who wait still find no place or no money. Here that is told from bounds that
promise too much and never too little: pods that fit in each domain without standing in a promise's way, what
the payers have left. Only who is certain to be refused, for reasons it was told before, is passed over; so a
world in which everybody is asked plans the same. Bounds are shared by all Runs whose pods are alike.
"""

import msgspec

from jobtree.api.schema.quantities import MILLI
from jobtree.core.accounts.envelope_accounts import FOREVER, EnvelopeState
from jobtree.core.availability.availability_profile import availability_profile, placement_demand
from jobtree.core.funding.cover import GangFunding, funding_refusals
from jobtree.core.funding.current_funding_lower_bound import CurrentFundingLowerBound
from jobtree.core.funding.current_funding_upper_bound import CurrentFundingUpperBound
from jobtree.core.funding.future_funding import fundable_ever
from jobtree.core.model.gang_shape import GangShape
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import Precedence
from jobtree.core.operations.reclaim import recallable_leases
from jobtree.core.planning.recall_capacity import RecallCapacity, RecallKey
from jobtree.core.runs.notice import min_provisional_ms
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.domain import Domain
from jobtree.core.supply.flavor_pool import FlavorPool
from jobtree.core.supply.node_slots import PodDemand
from jobtree.core.world.date_search_generation import should_search_date
from jobtree.core.world.inactive_queue import DateSignature, WaitSignature, date_signature, lacks_room_only
from jobtree.core.world.payer_candidates import payer_candidates, payers_for
from jobtree.core.world.world import World


class PlacementKey(msgspec.Struct, frozen=True):
    """What the room for a Run depends on, besides its own promise."""

    flavor: str
    demand: PodDemand
    chunk: int  # pods that must sit together
    duration: int | None
    notice: int | None  # how long provisional work must be able to run; None: it may not be provisional
    lent: RecallKey | None = None  # what is left out, since it could be recalled


class FreePods(msgspec.Struct, frozen=True):
    """Pods that fit now, in whole chunks: all together, and in the one domain that takes most."""

    together: int
    alone: int


class AdmissionPrefilter:
    """Who could start, as things stand: ask anew when anything has changed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rooms: dict[PlacementKey, dict[str, int]] = {}
        self._sums: dict[PlacementKey, FreePods] = {}
        self._halves: dict[str, bool] = {}
        self._offering: dict[tuple[str, int, RecallKey | None], list[Domain]] = {}
        self._lent: dict[tuple[str, str], int] = {}
        self._free_wholes: dict[tuple[str, int], int] = {}
        self._sureties = CurrentFundingLowerBound(world)
        self._ceilings = CurrentFundingUpperBound(world)
        self._loaned = RecallCapacity(world)
        self._dateless: dict[DateSignature, Precedence] = {}

    def max_gpus_for(self, like: WaitSignature) -> int:
        """GPUs that could be there now at most for waiting Runs that are alike: who needs more sleeps on."""
        world, flavor = self._world, self._world.fleet.flavor(like.flavor)
        if (
            world.recheck_all_promises
            or flavor.biggest_node != like.biggest_node
            or self._has_partly_opportunistic(flavor)
        ):
            return FOREVER
        if like.dateless is not None and world.provisional_runs:
            return FOREVER
        payers = payers_for(world, like.owner, like.flavor, like.sponsors).candidates
        lent = sum(self._recallable_from(one.envelope) for one in payers if one.tier == 0)
        if not like.place:
            return sum(max(0, one.envelope.account.free_charge()) // MILLI for one in payers) + lent
        if lent or flavor.opportunistic_slots:
            return flavor.free + flavor.opportunistic_slots + lent
        return self._gpus_in_whole_pods(flavor, like.size)

    @staticmethod
    def _recallable_from(envelope: EnvelopeState) -> int:
        """GPUs that an envelope pays for others of the family, at most."""
        used = envelope.by_class
        return -(-(used["shared"].amount + used["spare"].amount) // MILLI)

    def _gpus_in_whole_pods(self, flavor: FlavorPool, size: int) -> int:
        """Free GPUs in whole pods of that size, wherever they are."""
        known = self._free_wholes.get((flavor.name, size))
        if known is None:
            pods = sum(domain.max_pods_of_size(size) for domain in flavor.in_pack_order(size))
            known = self._free_wholes[flavor.name, size] = pods * size
        return known

    def is_certainly_refused(self, run: RunState) -> bool:
        """Whether asking this Run is certain to change nothing, not even what it was told."""
        if run.phase == "Running":
            return self._stays_opportunistic(run)
        world, shape = self._world, run.shape
        flavor = world.fleet.flavors.get(run.flavor)
        if not run.waiting or shape is None or flavor is None or not self._has_reported_promise(run):
            return False
        size = shape.pod_size(flavor.biggest_node)
        if self._is_asked_anyway(run, shape, flavor, size):
            return False
        if self._fits(run, shape, self._placement_key(run, shape, flavor, size)):
            return self._is_refused_for_funding(run, shape, flavor, size)
        return self._is_refused_for_room(run, shape, flavor, size)

    def _is_asked_anyway(self, run: RunState, shape: GangShape, flavor: FlavorPool, size: int) -> bool:
        """Whether it might start unpaid, find a date, or have what goes with others' work."""
        if shape.allow_opportunistic and flavor.free + flavor.spare_slots >= shape.min:
            return True
        hopes = (
            should_search_date(self._world, run)
            and not self.is_known_dateless(run)
            and self._may_find_date(run, size)
        )
        if (run.waits_for_funding and self._world.provisional_runs) or hopes:
            return True
        return self._has_partly_opportunistic(flavor) and self._recall_may_suffice(run, shape, flavor, size)

    # What might give way to a start of a Run that is asked

    def may_start_by_reclaim(self, run: RunState) -> bool:
        """Whether a Run might find a place if all unpaid work went (P7)."""
        shape, flavor = run.shape, self._world.fleet.flavors.get(run.flavor)
        if shape is None or flavor is None or not self._bounds_apply(run):
            return True
        size = shape.pod_size(flavor.biggest_node)
        lent = self._loaned.all_recallable(run) if self._has_partly_opportunistic(flavor) else None
        return self._fits(run, shape, self._placement_key_without(run, shape, flavor, size, lent))

    def may_start_by_recall(self, run: RunState) -> bool:
        """Whether a Run might start with all that its family gives back (C11)."""
        shape, flavor = run.shape, self._world.fleet.flavors.get(run.flavor)
        if shape is None or flavor is None or not self._bounds_apply(run):
            return True
        size = shape.pod_size(flavor.biggest_node)
        return self._recallable_by(run) > 0 and self._recall_may_suffice(run, shape, flavor, size)

    # Dates of those who are promised something without one

    def is_known_dateless(self, run: RunState) -> bool:
        """Whether none was found for another like it, for whom money is kept before it (C12)."""
        promise = run.promise
        if promise is None or run.gang or run.quotas:
            return False
        first = self._dateless.get(date_signature(run, promise))
        return first is not None and first < promise.precedence

    def record_dateless(self, run: RunState) -> None:
        if run.promise is not None:
            self._dateless.setdefault(date_signature(run, run.promise), run.promise.precedence)

    def _may_find_date(self, run: RunState, size: int) -> bool:
        """Whether there might be money for it one day, or more is to be told than that there is none."""
        kept = run.promise is not None and run.promise.funding
        return not kept or fundable_ever(self._world, run, size)

    def _bounds_apply(self, run: RunState) -> bool:
        """Whether bounds hold: it is not due, and no provisional work would go for it."""
        return run.precedence_at(self._world.now) is None and not (
            run.waits_for_funding and self._world.provisional_runs
        )

    def _has_partly_opportunistic(self, flavor: FlavorPool) -> bool:
        """Whether some unpaid work would, if it went, free more than its unpaid GPUs (C13, J3)."""
        if not flavor.opportunistic_slots:
            return False
        known = self._halves.get(flavor.name)
        if known is None:
            runs = (self._world.runs[order[1:]] for order in self._world.queue)
            known = self._halves[flavor.name] = any(
                run.flavor == flavor.name
                and (run.is_partly_opportunistic or (run.opportunistic_gpus and run.gang))
                for run in runs
            )
        return known

    def _has_reported_promise(self, run: RunState) -> bool:
        """Whether it has its promise and its answer, and its promise is not due."""
        return (
            run.promise is not None
            and run.verdict is not None
            and run.verdict.phase == "Reserved"
            and not self._world.recheck_all_promises
            and run.precedence_at(self._world.now) is None
        )

    def _is_refused_for_room(self, run: RunState, shape: GangShape, flavor: FlavorPool, size: int) -> bool:
        """There is no place: money that is recalled from the family could make some (C11)."""
        world, now = self._world, self._world.now
        lent = self._recallable_by(run)
        if lent and flavor.free + flavor.opportunistic_slots + lent >= shape.min:
            if not lacks_room_only(run):
                return self._recall_is_insufficient(run, shape, flavor, size)
            return self._sureties.certainly_pays(run, shape.total, size) or not funding_refusals(
                world, run, shape.total, size, now, anywhere=True
            )
        return lacks_room_only(run) or not self._payable(run, shape, size)

    def _recall_is_insufficient(self, run: RunState, shape: GangShape, flavor: FlavorPool, size: int) -> bool:
        """Whether all that the family could give back is too little, in money or in place."""
        return not self._recall_may_suffice(run, shape, flavor, size) or not self._fits(
            run,
            shape,
            self._placement_key_without(run, shape, flavor, size, self._loaned.actually_recallable(run)),
        )

    def _recall_may_suffice(self, run: RunState, shape: GangShape, flavor: FlavorPool, size: int) -> bool:
        """Whether it might be enough if all of that, and whatever goes with it, were gone."""
        if self._ceilings.pods(run, size) * size < shape.min:
            return False
        lent = self._loaned.all_recallable(run)
        return self._fits(run, shape, self._placement_key_without(run, shape, flavor, size, lent))

    def _placement_key_without(
        self, run: RunState, shape: GangShape, flavor: FlavorPool, size: int, lent: RecallKey | None = None
    ) -> PlacementKey:
        """Beside all promises, and without what is lent."""
        return msgspec.structs.replace(self._placement_key(run, shape, flavor, size), notice=None, lent=lent)

    def _recallable_by(self, run: RunState) -> int:
        """GPUs that its owner pays for others of the family."""
        key = (run.owner, run.flavor)
        known = self._lent.get(key)
        if known is None:
            found = recallable_leases(self._world, run, self._world.now)
            known = self._lent[key] = sum(lease.gpus for lease in found)
        return known

    def _is_refused_for_funding(self, run: RunState, shape: GangShape, flavor: FlavorPool, size: int) -> bool:
        """There is place: whether money lacks, as it was told, and none can be recalled."""
        if lacks_room_only(run):
            return False
        if self._recallable_by(run) and not self._recall_is_insufficient(run, shape, flavor, size):
            return False
        notice = 0 if shape.checkpoint is None else self._min_provisional_ms(run)
        if notice and self._ceilings.pods_before(run, size, notice) * size < shape.min:
            return True
        if notice and self._gpus_in_whole_pods(flavor, size) >= shape.min:
            return False  # it might start provisionally, on slots that are free
        return not self._payable(run, shape, size)

    def _min_provisional_ms(self, run: RunState) -> int:
        return min_provisional_ms(self._world.policy, run.checkpoint_ms)

    def _stays_opportunistic(self, run: RunState) -> bool:
        """Whether nobody has the money for the least of what a running Run holds unpaid (C8)."""
        if run.precedence_at(self._world.now) is not None:
            return False
        size = run.pod_size
        if run.provisional:
            most = self._ceilings.pods_before(run, size, self._min_provisional_ms(run))
        else:
            most = self._ceilings.pods(run, size, recalled=False)
        unpaid = (lease.gpus for lease in run.leases.values() if lease.role == "Opportunistic")
        return most * size < min(unpaid, default=0)

    def _payable(self, run: RunState, shape: GangShape, size: int) -> bool:
        means = GangFunding(self._world, run, size, self._world.now, unpaid=False)
        return means.affordable_by_selector(payer_candidates(self._world, run), shape.min // size) is not None

    # Places

    def _fits(self, run: RunState, shape: GangShape, kind: PlacementKey) -> bool:
        """Whether its pods might fit at its least width."""
        room = self._room(kind)
        whole = shape.min // kind.demand.size // kind.chunk * kind.chunk
        if (room.together if shape.spread else room.alone) >= whole:
            return True
        return self._fits_with_own_promise(run, kind, whole, spread=shape.spread)

    def _placement_key(self, run: RunState, shape: GangShape, flavor: FlavorPool, size: int) -> PlacementKey:
        return PlacementKey(
            flavor=flavor.name,
            demand=placement_demand(run, size),
            chunk=max(1, shape.group // size) if shape.spread else 1,
            duration=shape.max_duration,
            notice=None if shape.checkpoint is None else self._min_provisional_ms(run),
        )

    def _fits_with_own_promise(self, run: RunState, kind: PlacementKey, pods: int, *, spread: bool) -> bool:
        """The same where its own promise, which does not stand in its way, has its share."""
        rooms = self._rooms[kind]
        own = {
            name: self._pods(kind, self._world.fleet.flavors[kind.flavor].domains[name], run.key)
            for name, _ in (run.promise.domain_gpus if run.promise else ())
            if name in rooms
        }
        if not spread:
            return max(own.values(), default=0) >= pods
        more = sum(found - rooms[name] for name, found in own.items())
        return self._sums[kind].together + more >= pods

    def _room(self, kind: PlacementKey) -> FreePods:
        known = self._sums.get(kind)
        if known is None:
            found = {one.name: self._pods(kind, one, None) for one in self._offering_domains(kind)}
            self._rooms[kind] = found
            known = self._sums[kind] = FreePods(sum(found.values()), max(found.values(), default=0))
        return known

    def _offering_domains(self, kind: PlacementKey) -> list[Domain]:
        """Domains in which a pod could stand, if unpaid work went, or what is lent."""
        flavor, size = self._world.fleet.flavors[kind.flavor], kind.demand.size
        key = (kind.flavor, size, kind.lent)
        known = self._offering.get(key)
        if known is None:
            freed = () if kind.lent is None else self._loaned.freed_domains(kind.lent)
            anywhere = flavor.opportunistic_slots or freed
            domains = flavor.domains.values() if anywhere else flavor.in_pack_order(size)
            known = self._offering[key] = [
                one for one in domains if one.free + one.opportunistic_slots >= size or one.name in freed
            ]
        return known

    def _pods(self, kind: PlacementKey, domain: Domain, run_key: RunKey | None) -> int:
        """Pods that could start here now: beside all promises, or provisionally before they are due."""
        world, now = self._world, self._world.now
        end = FOREVER if kind.duration is None else now + kind.duration
        if kind.lent is not None:
            pods = self._loaned.pods(kind.lent, domain, kind.demand, end, run_key)
        elif kind.notice is not None and all(
            promise.run_key == run_key or promise.at is None or promise.at - now >= kind.notice
            for promise in domain.promises.values()
        ):
            pods = availability_profile(world, domain, kind.demand, None).max_pods(0, now)
        else:
            pods = availability_profile(world, domain, kind.demand, None).pods(0, now, end, run_key, None)
        return max(0, pods) // kind.chunk * kind.chunk
