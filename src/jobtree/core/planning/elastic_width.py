"""Grows malleable Runs step by step, shrinks them on request, and adds missing spares (section 7).

Growth comes last in a pass: it takes only GPUs that are free and funded, and none that a waiting Run needs.
Spares that a group lacks are added in the same way (P5).
"""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

from jobtree.core.availability.shrink_steps import LeasePart
from jobtree.core.funding.cover import GangFunding, funding_refusals
from jobtree.core.funding.payer_candidates import payer_candidates
from jobtree.core.model.gang_shape import GangShape
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import CreationOrder
from jobtree.core.model.reasons import Cause, Reason, Verdict
from jobtree.core.operations.gang_layout import GangLayout
from jobtree.core.operations.reclaim import close_all, end_lease_parts, reclaim_actions, reclaim_least
from jobtree.core.operations.trial import Trial
from jobtree.core.planning.admission import placeable_gpus
from jobtree.core.runs.rank_assignment import ranks_in_order
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.domain import Domain
from jobtree.core.supply.flavor_pool import FlavorPool
from jobtree.core.supply.growth_candidates import GrowthSignature
from jobtree.core.world.world import World

Stalled = dict[RunKey, tuple[Cause, ...]]
# A candidate, whether it has a signature, and which.
GrowthHead = tuple[CreationOrder, bool, GrowthSignature | None]
GREW: GrowthSignature = ()  # of Runs that this pass acted on, which are considered one by one


def grow_runs(trial: Trial) -> tuple[Stalled, tuple[str, ...]]:
    """Grows each Run that may grow by one step; returns the causes of the others, and the flavors checked."""
    world = trial.world
    stalled: Stalled = {}
    flavors_checked: list[str] = []
    for name, flavor in sorted(world.fleet.flavors.items()):
        if not flavor.growth_candidates or flavor.growth_checked_generation == flavor.reconsider_generation:
            continue
        candidates = StalledGrowth(trial, flavor)
        for run in candidates.candidates():
            if run.wants_growth and run.changed_at < world.now:
                causes = (*grow_one_step(trial, run, flavor), *add_spares(trial, run))
                if causes:
                    stalled[run.key] = causes
        flavors_checked.append(name)
    return stalled, tuple(flavors_checked)


