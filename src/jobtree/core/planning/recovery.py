"""Recovery: ranks that were lost go on elsewhere (SPEC section 8).

Group by group: on the group's spares; else on free slots of its domain, promised ones and those of unpaid
work included; else a malleable Run goes on narrower, as long as it stays within its widths; else the Run
gives up everything and queues again with its old creation time.
The payer of a lost pod pays for its replacement: that takes nothing from anybody.
"""

import msgspec

from jobtree.api.kinds.lease import ClosureReason, OpenReason
from jobtree.core.model.gpu_lease import GpuLease, RunKey, join_pods, lease_number, pods_of
from jobtree.core.model.reasons import Cause, Reason
from jobtree.core.operations.payer_changes import demote, newest_first, pays_on, repay
from jobtree.core.operations.promise_changes import broken_reason
from jobtree.core.operations.reclaim import (
    ReclaimAction,
    drop_orphaned_spares,
    end_pods,
    evict_from_spare,
    opportunistic_reclaims,
    reclaim_least,
    requeue,
)
from jobtree.core.operations.stage_gang_promise import search_again_for_gang
from jobtree.core.operations.trial import LeaseTerms, Trial
from jobtree.core.planning.elastic_width import close_groups, shrink_by
from jobtree.core.runs.run_state import PodSlots, RunState
from jobtree.core.supply.domain import Domain
from jobtree.core.supply.node_slots import PodDemand
from jobtree.core.supply.packing import pick_slots
from jobtree.core.world.payer_candidates import funding_class
from jobtree.core.world.world import World

Losses = dict[str, list[PodSlots]]  # by lease


def pods_on_failed_nodes(world: World, run: RunState) -> Losses:
    """The Run's pods on nodes that have failed."""
    lost: Losses = {}
    for lease in sorted(run.leases.values(), key=lease_number):
        pods = [
            pod
            for pod in pods_of(lease.slots, run.pod_size)
            if world.node_lifecycle.has_failed(pod[0], lease.name)
        ]
        if pods:
            lost[lease.name] = pods
    return lost


def node_takes_pods(world: World, name: str) -> bool:
    """Whether a pod may start on this node: it is there, not cordoned, and Ready."""
    known = world.fleet.nodes.get(name)
    return known is not None and known.node.ready and not known.node.cordoned and not known.node.failed


def recover(trial: Trial, run: RunState, lost: Losses, cause: Cause, closure: ClosureReason) -> None:
    """Save the Run if that can be, else let it queue again."""
    mark = trial.checkpoint()
    if Recovery(trial, run, cause, closure).recover(lost):
        return
    trial.rollback(mark)
    gone = Cause(Reason.CAPACITY_LOST, cause.where)
    requeue(trial, run, trial.world.now, gone, "CapacityLost")


class LostRanks(msgspec.Struct):
    """Ranks of one group that need a place: whose lease, and the pods of it that are lost."""

    group: int
    lost: list[tuple[GpuLease, list[PodSlots]]]
    domain: Domain | None
    spares: list[tuple[GpuLease, list[PodSlots]]]  # that still stand

    @property
    def pods(self) -> int:
        return sum(len(pods) for _, pods in self.lost)

    def fewer(self) -> "LostRanks | None":
        """All but the last of them; None where there is no other."""
        (lease, pods) = self.lost[-1]
        rest = [*self.lost[:-1], *([(lease, pods[:-1])] if pods[1:] else [])]
        return msgspec.structs.replace(self, lost=rest) if rest else None


