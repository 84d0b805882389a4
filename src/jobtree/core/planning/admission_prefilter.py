"""Chances: which waiting Runs need not be asked, since nothing could come of it.

When a Run ends, most of those who wait still find no place or no money. Here that is told from bounds that
promise too much and never too little: pods that fit in each domain without standing in a promise's way, what
the payers have left. Only who is certain to be refused, for reasons it was told before, is passed over; so a
world in which everybody is asked plans the same. Bounds are shared by all Runs whose pods are alike.
"""

import msgspec

from jobtree.api.schema.quantities import MILLI
from jobtree.core.accounts.envelope_accounts import FOREVER, EnvelopeState
from jobtree.core.availability.availability_profile import base_demand, horizon
from jobtree.core.funding.cover import Means, refusals
from jobtree.core.funding.current_funding_lower_bound import Sureties
from jobtree.core.funding.current_funding_upper_bound import Ceilings
from jobtree.core.funding.future_funding import fundable_ever
from jobtree.core.funding.reserved_budget import provisional_notice
from jobtree.core.model.gang_shape import Shape
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import Rank
from jobtree.core.operations.reclaim import loans
from jobtree.core.planning.recall_capacity import Lent, Loaned
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.domain import Domain
from jobtree.core.supply.flavor_pool import Flavor
from jobtree.core.supply.node_slots import Demand
from jobtree.core.world.date_search_generation import hopeful
from jobtree.core.world.inactive_queue import Dateless, Like, dateless, told_of_place
from jobtree.core.world.payer_candidates import candidates, payers_of
from jobtree.core.world.world import World


class Kind(msgspec.Struct, frozen=True):
    """What the room for a Run depends on, besides its own promise."""

    flavor: str
    demand: Demand
    chunk: int  # pods that must sit together
    duration: int | None
    notice: int | None  # how long provisional work must be able to run; None: it may not be provisional
    lent: Lent | None = None  # what is left out, since it could be recalled


class Room(msgspec.Struct, frozen=True):
    """Pods that fit now, in whole chunks: all together, and in the one domain that takes most."""

    together: int
    alone: int