class StalledGrowth:
    """Skips growth candidates that were refused before and are certain to be refused again.

    Their verdicts may then have earlier figures (``refresh_stalled_verdicts``).
    """

    def __init__(self, trial: Trial, flavor: FlavorPool) -> None:
        self._trial = trial
        self._flavor = flavor
        self._disturbed = trial.causes()
        self._checkpoint = trial.checkpoint()
        self._lacking_funding: dict[tuple[str, int, int], bool] = {}
        self._lacking_room: dict[tuple[object, ...], bool] = {}

    def candidates(self) -> Iterator[RunState]:
        """The Runs that are to be considered, in creation order, each as the world is when its turn comes.

        The first of those with one signature answers for all of them, until a Run has grown.
        """
        runs, last_order, heap = self._trial.world.runs, None, self._heads(None)
        while heap:
            creation_order, _, signature = heappop(heap)
            run = runs.get(creation_order[1:])
            if run is not None and creation_order != last_order and not self.is_certainly_stalled(run):
                checkpoint, last_order = self._trial.checkpoint(), creation_order
                yield run
                if self._trial.checkpoint() != checkpoint:
                    heap = self._heads(creation_order)
                    continue
            elif signature and creation_order != last_order:
                continue  # Runs with the same signature cannot grow either
            next_order = (
                None
                if signature == GREW
                else self._flavor.growth_candidates.next_with_signature(signature, creation_order)
            )
            if next_order is not None:
                heappush(heap, (next_order, signature is not None, signature))

    def _heads(self, after: CreationOrder | None) -> list[GrowthHead]:
        """The first candidate of each signature behind that Run, and all Runs of this pass, as a heap."""
        growth_candidates, runs = self._flavor.growth_candidates, self._trial.world.runs
        heap: list[GrowthHead] = [
            (creation_order, signature is not None, signature)
            for creation_order, signature in growth_candidates.first_of_each_signature(after)
        ]
        disturbed = [
            runs[key].creation_order for key in self._disturbed if key in growth_candidates and key in runs
        ]
        heap += [
            (creation_order, True, GREW)
            for creation_order in disturbed
            if after is None or creation_order > after
        ]
        heapify(heap)
        return heap

    def _reachable_gpus(self) -> int:
        return self._flavor.free + self._flavor.opportunistic_slots

    def is_certainly_stalled(self, run: RunState) -> bool:
        """Whether considering this Run is certain to change nothing."""
        shape = run.shape
        if shape is None or shape.spares or run.key in self._disturbed or not run.is_reported_stalled:
            return False
        if shape.step > self._reachable_gpus():
            return True
        if shape.max_duration is not None or run.provisional or run.promise is not None:
            return False
        if self._trial.checkpoint() != self._checkpoint:
            self._checkpoint = self._trial.checkpoint()
            self._lacking_funding.clear()
            self._lacking_room.clear()
        return self._lacks_room(run, shape) or self._lacks_funding(run, shape)

    def _lacks_room(self, run: RunState, shape: GangShape) -> bool:
        """Whether no domain has room for a step beside the promises: the same for all open-ended Runs."""
        if self._flavor.opportunistic_slots:
            return False
        gpus = min(shape.group or shape.step, shape.step)
        pod_demand = (
            run.pod_size,
            shape.cpu_milli,
            shape.memory_bytes,
            shape.tolerations,
            shape.node_selector,
            shape.requirements,
            run.avoided_nodes,
        )
        key = (gpus, *pod_demand)
        cached = self._lacking_room.get(key)
        if cached is None:
            layout = GangLayout(self._trial, run, run.pod_size, self._trial.world.now, "Grow")
            domains = self._flavor.in_pack_order(gpus)
            cached = self._lacking_room[key] = all(
                layout.unreserved_gpus(domain) < gpus for domain in domains
            )
        return cached

    def _lacks_funding(self, run: RunState, shape: GangShape) -> bool:
        """Whether no payer can pay for a step: the same for the owner's open-ended Runs without sponsors."""
        if run.quotas or run.sponsors:
            return False
        key = (run.owner, shape.step, run.pod_size)
        cached = self._lacking_funding.get(key)
        if cached is None:
            world = self._trial.world
            funding = GangFunding(world, run, run.pod_size, world.now, opportunistic=False)
            payers = payer_candidates(world, run)
            cached = self._lacking_funding[key] = (
                funding.affordable_by_selector(payers, shape.step // run.pod_size) is None
            )
        return cached


def refresh_stalled_verdicts(world: World) -> list[RunKey]:
    """Updates the verdicts of Runs that cannot grow; returns the Runs whose verdict changed."""
    trial = Trial(world)
    changed = []
    for _, flavor in sorted(world.fleet.flavors.items()):
        for run in [world.runs[key] for key in flavor.growth_candidates if key in world.runs]:
            shape, verdict = run.shape, run.verdict
            if shape is None or verdict is None or not run.is_reported_stalled or run.width >= shape.desired:
                continue
            cause = Cause(
                Reason.NOT_GROWING,
                growth_obstacle(trial, run, flavor, shape.step),
                run.width,
                shape.desired,
            )
            if verdict.causes[0] != cause:
                run.record_verdict(Verdict(verdict.phase, (cause, *verdict.causes[1:])))
                changed.append(run.key)
    return changed


def grow_one_step(trial: Trial, run: RunState, flavor: FlavorPool) -> list[Cause]:
    """Grows the Run by one step; returns the cause if that is impossible."""
    shape, now = run.shape, trial.world.now
    assert shape is not None
    if not shape.may_grow or run.width >= shape.desired:
        return []
    step = shape.step

    def attempt() -> bool:
        checkpoint = trial.checkpoint()
        trial.begin_action("Grow", run, now, Cause(Reason.GROWN, "", step, step))
        if place_step(trial, run, step):
            return True
        trial.rollback(checkpoint)
        return False

    if flavor.free >= step and attempt():
        return []
    if flavor.free + flavor.opportunistic_slots >= step:
        actions = reclaim_actions(trial, run, now)
        if reclaim_least(trial, actions, lambda: flavor.free >= step, attempt):
            return []
    return [Cause(Reason.NOT_GROWING, growth_obstacle(trial, run, flavor, step), run.width, shape.desired)]


def place_step(trial: Trial, run: RunState, step: int) -> bool:
    """Places one step: as whole groups; without groups, beside the Run's pods, or else as a new part."""
    shape = run.shape
    assert shape is not None
    layout = GangLayout(trial, run, run.pod_size, trial.world.now, "Grow")
    domains = group_domains(trial, run)
    only = None if shape.spread else list(domains.values())[:1]
    if shape.group:
        return all(
            layout.place_group(free_group(run), gpus // run.pod_size, shape.spares, only)
            for gpus in shape.groups(step)
        )
    pods = step // run.pod_size
    for group, domain in domains.items():
        if layout.place_group(group, pods, 0, [domain]):
            return True
    return shape.spread and layout.place_group(free_group(run), pods, shape.spares) is not None


def group_domains(trial: Trial, run: RunState) -> dict[int, Domain]:
    """The domain of each group, in the order of groups."""
    domain_by_node = trial.world.fleet.domain_by_node
    domains: dict[int, Domain] = {}
    for lease in sorted(run.leases.values(), key=lambda lease: (lease.group, lease.name)):
        for node, _ in lease.slots:
            if node in domain_by_node:
                domains.setdefault(lease.group, domain_by_node[node])
    return domains


def free_group(run: RunState) -> int:
    """The least number that no group of the Run has."""
    used = {lease.group for lease in run.leases.values()}
    return next(number for number in range(len(used) + 1) if number not in used)


def growth_obstacle(trial: Trial, run: RunState, flavor: FlavorPool, step: int) -> str:
    """The causes why the Run cannot grow by a step, as text."""
    shape = run.shape
    assert shape is not None
    world = trial.world
    causes = funding_refusals(world, run, step, run.pod_size, world.now)
    if not causes:
        layout = GangLayout(trial, run, run.pod_size, world.now, "Grow")
        available = min(step, placeable_gpus(flavor, layout.demand(), shape))
        reason = Reason.NO_FREE_SLOTS if available < step else Reason.HELD
        causes = [Cause(reason, f"flavor {flavor.name}", available if available < step else 0, step)]
    return "; ".join(str(cause) for cause in causes)


def add_spares(trial: Trial, run: RunState) -> list[Cause]:
    """Adds the spares that groups lack, each group on its own (P5)."""
    now, pod_size = trial.world.now, run.pod_size
    missing_by_group = run.missing_spares()
    domains = group_domains(trial, run) if missing_by_group else {}
    for group, pods in missing_by_group.items():
        checkpoint = trial.checkpoint()
        trial.begin_action(
            "AddSpare", run, now, Cause(Reason.SPARE_ADDED, "", pods * pod_size, pods * pod_size)
        )
        layout = GangLayout(trial, run, pod_size, now, "Grow")
        if group not in domains or not layout.place_spares(group, pods, domains[group]):
            trial.rollback(checkpoint)
    missing = sum(run.missing_spares().values()) * pod_size
    return (
        [Cause(Reason.SPARE_MISSING, "no node or no envelope has room for them", 0, missing)]
        if missing
        else []
    )


# Shrinking


def shrink_to(trial: Trial, run: RunState, width: int) -> None:
    """Shrinks the Run: by whole groups, first those that its owner does not pay for, or by its last ranks."""
    shape, now = run.shape, trial.world.now
    assert shape is not None
    trial.begin_action("Shrink", run, now, Cause(Reason.RESIZED, "", width, width))
    shrink_by(trial, run, run.width - width, now)


def shrink_by(trial: Trial, run: RunState, gpus: int, at: int) -> None:
    """Ends so many GPUs of a malleable Run (E2), as part of the action that was begun last."""
    shape = run.shape
    assert shape is not None
    if not shape.group:
        highest = reversed(ranks_in_order(run).values())
        parts = [LeasePart(lease, *pod) for lease, pod in highest][: gpus // run.pod_size]
        end_lease_parts(trial, run, parts, at, "Shrink")
        return
    owned_by_group: dict[int, int] = {}
    gpus_by_group: dict[int, int] = {}
    for lease in run.leases.values():
        if lease.role != "Spare":
            gpus_by_group[lease.group] = gpus_by_group.get(lease.group, 0) + lease.gpus
            owned_by_group[lease.group] = owned_by_group.get(lease.group, 0) + lease.gpus * (
                lease.class_ == "Owned"
            )
    groups: list[int] = []
    for group in sorted(gpus_by_group, key=lambda group: (owned_by_group[group], -group)):
        if gpus > 0:
            groups.append(group)
            gpus -= gpus_by_group[group]
    close_groups(trial, run, groups, at)


def close_groups(trial: Trial, run: RunState, groups: Iterable[int], at: int) -> None:
    close_all(trial, [lease for lease in run.leases.values() if lease.group in set(groups)], at, "Shrink")
