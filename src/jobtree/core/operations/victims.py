"""Lists what may be reclaimed for a promise, as the case that is resolved, in the order of section 6."""

from collections.abc import Iterator

import msgspec

from jobtree.core.availability.availability_profile import placement_demand
from jobtree.core.availability.payer_placement import payer_selector_of_promise
from jobtree.core.availability.shrink_steps import ShrinkStep, shrink_steps
from jobtree.core.funding.payer_candidates import last_closing
from jobtree.core.lottery.resolution import Case, NodeRoom, Taking, TakingKind, Ticket
from jobtree.core.model.gpu_lease import GpuLease, RunKey
from jobtree.core.model.promise import LOTTERY, STRUCTURAL, Promise
from jobtree.core.runs.notice import certain_end, immune_until, notice_ends_at
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World

NodeGpus = tuple[tuple[str, int], ...]  # GPUs by node


class Victim(msgspec.Struct, frozen=True, eq=False):
    """One entry of a case that can be taken, with its Run and its leases or step."""

    taking: Taking
    run: RunState
    leases: tuple[GpuLease, ...] = ()
    step: ShrinkStep = ()


class PromiseCase:
    """The case of one promise, and the Runs, leases and nodes that its entries stand for."""

    def __init__(self, world: World, run: RunState, promise: Promise) -> None:
        self.world = world
        self.at = max(world.now, promise.at or 0)
        self.run = run
        self.promise = promise
        selector = payer_selector_of_promise(world, promise)
        demand = self.demand = placement_demand(run, promise.pod_size, selector)
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
        self.holders, ended = self._ticket_holders()
        self.by_ticket = {self._uid(run): run for run in self.holders}
        freed = dict(self._gpus([lease for run in ended for lease in run.leases.values()]))
        self.held = self._held()
        self.left_out: list[RunState] = []  # who would have a ticket, but has had no notice (R12)
        self.victims = [*self._reclaim_victims()]
        if promise.disruption >= STRUCTURAL:
            self.victims += [*self._spare_victims(), *self._step_victims(), *self._recall_victims()]
        self.case = Case(
            pod_size=promise.pod_size,
            pods=tuple((name, gpus // promise.pod_size) for name, gpus in promise.domain_gpus),
            nodes=tuple(
                NodeRoom(name, world.fleet.domain_by_node[name].name, state.free + freed.get(name, 0))
                for name, state in sorted(self.nodes.items())
            ),
            takings=tuple(victim.taking for victim in self.victims),
            tickets=tuple(self._tickets()) if promise.disruption == LOTTERY else (),
        )

    def _ticket_holders(self) -> tuple[list[RunState], list[RunState]]:
        """Runs with leases here, oldest first: those that run when it is due, and those that ended."""
        run_keys: dict[RunKey, None] = {}
        for node in self.nodes:
            for name in self.world.leases_by_node.get(node, ()):
                run_keys[self.world.posted_leases[name].lease.run_key] = None
        holders = [self.world.runs[run_key] for run_key in run_keys if run_key in self.world.runs]
        holders.sort(key=lambda run: run.creation_order)
        ended = [run for run in holders if self.world.now < self._certain_end(run) <= self.at]
        return [run for run in holders if run not in ended], ended

    def _held(self) -> dict[str, NodeGpus]:
        """Returns all GPUs here of the Runs that still run when it is due, by UID and node."""
        leases: dict[str, list[GpuLease]] = {}
        for run in self.holders:
            leases.setdefault(self._uid(run), []).extend(run.leases.values())
        return {uid: self._gpus(held) for uid, held in leases.items()}

    def _certain_end(self, run: RunState) -> int:
        return certain_end(run.known_end, last_closing(self.world, run))

    def _uid(self, run: RunState) -> str:
        """The UID of the Run's tickets; stages that started together share that of the first."""
        return self.world.run_graph.members(run)[0].uid

    def _gpus(self, leases: list[GpuLease]) -> NodeGpus:
        """GPUs of each node of the slice that would be free without these leases."""
        by_node: dict[str, int] = {}
        for lease in leases:
            for node, mask in lease.slots:
                if node in self.nodes:
                    by_node[node] = by_node.get(node, 0) + self._freed(lease, node, mask)
        return tuple(sorted((node, gpus) for node, gpus in by_node.items() if gpus))

    def _freed(self, lease: GpuLease, node: str, mask: int) -> int:
        """GPUs that are free once the lease gives up these slots: not those that a spare holds as well."""
        others = self.nodes[node].spare if lease.role == "Opportunistic" else 0
        return (mask & ~others).bit_count()

    def _reclaim_victims(self) -> Iterator[Victim]:
        """X1: provisional work, then opportunistic work, newest first. A gang counts as one victim."""
        listed: set[str] = set()
        provisional = [run for run in self.holders if self._is_provisional_to(run)]
        provisional.sort(key=lambda run: (run.since or 0, run.creation_order), reverse=True)
        for run in provisional:
            if self._uid(run) not in listed:
                yield self._victim("Reclaim", run, self._all_leases(run))
            listed.add(self._uid(run))
        opportunistic = [
            (max(lease.start for lease in run.leases.values()), run.creation_order, run)
            for run in self.holders
            if run.opportunistic_gpus and not self._is_provisional_to(run)
        ]
        for _, _, run in sorted(opportunistic, key=lambda entry: entry[:2], reverse=True):
            if self._uid(run) not in listed:
                yield from self._opportunistic_victims(run)
            listed.add(self._uid(run))

    def _all_leases(self, run: RunState) -> list[GpuLease]:
        """Leases of the Run and of its gang."""
        return [lease for member in self.world.run_graph.members(run) for lease in member.leases.values()]

    def _opportunistic_victims(self, run: RunState) -> Iterator[Victim]:
        """Opportunistic work: a malleable Run step by step while it can shrink, then as a whole (C13)."""
        freed: dict[str, int] = {}
        if run.opportunistic_gpus == run.width:
            for number, step in enumerate(shrink_steps(self.world, run, self.domains)):
                victim = self._step("Reclaim", run, step, number)
                for node, gpus in victim.taking.gpus:
                    freed[node] = freed.get(node, 0) + gpus
                yield victim
        whole = self._victim("Reclaim", run, self._all_leases(run))
        left = tuple((node, gpus - freed.get(node, 0)) for node, gpus in whole.taking.gpus)
        yield msgspec.structs.replace(whole, taking=msgspec.structs.replace(whole.taking, gpus=left))

    def _is_provisional_to(self, run: RunState) -> bool:
        return run is not self.run and run.is_provisional_to(self.promise.precedence)

    def _is_reclaimed(self, run: RunState) -> bool:
        """Whether the Run is reclaimed as a whole, itself or with its gang."""
        return any(
            member.opportunistic_gpus or self._is_provisional_to(member)
            for member in self.world.run_graph.members(run)
        )

    def _was_told(self, run: RunState) -> bool:
        """Whether the present admission of the Run was told that it stops for this start (C11)."""
        return (run.key, run.since) in self.promise.recalls

    def _spare_victims(self) -> Iterator[Victim]:
        """X2: spares, largest holder first."""
        entries = []
        for run in self.holders:
            if self._is_reclaimed(run) or self._was_told(run):
                continue  # its spares go with it
            spares = [
                lease
                for lease in run.leases.values()
                if lease.role == "Spare" and any(node in self.nodes for node, _ in lease.slots)
            ]
            entries.append((-sum(lease.gpus for lease in spares), run.creation_order, spares))
        for _, _, spares in sorted(entries, key=lambda entry: entry[:2]):
            for lease in sorted(spares, key=lambda lease: (-lease.group, lease.name)):
                yield self._victim("DropSpares", self.world.runs[lease.run_key], [lease])

    def _step_victims(self) -> Iterator[Victim]:
        """X3: one step at a time, each of the Run that is furthest above its minimum."""
        entries = []
        for run in self.holders:
            if run.shape is not None and not self._is_reclaimed(run) and not self._was_told(run):
                steps = shrink_steps(self.world, run, self.domains)
                above = run.width - run.shape.min
                entries += [
                    (-(above - number * run.shape.step), run.creation_order, number, step, run)
                    for number, step in enumerate(steps)
                ]
        for _, _, number, step, run in sorted(entries, key=lambda entry: entry[:3]):
            yield self._step("Shrink", run, step, number)

    def _recall_victims(self) -> Iterator[Victim]:
        """Runs that stop for a recall and were told of it, each with its gang (C11)."""
        listed: set[str] = set()
        for run in self.holders:
            if self._was_told(run) and not self._is_reclaimed(run):
                if self._uid(run) not in listed:
                    yield self._victim("Recall", run, self._all_leases(run))
                listed.add(self._uid(run))

    def _step(self, kind: TakingKind, run: RunState, step: ShrinkStep, number: int) -> Victim:
        gpus: dict[str, int] = {}
        for part in step:
            if part.node in self.nodes:
                freed = self._freed(run.leases[part.lease], part.node, part.mask)
                gpus[part.node] = gpus.get(part.node, 0) + freed
        taking = Taking(kind, self._uid(run), tuple(sorted(gpus.items())), f"{run.uid}/step/{number}")
        return Victim(taking, run, step=step)

    def _victim(self, kind: TakingKind, run: RunState, leases: list[GpuLease]) -> Victim:
        names = ",".join(sorted(lease.name for lease in leases))
        taking = Taking(kind, self._uid(run), self._gpus(leases), f"{run.uid}/{names}")
        return Victim(taking, run, tuple(leases))

    def _immune(self, run: RunState) -> bool:
        return immune_until(self.world.policy, run, self.world.now) > self.at

    def _tickets(self) -> Iterator[Ticket]:
        """X4: Runs with active GPUs here that are not immune, with the GPUs that X1–X3 leave them."""
        reclaimed = {victim.taking.run for victim in self.victims if victim.taking.kind == "Reclaim"}
        in_steps = self._gpus_in_steps()
        members_by_uid: dict[str, list[RunState]] = {}
        for run in self.holders:
            members_by_uid.setdefault(self._uid(run), []).append(run)
        for uid, members in sorted(members_by_uid.items()):
            if uid in reclaimed or any(self._immune(member) for member in members):
                continue
            leases = [
                lease for member in members for lease in member.leases.values() if lease.role == "Active"
            ]
            active = dict(self._gpus(leases))
            for node, gpus in in_steps.get(uid, {}).items():
                active[node] = active.get(node, 0) - gpus
            remaining = tuple(sorted((node, gpus) for node, gpus in active.items() if gpus > 0))
            if remaining and self._had_notice(leases):
                yield Ticket(uid, remaining)
            elif remaining:
                self.left_out += members

    def _gpus_in_steps(self) -> dict[str, dict[str, int]]:
        """Returns the GPUs that Runs give up by shrinking, by UID and node."""
        gpus_by_uid: dict[str, dict[str, int]] = {}
        for victim in self.victims:
            by_node = gpus_by_uid.setdefault(victim.taking.run, {}) if victim.taking.kind == "Shrink" else {}
            for node, gpus in victim.taking.gpus:
                by_node[node] = by_node.get(node, 0) + gpus
        return gpus_by_uid

    def _had_notice(self, leases: list[GpuLease]) -> bool:
        """Whether a Run with these leases has been here long enough to know of the draw (R12)."""
        policy, runs = self.world.policy, self.world.runs
        return any(
            notice_ends_at(policy, runs[lease.run_key], lease) <= self.at
            for lease in leases
            if any(node in self.nodes for node, _ in lease.slots)
        )