class Recovery:
    """One attempt to save a Run that lost pods. Others make room first, then the Run changes as a whole."""

    def __init__(self, trial: Trial, run: RunState, cause: Cause, closure: ClosureReason) -> None:
        self.trial = trial
        self.world = trial.world
        self.run = run
        self.cause = cause
        self.closure = closure
        self.at = trial.world.now

    def recover(self, lost: Losses) -> bool:
        saved: list[LostRanks] = []
        doomed: list[int] = []  # groups that lost something for good
        for orphans in self._lost_ranks(lost):
            rescued = self._recover_group(orphans, saved, lost)
            if rescued is not orphans:
                doomed.append(orphans.group)
            if rescued is not None:
                saved.append(rescued)
        intact = self._broken_promises(saved)
        if not self._move(lost, saved):
            return False
        if doomed and not self._shrink_without(doomed):
            return False
        for key in sorted(self._broken_promises(saved) - intact):
            search_again_for_gang(self.trial, self.world.runs[key], Reason.NODE_FAILURE)
        return True

    def _recover_group(self, orphans: LostRanks, saved: list[LostRanks], lost: Losses) -> LostRanks | None:
        """The ranks of a group that can go on beside those saved already: all, some where it may, or none."""
        shape = self.run.shape
        left: LostRanks | None = orphans
        while left is not None and not self._make_room(left, saved, lost):
            left = left.fewer() if shape is not None and shape.malleable and not shape.group else None
        return left

    def _move(self, lost: Losses, saved: list[LostRanks]) -> bool:
        """The Run changes as a whole: what was lost ends, and these ranks go on elsewhere."""
        ranks = any(self.run.leases[name].role != "Spare" for name in lost)
        self.trial.begin_action("Recover" if ranks else "DropSpare", self.run, self.at, self.cause)
        for name, pods in lost.items():
            end_pods(self.trial, self.run, name, pods, self.at, self.closure)
        return all(self._place(one) for one in saved)

    def _lost_ranks(self, lost: Losses) -> list[LostRanks]:
        run, groups = self.run, dict[int, LostRanks]()
        for name, pods in lost.items():
            lease = run.leases[name]
            if lease.role == "Spare":
                continue
            if lease.group not in groups:
                domain, spares = self._domain_of(lease.group, lost), self._spare_pods(lease.group, lost)
                groups[lease.group] = LostRanks(lease.group, [], domain, spares)
            groups[lease.group].lost.append((lease, pods))
        return [groups[group] for group in sorted(groups)]

    def _domain_of(self, group: int, lost: Losses) -> Domain | None:
        """Where the group sits: as its living pods tell, else the nodes it lost, there or not."""
        nodes = self.world.fleet.nodes
        leases = [lease for lease in self.run.leases.values() if lease.group == group]
        standing = [
            node
            for lease in leases
            for node, _ in lease.slots
            if node in nodes and not self.world.node_lifecycle.has_failed(node, lease.name)
        ]
        failed = [node for lease in leases for node, _ in lost.get(lease.name, ()) if node in nodes]
        found = next((nodes[node].domain for node in (*standing, *failed)), None)
        return found or next(
            (one for lease in leases for one in self.world.node_lifecycle.deleted_domains(lease)), None
        )

    def _spare_pods(self, group: int, lost: Losses) -> list[tuple[GpuLease, list[PodSlots]]]:
        """The group's spares that were not lost themselves and whose node takes pods."""
        spares = [one for one in self.run.leases.values() if one.role == "Spare" and one.group == group]
        return [
            (
                spare,
                [
                    pod
                    for pod in pods_of(spare.slots, self.run.pod_size)
                    if pod not in lost.get(spare.name, ()) and node_takes_pods(self.world, pod[0])
                ],
            )
            for spare in sorted(spares, key=lease_number)
        ]

    # Others make room

    def _make_room(self, orphans: LostRanks, saved: list[LostRanks], lost: Losses) -> bool:
        """Whether these lost ranks have a place beside those saved already, once unpaid work has left it."""
        if any(lease.role == "Opportunistic" for lease, _ in orphans.lost):
            return False  # unpaid work has no claim to another place
        mark = self.trial.checkpoint()
        standby = [pod for _, pods in orphans.spares for pod in pods][: orphans.pods]
        for node, mask in standby:
            evict_from_spare(self.trial, node, mask, self.at, "ReclaimedBySpare")

        def fits() -> bool:
            before = self.trial.checkpoint()
            found = self._move(lost, [*saved, orphans])
            self.trial.rollback(before)
            return found

        domain = orphans.domain
        if fits() or (
            domain and reclaim_least(self.trial, self._opportunistic_in(domain), lambda: True, fits)
        ):
            return True
        self.trial.rollback(mark)
        return False

    def _opportunistic_in(self, domain: Domain) -> list[ReclaimAction]:
        """Unpaid work in the domain, newest first."""
        names = {
            name: None for node in sorted(domain.nodes) for name in self.world.leases_by_node.get(node, ())
        }
        leases = [self.world.posted_leases[name].lease for name in names]
        company = {one.key for one in self.world.run_graph.members(self.run)}  # goes where the Run goes
        unpaid = [one for one in leases if one.role == "Opportunistic" and one.run_key not in company]
        widths: dict[RunKey, int] = {}
        return [
            one
            for lease in newest_first(unpaid)
            for one in opportunistic_reclaims(self.trial, lease, self.at, widths)
        ]

    def _demand(self, lease: GpuLease) -> PodDemand:
        shape = self.run.shape
        assert shape is not None
        envelope = self.world.budgets.envelope(lease.payer, lease.payer_owner, lease.flavor)
        return PodDemand(
            size=self.run.pod_size,
            cpu_milli=shape.cpu_milli,
            memory_bytes=shape.memory_bytes,
            tolerations=shape.tolerations,
            node_selector=shape.node_selector,
            payer_selectors=envelope.selector,
        )

    def _broken_promises(self, orphans: list[LostRanks]) -> set[RunKey]:
        """Promises in these groups' domains that can no longer be kept."""
        runs = self.world.runs
        keys = {key for one in orphans if one.domain for key in one.domain.promises}
        return {key for key in keys if key in runs and broken_reason(self.world, runs[key])}

    # The Run changes

    def _place(self, orphans: LostRanks) -> bool:
        """Lost ranks go on: on the group's spares, then on free slots of its domain."""
        for lease, pods in self._swap(orphans):
            slots = pick_slots(orphans.domain, len(pods), self._demand(lease)) if orphans.domain else None
            if slots is None:
                return False
            self._open(lease, list(pods_of(slots, self.run.pod_size)), "Recover")
        return True

    def _swap(self, orphans: LostRanks) -> list[tuple[GpuLease, list[PodSlots]]]:
        """Put lost ranks on the group's spares; those for which there is none."""
        waiting = [(lease, list(pods)) for lease, pods in orphans.lost]
        for spare, standby in self._spare_pods(orphans.group, {}):
            chosen = standby[: sum(len(pods) for _, pods in waiting)]
            if not chosen:
                continue
            end_pods(self.trial, self.run, spare.name, chosen, self.at, "Swap")
            for lease, pods in waiting:
                taken, chosen = chosen[: len(pods)], chosen[len(pods) :]
                del pods[: len(taken)]
                self._open(lease, taken, "Swap")
        return [(lease, pods) for lease, pods in waiting if pods]

    def _open(self, lease: GpuLease, pods: list[PodSlots], reason: OpenReason) -> None:
        """The payer of the lost pods pays for these; where it does not pay there, another, or nobody."""
        envelope = self.world.budgets.envelope(lease.payer, lease.payer_owner, lease.flavor)
        asked = funding_class(self.world, envelope, self.run) == lease.class_  # budgets may have changed
        mine = [pod for pod in pods if asked and pays_on(self.trial, envelope, pod[0])]
        others = [pod for pod in pods if pod not in mine]
        if mine:
            terms = LeaseTerms(envelope, lease.class_, "Active", lease.group)
            self.trial.open(self.run, terms, join_pods(mine), self.at, reason)
        if others:
            elsewhere = msgspec.structs.replace(lease, slots=join_pods(others))
            if not repay(self.trial, self.run, elsewhere, self.at, (), reason):
                demote(self.trial, self.run, elsewhere, self.at)

    def _shrink_without(self, groups: list[int]) -> bool:
        """A malleable Run goes on without what could not be saved, at a width that it may have (F4)."""
        run, shape = self.run, self.run.shape
        if shape is None or not shape.malleable:
            return False
        if shape.group:
            close_groups(self.trial, run, groups, self.at)
        excess = (run.width - shape.min) % shape.step
        if run.width - excess < shape.min:
            return False
        if excess:
            shrink_by(self.trial, run, excess, self.at)
        drop_orphaned_spares(self.trial, run, self.at)
        return True
