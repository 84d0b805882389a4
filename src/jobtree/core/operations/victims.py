"""What could give way to a promised start, read off the world in the order of section 6."""

from collections.abc import Iterator, Set as AbstractSet

import msgspec

from jobtree.core.availability.availability_profile import placement_demand
from jobtree.core.availability.payer_placement import placement_of_promise
from jobtree.core.availability.shrink_steps import ShrinkStep, shrink_steps
from jobtree.core.lottery.resolution import Case, NodeRoom, Taking, TakingKind, Ticket
from jobtree.core.model.gpu_lease import GpuLease, RunKey
from jobtree.core.model.promise import LOTTERY, STRUCTURAL, Promise
from jobtree.core.runs.notice import certain_end, immune_until
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.payer_candidates import last_closing
from jobtree.core.world.world import World


class Victim(msgspec.Struct, frozen=True, eq=False):
    """One thing that can be taken, and what it really is."""

    taking: Taking
    run: RunState
    leases: tuple[GpuLease, ...] = ()
    step: ShrinkStep = ()


class PromiseCase:
    """The case of one promise, and how to carry out what is decided.

    Who has just settled on what it was promised at this very instant is as immune as who starts with it.
    """

    def __init__(
        self, world: World, run: RunState, promise: Promise, settled: AbstractSet[RunKey] = frozenset()
    ) -> None:
        self.world = world
        self.settled = settled
        self.at = max(world.now, promise.at or 0)
        self.run = run
        self.promise = promise
        demand = self.demand = placement_demand(run, promise.pod_size, placement_of_promise(world, promise))
        self.domains = frozenset(name for name, _ in promise.domain_gpus)
        flavor = world.fleet.flavor(promise.flavor)
        self.names = {  # by domain, in order
            domain: flavor.domains[domain].usable_node_names(demand)
            for domain in sorted(self.domains)
            if domain in flavor.domains
        }
        self.nodes = {
            name: flavor.domains[domain].nodes[name] for domain, names in self.names.items() for name in names
        }
        self.holders, gone = self._ticket_holders()
        self.by_ticket = {self._uid(run): run for run in self.holders}
        freed = dict(self._gpus([lease for run in gone for lease in run.leases.values()]))
        self.victims = [*self._reclaim_victims()]
        if promise.disruption >= STRUCTURAL:
            self.victims += [*self._spare_victims(), *self._step_victims()]
        self.case = Case(
            pod_size=promise.pod_size,
            pods=tuple((name, gpus // promise.pod_size) for name, gpus in promise.domain_gpus),
            nodes=tuple(
                NodeRoom(name, state.domain.name, state.free + freed.get(name, 0))
                for name, state in sorted(self.nodes.items())
            ),
            takings=tuple(quarry.taking for quarry in self.victims),
            tickets=tuple(self._tickets()) if promise.disruption >= LOTTERY else (),
        )

    def _ticket_holders(self) -> tuple[list[RunState], list[RunState]]:
        """Runs with leases on these nodes, oldest first: those still there then, and those ended by then."""
        runs: dict[RunKey, None] = {}
        for node in self.nodes:
            for name in self.world.leases_by_node.get(node, ()):
                runs[self.world.posted_leases[name].lease.run_key] = None
        states = [self.world.runs[run_key] for run_key in runs if run_key in self.world.runs]
        states.sort(key=lambda run: run.creation_order)
        gone = [run for run in states if self.world.now < self._certain_end(run) <= self.at]
        return [run for run in states if run not in gone], gone

    def _certain_end(self, run: RunState) -> int:
        return certain_end(run.known_end, last_closing(self.world, run))

    def _uid(self, run: RunState) -> str:
        """Whose ticket it is: of stages that started together, the first's."""
        return self.world.run_graph.members(run)[0].uid

    def _gpus(self, leases: list[GpuLease]) -> tuple[tuple[str, int], ...]:
        """GPUs per node of the slice that would be free without these leases."""
        found: dict[str, int] = {}
        for lease in leases:
            for node, mask in lease.slots:
                if node in self.nodes:
                    found[node] = found.get(node, 0) + self._freed(lease, node, mask)
        return tuple(sorted((node, gpus) for node, gpus in found.items() if gpus))

    def _freed(self, lease: GpuLease, node: str, mask: int) -> int:
        """GPUs that are free when the lease gives up these slots: not those of a spare under it."""
        others = self.nodes[node].spare if lease.role == "Opportunistic" else 0
        return (mask & ~others).bit_count()

    def _reclaim_victims(self) -> Iterator[Victim]:
        """X1: provisional work, then unpaid work, newest first. Stages that started together go together."""
        parties: set[str] = set()
        provisional = [run for run in self.holders if self._is_provisional_to(run)]
        provisional.sort(key=lambda run: (run.since or 0, run.creation_order), reverse=True)
        for run in provisional:
            if self._uid(run) not in parties:
                yield self._victim("Reclaim", run, self._all_leases(run))
            parties.add(self._uid(run))
        unpaid = [
            (max(lease.start for lease in run.leases.values()), run.creation_order, run)
            for run in self.holders
            if run.opportunistic_gpus and not self._is_provisional_to(run)
        ]
        for _, _, run in sorted(unpaid, key=lambda one: one[:2], reverse=True):
            if self._uid(run) not in parties:
                yield from self._opportunistic_victims(run)
            parties.add(self._uid(run))

    def _all_leases(self, run: RunState) -> list[GpuLease]:
        """Of the Run, and of those that go with it."""
        return [lease for one in self.world.run_graph.members(run) for lease in one.leases.values()]

    def _opportunistic_victims(self, run: RunState) -> Iterator[Victim]:
        """Unpaid work: a malleable Run by steps while it can, then as a whole (C13)."""
        given: dict[str, int] = {}
        if run.opportunistic_gpus == run.width:
            for number, step in enumerate(shrink_steps(self.world, run, self.domains)):
                quarry = self._step("Reclaim", run, step, number)
                for node, gpus in quarry.taking.gpus:
                    given[node] = given.get(node, 0) + gpus
                yield quarry
        whole = self._victim("Reclaim", run, self._all_leases(run))
        left = tuple((node, gpus - given.get(node, 0)) for node, gpus in whole.taking.gpus)
        yield msgspec.structs.replace(whole, taking=msgspec.structs.replace(whole.taking, gpus=left))

    def _is_provisional_to(self, run: RunState) -> bool:
        return run is not self.run and run.is_provisional_to(self.promise.precedence)

    def _is_reclaimed(self, run: RunState) -> bool:
        """Whether it is reclaimed as a whole, itself or with those that started together with it."""
        return any(
            one.opportunistic_gpus or self._is_provisional_to(one)
            for one in self.world.run_graph.members(run)
        )

    def _spare_victims(self) -> Iterator[Victim]:
        """X2: spares, largest holder first."""
        found = []
        for run in self.holders:
            if self._is_reclaimed(run):
                continue  # its spares go with it
            mine = [
                lease
                for lease in run.leases.values()
                if lease.role == "Spare" and any(node in self.nodes for node, _ in lease.slots)
            ]
            found.append((-sum(lease.gpus for lease in mine), run.creation_order, mine))
        for _, _, mine in sorted(found, key=lambda one: one[:2]):
            for lease in sorted(mine, key=lambda lease: (-lease.group, lease.name)):
                yield self._victim("DropSpares", self.world.runs[lease.run_key], [lease])

    def _step_victims(self) -> Iterator[Victim]:
        """X3: a step at a time, of the Run that is furthest above its minimum."""
        waiting = []
        for run in self.holders:
            if run.shape is not None and not self._is_reclaimed(run):
                steps = shrink_steps(self.world, run, self.domains)
                above = run.width - run.shape.min
                waiting += [
                    (-(above - number * run.shape.step), run.creation_order, number, step, run)
                    for number, step in enumerate(steps)
                ]
        for _, _, number, step, run in sorted(waiting, key=lambda one: one[:3]):
            yield self._step("Shrink", run, step, number)

    def _step(self, kind: TakingKind, run: RunState, step: ShrinkStep, number: int) -> Victim:
        gpus: dict[str, int] = {}
        for piece in step:
            if piece.node in self.nodes:
                freed = self._freed(run.leases[piece.lease], piece.node, piece.mask)
                gpus[piece.node] = gpus.get(piece.node, 0) + freed
        taking = Taking(kind, self._uid(run), tuple(sorted(gpus.items())), f"{run.uid}/step/{number}")
        return Victim(taking, run, step=step)

    def _victim(self, kind: TakingKind, run: RunState, leases: list[GpuLease]) -> Victim:
        names = ",".join(sorted(lease.name for lease in leases))
        taking = Taking(kind, self._uid(run), self._gpus(leases), f"{run.uid}/{names}")
        return Victim(taking, run, tuple(leases))

    def _immune(self, run: RunState) -> bool:
        return run.key in self.settled or immune_until(self.world.policy, run, self.world.now) > self.at

    def _tickets(self) -> Iterator[Ticket]:
        """X4: Runs with active GPUs here that are not immune, with what they have after X1–X3."""
        taken: dict[str, dict[str, int]] = {}
        gone: set[str] = set()
        for quarry in self.victims:
            if quarry.taking.kind == "Reclaim":
                gone.add(quarry.taking.run)
            elif quarry.taking.kind == "Shrink":
                by_node = taken.setdefault(quarry.taking.run, {})
                for node, gpus in quarry.taking.gpus:
                    by_node[node] = by_node.get(node, 0) + gpus
        parties: dict[str, list[RunState]] = {}
        for run in self.holders:
            parties.setdefault(self._uid(run), []).append(run)
        for uid, party in sorted(parties.items()):
            if uid in gone or any(self._immune(one) for one in party):
                continue
            leases = [one for run in party for one in run.leases.values() if one.role == "Active"]
            active = dict(self._gpus(leases))
            for node, gpus in taken.get(uid, {}).items():
                active[node] = active.get(node, 0) - gpus
            left = tuple(sorted((node, gpus) for node, gpus in active.items() if gpus > 0))
            if left:
                yield Ticket(uid, left)
