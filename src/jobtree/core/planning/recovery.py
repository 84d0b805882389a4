"""Moves ranks off failed nodes to spares or free slots, shrinks the Run, or requeues it (section 8).

Each group moves to its spares; else to free slots of its domain, also promised ones and those of
opportunistic work. A malleable Run shrinks by what found no slots, within its widths. Any other Run is
requeued with its old creation time. The payer of a lost pod pays for its replacement, so no budget is taken
from other Runs.
"""

import msgspec

from jobtree.api.kinds.lease import ClosureReason, OpenReason
from jobtree.api.kubernetes.pod import tolerates
from jobtree.core.funding.payer_candidates import funding_class
from jobtree.core.model.gpu_lease import GpuLease, RunKey, join_pods, lease_number, pods_of
from jobtree.core.model.reasons import Cause, Reason
from jobtree.core.operations.payer_changes import demote, newest_first, pays_on, repay
from jobtree.core.operations.promise_changes import broken_reason
from jobtree.core.operations.reclaim import (
    ReclaimAction,
    drop_orphaned_spares,
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


def node_takes_pods(world: World, run: RunState, name: str) -> bool:
    """Whether a pod of the Run may start on this node: it is Ready, not cordoned, and its taints allow it."""
    node_slots = world.fleet.nodes.get(name)
    if node_slots is None:
        return False
    node, shape = node_slots.node, run.shape
    tolerations = shape.tolerations if shape is not None else ()
    return node.ready and not node.cordoned and not node.failed and tolerates(node.taints, tolerations)


def recover(trial: Trial, run: RunState, lost: Losses, cause: Cause, closure: ClosureReason) -> None:
    """Recovers the Run, or requeues it if that is impossible."""
    if not try_recovery(trial, run, lost, cause, closure):
        nodes = ", ".join(sorted({node for pods in lost.values() for node, _ in pods}))
        capacity_lost = Cause(Reason.CAPACITY_LOST, nodes)
        requeue(trial, run, trial.world.now, capacity_lost, "CapacityLost")


def try_recovery(  # noqa: PLR0913  what was lost, why, and what may replace it
    trial: Trial,
    run: RunState,
    lost: Losses,
    cause: Cause,
    closure: ClosureReason,
    *,
    may_move: bool = True,
) -> bool:
    """Recovers the Run if that is possible; without ``may_move`` it can only become narrower."""
    checkpoint = trial.checkpoint()
    if Recovery(trial, run, cause, closure, may_move=may_move).recover(lost):
        return True
    trial.rollback(checkpoint)
    return False


class LostRanks(msgspec.Struct):
    """Lost ranks of one group: the pods of each lease, the group's domain and its spares."""

    group: int
    lost: list[tuple[GpuLease, list[PodSlots]]]
    domain: Domain | None
    spares: list[tuple[GpuLease, list[PodSlots]]]  # that were not lost

    @property
    def pods(self) -> int:
        return sum(len(pods) for _, pods in self.lost)

    def fewer(self) -> "LostRanks | None":
        """The same without the last rank; None if there is only one."""
        (lease, pods) = self.lost[-1]
        remaining = [*self.lost[:-1], *([(lease, pods[:-1])] if pods[1:] else [])]
        return msgspec.structs.replace(self, lost=remaining) if remaining else None


class Recovery:
    """One attempt to recover a Run that lost pods: first other work makes room, then the Run changes."""

    def __init__(
        self, trial: Trial, run: RunState, cause: Cause, closure: ClosureReason, *, may_move: bool = True
    ) -> None:
        self.trial = trial
        self.may_move = may_move  # lost ranks may get other slots
        self.world = trial.world
        self.run = run
        self.cause = cause
        self.closure = closure
        self.at = trial.world.now

    def recover(self, lost: Losses) -> bool:
        recovered: list[LostRanks] = []
        shrunk_groups: list[int] = []  # groups that lost ranks for good
        for lost_ranks in self._lost_ranks(lost):
            recoverable = self._recover_group(lost_ranks, recovered, lost)
            if recoverable is not lost_ranks:
                shrunk_groups.append(lost_ranks.group)
            if recoverable is not None:
                recovered.append(recoverable)
        broken_before = self._broken_promises(recovered)
        if not self._move(lost, recovered):
            return False
        if shrunk_groups and not self._shrink_without(shrunk_groups):
            return False
        for key in sorted(self._broken_promises(recovered) - broken_before):
            search_again_for_gang(self.trial, self.world.runs[key], Reason.NODE_FAILURE)
        return True

    def _recover_group(
        self, lost_ranks: LostRanks, recovered: list[LostRanks], lost: Losses
    ) -> LostRanks | None:
        """The ranks of a group that can move: all; some, if the Run may shrink; or None."""
        shape = self.run.shape
        remaining: LostRanks | None = lost_ranks
        while remaining is not None and not self._make_room(remaining, recovered, lost):
            remaining = (
                remaining.fewer() if shape is not None and shape.malleable and not shape.group else None
            )
        return remaining

    def _move(self, lost: Losses, recovered: list[LostRanks]) -> bool:
        """Ends the lost pods and opens leases for these ranks elsewhere, in one action."""
        has_ranks = any(self.run.leases[name].role != "Spare" for name in lost)
        self.trial.begin_action("Recover" if has_ranks else "DropSpare", self.run, self.at, self.cause)
        for name, pods in lost.items():
            self.trial.end_pods(self.run, name, pods, self.at, self.closure)
        return all(self._place(lost_ranks) for lost_ranks in recovered)

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
        """The domain of a group: that of its living pods, else that of the nodes it lost."""
        domains = self.world.fleet.domain_by_node
        leases = [lease for lease in self.run.leases.values() if lease.group == group]
        living = [
            node
            for lease in leases
            for node, _ in lease.slots
            if node in domains and not self.world.node_lifecycle.has_failed(node, lease.name)
        ]
        lost_nodes = [node for lease in leases for node, _ in lost.get(lease.name, ()) if node in domains]
        domain = next((domains[node] for node in (*living, *lost_nodes)), None)
        return domain or next(
            (deleted for lease in leases for deleted in self.world.node_lifecycle.deleted_domains(lease)),
            None,
        )

    def _spare_pods(self, group: int, lost: Losses) -> list[tuple[GpuLease, list[PodSlots]]]:
        """The group's spares that were not lost, whose nodes take pods and have their GPUs."""
        spares = [
            lease for lease in self.run.leases.values() if lease.role == "Spare" and lease.group == group
        ]
        return [
            (
                spare,
                [
                    pod
                    for pod in pods_of(spare.slots, self.run.pod_size)
                    if pod not in lost.get(spare.name, ())
                    and node_takes_pods(self.world, self.run, pod[0])
                    and not self.world.fleet.nodes[pod[0]].foreign_on_spares
                ],
            )
            for spare in sorted(spares, key=lease_number)
        ]

    # Making room

    def _make_room(self, lost_ranks: LostRanks, recovered: list[LostRanks], lost: Losses) -> bool:
        """Ends opportunistic work until these lost ranks fit, too; returns whether they do."""
        if not self.may_move or any(lease.role == "Opportunistic" for lease, _ in lost_ranks.lost):
            return False  # opportunistic work is not moved
        outer_checkpoint = self.trial.checkpoint()
        standby_pods = [pod for _, pods in lost_ranks.spares for pod in pods][: lost_ranks.pods]
        for node, mask in standby_pods:
            evict_from_spare(self.trial, node, mask, self.at, "ReclaimedBySpare")

        def fits() -> bool:
            checkpoint = self.trial.checkpoint()
            fits_now = self._move(lost, [*recovered, lost_ranks])
            self.trial.rollback(checkpoint)
            return fits_now

        domain = lost_ranks.domain
        if fits() or (
            domain and reclaim_least(self.trial, self._opportunistic_in(domain), lambda: True, fits)
        ):
            return True
        self.trial.rollback(outer_checkpoint)
        return False

    def _opportunistic_in(self, domain: Domain) -> list[ReclaimAction]:
        """Actions that end opportunistic work in the domain, newest first."""
        names = {
            name: None for node in sorted(domain.nodes) for name in self.world.leases_by_node.get(node, ())
        }
        leases = [self.world.posted_leases[name].lease for name in names]
        members = {member.key for member in self.world.run_graph.members(self.run)}  # they end with the Run
        opportunistic = [
            lease for lease in leases if lease.role == "Opportunistic" and lease.run_key not in members
        ]
        widths: dict[RunKey, int] = {}
        return [
            action
            for lease in newest_first(opportunistic)
            for action in opportunistic_reclaims(self.trial, lease, self.at, widths, ())
        ]

    def _demand(self, lease: GpuLease) -> PodDemand:
        shape = self.run.shape
        assert shape is not None
        envelope = self.world.budgets.envelope(lease.payer, lease.payer_owner, lease.flavor)
        return PodDemand(
            size=self.run.pod_size,
            cpu_milli=shape.cpu_milli,
            memory_bytes=shape.memory_bytes,
            others=shape.requirements.others,
            requirements=shape.requirements,
            tolerations=shape.tolerations,
            node_selector=shape.node_selector,
            avoided_nodes=self.run.avoided_nodes,
            payer_selectors=envelope.selector,
        )

    def _broken_promises(self, lost_ranks: list[LostRanks]) -> set[RunKey]:
        """Runs whose promises in the domains of these groups can no longer be kept."""
        runs = self.world.runs
        keys = {key for ranks in lost_ranks if ranks.domain for key in ranks.domain.promises}
        return {key for key in keys if key in runs and broken_reason(self.world, runs[key])}

    # Changing the Run

    def _place(self, lost_ranks: LostRanks) -> bool:
        """Places lost ranks: on the group's spares, then on free slots of its domain."""
        for lease, pods in self._swap(lost_ranks):
            slots = (
                pick_slots(lost_ranks.domain, len(pods), self._demand(lease)) if lost_ranks.domain else None
            )
            if slots is None:
                return False
            self._open(lease, list(pods_of(slots, self.run.pod_size)), "Recover")
        return True

    def _swap(self, lost_ranks: LostRanks) -> list[tuple[GpuLease, list[PodSlots]]]:
        """Places lost ranks on the group's spares; returns the ranks for which there is no spare."""
        left = [(lease, list(pods)) for lease, pods in lost_ranks.lost]
        for spare, standby_pods in self._spare_pods(lost_ranks.group, {}):
            pods_chosen = standby_pods[: sum(len(pods) for _, pods in left)]
            if not pods_chosen:
                continue
            self.trial.end_pods(self.run, spare.name, pods_chosen, self.at, "Swap")
            for lease, pods in left:
                pods_taken, pods_chosen = pods_chosen[: len(pods)], pods_chosen[len(pods) :]
                del pods[: len(pods_taken)]
                self._open(lease, pods_taken, "Swap")
        return [(lease, pods) for lease, pods in left if pods]

    def _open(self, lease: GpuLease, pods: list[PodSlots], reason: OpenReason) -> None:
        """Charges these pods to the payer of the lost ones; else to another payer, or demotes them."""
        envelope = self.world.budgets.envelope(lease.payer, lease.payer_owner, lease.flavor)
        # Budgets may have been edited since.
        may_charge = funding_class(self.world, envelope, self.run) == lease.class_
        pods_paid = [pod for pod in pods if may_charge and pays_on(self.trial, envelope, pod[0])]
        pods_unpaid = [pod for pod in pods if pod not in pods_paid]
        if pods_paid:
            terms = LeaseTerms(envelope, lease.class_, "Active", lease.group)
            self.trial.open(self.run, terms, join_pods(pods_paid), self.at, reason)
        if pods_unpaid:
            lease_part = msgspec.structs.replace(lease, slots=join_pods(pods_unpaid))
            if not repay(self.trial, self.run, lease_part, self.at, (), reason):
                demote(self.trial, self.run, lease_part, self.at)

    def _shrink_without(self, groups: list[int]) -> bool:
        """Shrinks a malleable Run by what found no slots, to a width that it may have (F4)."""
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