class Chances:
    """Who could start, as things stand: ask anew when anything has changed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rooms: dict[Kind, dict[str, int]] = {}
        self._sums: dict[Kind, Room] = {}
        self._halves: dict[str, bool] = {}
        self._offering: dict[tuple[str, int, Lent | None], list[Domain]] = {}
        self._lent: dict[tuple[str, str], int] = {}
        self._free_wholes: dict[tuple[str, int], int] = {}
        self._sureties = Sureties(world)
        self._ceilings = Ceilings(world)
        self._loaned = Loaned(world)
        self._dateless: dict[Dateless, Rank] = {}

    def most(self, like: Like) -> int:
        """GPUs that could be there now at most for waiting Runs that are alike: who needs more sleeps on."""
        world, flavor = self._world, self._world.fleet.flavor(like.flavor)
        if world.shaken or flavor.biggest_node != like.biggest_node or self._half_paid(flavor):
            return FOREVER
        if like.dateless is not None and world.provisional:
            return FOREVER
        payers = payers_of(world, like.owner, like.flavor, like.sponsors).candidates
        lent = sum(self._lent_from(one.envelope) for one in payers if one.tier == 0)
        if not like.place:
            return sum(max(0, one.envelope.account.free_charge()) // MILLI for one in payers) + lent
        if lent or flavor.unpaid_slots:
            return flavor.free + flavor.unpaid_slots + lent
        return self._whole(flavor, like.size)

    @staticmethod
    def _lent_from(envelope: EnvelopeState) -> int:
        """GPUs that an envelope pays for others of the family, at most."""
        used = envelope.by_class
        return -(-(used["shared"].amount + used["spare"].amount) // MILLI)

    def _whole(self, flavor: Flavor, size: int) -> int:
        """Free GPUs in whole pods of that size, wherever they are."""
        known = self._free_wholes.get((flavor.name, size))
        if known is None:
            pods = sum(domain.most_pods(size) for domain in flavor.in_pack_order(size))
            known = self._free_wholes[flavor.name, size] = pods * size
        return known

    def none(self, state: RunState) -> bool:
        """Whether asking this Run is certain to change nothing, not even what it was told."""
        if state.phase == "Running":
            return self._stays_unpaid(state)
        world, shape = self._world, state.shape
        flavor = world.fleet.flavors.get(state.flavor)
        if not state.waiting or shape is None or flavor is None or not self._settled(state):
            return False
        size = shape.pod_size(flavor.biggest_node)
        if self._is_asked_anyway(state, shape, flavor, size):
            return False
        if self._fits(state, shape, self._kind(state, shape, flavor, size)):
            return self._unpaid_for(state, shape, flavor, size)
        return self._place_lacks(state, shape, flavor, size)

    def _is_asked_anyway(self, state: RunState, shape: Shape, flavor: Flavor, size: int) -> bool:
        """Whether it might start unpaid, find a date, or have what goes with others' work."""
        if shape.allow_opportunistic and flavor.free + flavor.spare_slots >= shape.min:
            return True
        hopes = hopeful(self._world, state) and not self.hopeless(state) and self._may_find_date(state, size)
        if (state.undated and self._world.provisional) or hopes:
            return True
        return self._half_paid(flavor) and self._returns_enough(state, shape, flavor, size)

    # What might give way to a start of a Run that is asked

    def by_unpaid(self, state: RunState) -> bool:
        """Whether a Run might find a place if all unpaid work went (P7)."""
        shape, flavor = state.shape, self._world.fleet.flavors.get(state.flavor)
        if shape is None or flavor is None or not self._tells_of(state):
            return True
        size = shape.pod_size(flavor.biggest_node)
        lent = self._loaned.left_out(state) if self._half_paid(flavor) else None
        return self._fits(state, shape, self._kind_without(state, shape, flavor, size, lent))

    def by_family(self, state: RunState) -> bool:
        """Whether a Run might start with all that its family gives back (C11)."""
        shape, flavor = state.shape, self._world.fleet.flavors.get(state.flavor)
        if shape is None or flavor is None or not self._tells_of(state):
            return True
        size = shape.pod_size(flavor.biggest_node)
        return self._lent_by(state) > 0 and self._returns_enough(state, shape, flavor, size)

    # Dates of those who are promised something without one

    def hopeless(self, state: RunState) -> bool:
        """Whether none was found for another like it, for whom money is kept before it (C12)."""
        promise = state.promise
        if promise is None or state.gang or state.quotas:
            return False
        first = self._dateless.get(dateless(state, promise))
        return first is not None and first < promise.rank

    def note_hopeless(self, state: RunState) -> None:
        if state.promise is not None:
            self._dateless.setdefault(dateless(state, state.promise), state.promise.rank)

    def _may_find_date(self, state: RunState, size: int) -> bool:
        """Whether there might be money for it one day, or more is to be told than that there is none."""
        kept = state.promise is not None and state.promise.funding
        return not kept or fundable_ever(self._world, state, size)

    def _tells_of(self, state: RunState) -> bool:
        """Whether bounds hold: it is not due, and no provisional work would go for it."""
        return state.standing(self._world.now) is None and not (state.undated and self._world.provisional)

    def _half_paid(self, flavor: Flavor) -> bool:
        """Whether some unpaid work would, if it went, free more than its unpaid GPUs (C13, J3)."""
        if not flavor.unpaid_slots:
            return False
        known = self._halves.get(flavor.name)
        if known is None:
            runs = (self._world.runs[order[1:]] for order in self._world.queue)
            known = self._halves[flavor.name] = any(
                state.flavor == flavor.name and (state.half_paid or (state.unpaid and state.gang))
                for state in runs
            )
        return known

    def _settled(self, state: RunState) -> bool:
        """Whether it has its promise and its answer, and its promise is not due."""
        return (
            state.promise is not None
            and state.verdict is not None
            and state.verdict.phase == "Reserved"
            and not self._world.shaken
            and state.standing(self._world.now) is None
        )

    def _place_lacks(self, state: RunState, shape: Shape, flavor: Flavor, size: int) -> bool:
        """There is no place: money that is recalled from the family could make some (C11)."""
        world, now = self._world, self._world.now
        lent = self._lent_by(state)
        if lent and flavor.free + flavor.unpaid_slots + lent >= shape.min:
            if not told_of_place(state):
                return self._in_vain(state, shape, flavor, size)
            return self._sureties.pay(state, shape.total, size) or not refusals(
                world, state, shape.total, size, now, anywhere=True
            )
        return told_of_place(state) or not self._payable(state, shape, size)

    def _in_vain(self, state: RunState, shape: Shape, flavor: Flavor, size: int) -> bool:
        """Whether all that the family could give back is too little, in money or in place."""
        return not self._returns_enough(state, shape, flavor, size) or not self._fits(
            state, shape, self._kind_without(state, shape, flavor, size, self._loaned.tried(state))
        )

    def _returns_enough(self, state: RunState, shape: Shape, flavor: Flavor, size: int) -> bool:
        """Whether it might be enough if all of that, and whatever goes with it, were gone."""
        if self._ceilings.pods(state, size) * size < shape.min:
            return False
        lent = self._loaned.left_out(state)
        return self._fits(state, shape, self._kind_without(state, shape, flavor, size, lent))

    def _kind_without(
        self, state: RunState, shape: Shape, flavor: Flavor, size: int, lent: Lent | None = None
    ) -> Kind:
        """Beside all promises, and without what is lent."""
        return msgspec.structs.replace(self._kind(state, shape, flavor, size), notice=None, lent=lent)

    def _lent_by(self, state: RunState) -> int:
        """GPUs that its owner pays for others of the family."""
        key = (state.owner, state.flavor)
        known = self._lent.get(key)
        if known is None:
            found = loans(self._world, state, self._world.now)
            known = self._lent[key] = sum(lease.gpus for lease in found)
        return known

    def _unpaid_for(self, state: RunState, shape: Shape, flavor: Flavor, size: int) -> bool:
        """There is place: whether money lacks, as it was told, and none can be recalled."""
        if told_of_place(state):
            return False
        if self._lent_by(state) and not self._in_vain(state, shape, flavor, size):
            return False
        notice = 0 if shape.checkpoint is None else provisional_notice(self._world, state)
        if notice and self._ceilings.pods_before(state, size, notice) * size < shape.min:
            return True
        if notice and self._whole(flavor, size) >= shape.min:
            return False  # it might start provisionally, on slots that are free
        return not self._payable(state, shape, size)

    def _stays_unpaid(self, state: RunState) -> bool:
        """Whether nobody has the money for the least of what a running Run holds unpaid (C8)."""
        if state.standing(self._world.now) is not None:
            return False
        size = state.pod_size
        if state.provisional:
            most = self._ceilings.pods_before(state, size, provisional_notice(self._world, state))
        else:
            most = self._ceilings.pods(state, size, recalled=False)
        unpaid = (lease.gpus for lease in state.leases.values() if lease.role == "Opportunistic")
        return most * size < min(unpaid, default=0)

    def _payable(self, state: RunState, shape: Shape, size: int) -> bool:
        means = Means(self._world, state, size, self._world.now, unpaid=False)
        return means.purses(candidates(self._world, state), shape.min // size) is not None

    # Places

    def _fits(self, state: RunState, shape: Shape, kind: Kind) -> bool:
        """Whether its pods might fit at its least width."""
        room = self._room(kind)
        whole = shape.min // kind.demand.size // kind.chunk * kind.chunk
        if (room.together if shape.spread else room.alone) >= whole:
            return True
        return self._with_own(state, kind, whole, spread=shape.spread)

    def _kind(self, state: RunState, shape: Shape, flavor: Flavor, size: int) -> Kind:
        return Kind(
            flavor=flavor.name,
            demand=base_demand(state, size),
            chunk=max(1, shape.group // size) if shape.spread else 1,
            duration=shape.max_duration,
            notice=None if shape.checkpoint is None else provisional_notice(self._world, state),
        )

    def _with_own(self, state: RunState, kind: Kind, pods: int, *, spread: bool) -> bool:
        """The same where its own promise, which does not stand in its way, has its share."""
        rooms = self._rooms[kind]
        own = {
            name: self._pods(kind, self._world.fleet.flavors[kind.flavor].domains[name], state.key)
            for name, _ in (state.promise.shares if state.promise else ())
            if name in rooms
        }
        if not spread:
            return max(own.values(), default=0) >= pods
        more = sum(found - rooms[name] for name, found in own.items())
        return self._sums[kind].together + more >= pods

    def _room(self, kind: Kind) -> Room:
        known = self._sums.get(kind)
        if known is None:
            found = {one.name: self._pods(kind, one, None) for one in self._offering_domains(kind)}
            self._rooms[kind] = found
            known = self._sums[kind] = Room(sum(found.values()), max(found.values(), default=0))
        return known

    def _offering_domains(self, kind: Kind) -> list[Domain]:
        """Domains in which a pod could stand, if unpaid work went, or what is lent."""
        flavor, size = self._world.fleet.flavors[kind.flavor], kind.demand.size
        key = (kind.flavor, size, kind.lent)
        known = self._offering.get(key)
        if known is None:
            freed = () if kind.lent is None else self._loaned.freed(kind.lent)
            anywhere = flavor.unpaid_slots or freed
            domains = flavor.domains.values() if anywhere else flavor.in_pack_order(size)
            known = self._offering[key] = [
                one for one in domains if one.free + one.unpaid_slots >= size or one.name in freed
            ]
        return known

    def _pods(self, kind: Kind, domain: Domain, run: RunKey | None) -> int:
        """Pods that could start here now: beside all promises, or provisionally before they are due."""
        world, now = self._world, self._world.now
        end = FOREVER if kind.duration is None else now + kind.duration
        if kind.lent is not None:
            pods = self._loaned.pods(kind.lent, domain, kind.demand, end, run)
        elif kind.notice is not None and all(
            promise.run == run or promise.at is None or promise.at - now >= kind.notice
            for promise in domain.promises.values()
        ):
            pods = horizon(world, domain, kind.demand, None).most(0, now)
        else:
            pods = horizon(world, domain, kind.demand, None).pods(0, now, end, run, None)
        return max(0, pods) // kind.chunk * kind.chunk
