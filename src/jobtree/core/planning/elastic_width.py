"""Elastic width: Runs grow by steps towards what they want, and shrink when asked to (SPEC section 7).

Growth comes last in a pass: it takes only what is free and paid for, and nothing that a waiting Run needs.
Spares that a group lacks are added in the same manner (P5).
"""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

from jobtree.core.availability.shrink_steps import LeasePart
from jobtree.core.funding.cover import GangFunding, funding_refusals
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
from jobtree.core.world.payer_candidates import payer_candidates
from jobtree.core.world.world import World

Stalled = dict[RunKey, tuple[Cause, ...]]
GrowthHead = tuple[CreationOrder, bool, GrowthSignature | None]  # whether it is of any kind, and of which
GREW: GrowthSignature = ()  # one by one


def grow_runs(trial: Trial) -> tuple[Stalled, tuple[str, ...]]:
    """Let every Run that may grow take one step; why the others cannot, and the flavors that were asked."""
    world = trial.world
    stalled: Stalled = {}
    asked: list[str] = []
    for name, flavor in sorted(world.fleet.flavors.items()):
        if not flavor.growth_candidates or flavor.growth_checked_generation == flavor.reconsider_generation:
            continue
        stuck = StalledGrowth(trial, flavor)
        for run in stuck.candidates():
            if run.wants_growth and run.changed_at < world.now:
                whys = (*grow_one_step(trial, run, flavor), *add_spares(trial, run))
                if whys:
                    stalled[run.key] = whys
        asked.append(name)
    return stalled, tuple(asked)


class StalledGrowth:
    """Which Runs need not be asked to grow: they were told why not, and it is certain that they still cannot.

    What they were told may then speak of earlier figures (``refresh_stalled_verdicts``).
    """

    def __init__(self, trial: Trial, flavor: FlavorPool) -> None:
        self._trial = trial
        self._flavor = flavor
        self._moved = trial.causes()
        self._mark = trial.checkpoint()
        self._broke: dict[tuple[str, int, int], bool] = {}
        self._crowded: dict[tuple[object, ...], bool] = {}

    def candidates(self) -> Iterator[RunState]:
        """All others, in order of creation, as things stand when each has its turn.

        Of those who are alike the first answers for all, until somebody has grown.
        """
        runs, last, heads = self._trial.world.runs, None, self._heads(None)
        while heads:
            order, _, like = heappop(heads)
            run = runs.get(order[1:])
            if run is not None and order != last and not self.is_certainly_stalled(run):
                mark, last = self._trial.checkpoint(), order
                yield run
                if self._trial.checkpoint() != mark:
                    heads = self._heads(order)
                    continue
            elif like and order != last:
                continue  # those who are like it are as stuck
            following = (
                None if like == GREW else self._flavor.growth_candidates.next_with_signature(like, order)
            )
            if following is not None:
                heappush(heads, (following, like is not None, like))

    def _heads(self, after: CreationOrder | None) -> list[GrowthHead]:
        """The first of every kind behind that Run, and all to whom something happened, as a heap."""
        eager, runs = self._flavor.growth_candidates, self._trial.world.runs
        heads: list[GrowthHead] = [
            (order, like is not None, like) for order, like in eager.first_of_each_signature(after)
        ]
        moved = [runs[key].creation_order for key in self._moved if key in eager and key in runs]
        heads += [(order, True, GREW) for order in moved if after is None or order > after]
        heapify(heads)
        return heads

    def _reach(self) -> int:
        return self._flavor.free + self._flavor.opportunistic_slots

    def is_certainly_stalled(self, run: RunState) -> bool:
        """Whether asking this Run is certain to change nothing."""
        shape = run.shape
        if shape is None or shape.spares or run.key in self._moved or not run.is_reported_stalled:
            return False
        if shape.step > self._reach():
            return True
        if shape.max_duration is not None or run.provisional or run.promise is not None:
            return False
        if self._trial.checkpoint() != self._mark:
            self._mark = self._trial.checkpoint()
            self._broke.clear()
            self._crowded.clear()
        return self._lacks_room(run, shape) or self._lacks_funding(run, shape)

    def _lacks_room(self, run: RunState, shape: GangShape) -> bool:
        """Whether what is free has no place for a step beside the promises: alike for all open-ended Runs."""
        if self._flavor.opportunistic_slots:
            return False
        gpus = min(shape.group or shape.step, shape.step)
        pod = (run.pod_size, shape.cpu_milli, shape.memory_bytes, shape.tolerations, shape.node_selector)
        key = (gpus, *pod)
        known = self._crowded.get(key)
        if known is None:
            layout = GangLayout(self._trial, run, run.pod_size, self._trial.world.now, "Grow")
            domains = self._flavor.in_pack_order(gpus)
            known = self._crowded[key] = all(layout.unreserved_gpus(domain) < gpus for domain in domains)
        return known

    def _lacks_funding(self, run: RunState, shape: GangShape) -> bool:
        """Whether nobody pays for a step: alike for all open-ended Runs of an owner without other terms."""
        if run.quotas or run.sponsors:
            return False
        key = (run.owner, shape.step, run.pod_size)
        known = self._broke.get(key)
        if known is None:
            world = self._trial.world
            means = GangFunding(world, run, run.pod_size, world.now, unpaid=False)
            payers = payer_candidates(world, run)
            known = self._broke[key] = (
                means.affordable_by_selector(payers, shape.step // run.pod_size) is None
            )
        return known


def refresh_stalled_verdicts(world: World) -> list[RunKey]:
    """Bring up to date what Runs are told that cannot grow; those that are told something else."""
    trial = Trial(world)
    changed = []
    for _, flavor in sorted(world.fleet.flavors.items()):
        for run in [world.runs[key] for key in flavor.growth_candidates if key in world.runs]:
            shape, verdict = run.shape, run.verdict
            if shape is None or verdict is None or not run.is_reported_stalled or run.width >= shape.desired:
                continue
            why = Cause(
                Reason.NOT_GROWING,
                growth_obstacle(trial, run, flavor, shape.step),
                run.width,
                shape.desired,
            )
            if verdict.causes[0] != why:
                run.record_verdict(Verdict(verdict.phase, (why, *verdict.causes[1:])))
                changed.append(run.key)
    return changed


def grow_one_step(trial: Trial, run: RunState, flavor: FlavorPool) -> list[Cause]:
    """One step wider; where that cannot be, why not."""
    shape, now = run.shape, trial.world.now
    assert shape is not None
    if not shape.may_grow or run.width >= shape.desired:
        return []
    step = shape.step

    def attempt() -> bool:
        mark = trial.checkpoint()
        trial.begin_action("Grow", run, now, Cause(Reason.GROWN, "", step, step))
        if place_step(trial, run, step):
            return True
        trial.rollback(mark)
        return False

    if flavor.free >= step and attempt():
        return []
    if flavor.free + flavor.opportunistic_slots >= step:
        takings = reclaim_actions(trial, run, now)
        if reclaim_least(trial, takings, lambda: flavor.free >= step, attempt):
            return []
    return [Cause(Reason.NOT_GROWING, growth_obstacle(trial, run, flavor, step), run.width, shape.desired)]


def place_step(trial: Trial, run: RunState, step: int) -> bool:
    """Place one step: whole groups where grouped, else pods beside those that are there, else a new part."""
    shape = run.shape
    assert shape is not None
    layout = GangLayout(trial, run, run.pod_size, trial.world.now, "Grow")
    homes = group_domains(trial, run)
    only = None if shape.spread else list(homes.values())[:1]
    if shape.group:
        return all(
            layout.place_group(free_group(run), gpus // run.pod_size, shape.spares, only)
            for gpus in shape.groups(step)
        )
    pods = step // run.pod_size
    for group, domain in homes.items():
        if layout.place_group(group, pods, 0, [domain]):
            return True
    return shape.spread and layout.place_group(free_group(run), pods, shape.spares) is not None


def group_domains(trial: Trial, run: RunState) -> dict[int, Domain]:
    """Where each group sits, in the order of groups."""
    nodes = trial.world.fleet.nodes
    found: dict[int, Domain] = {}
    for lease in sorted(run.leases.values(), key=lambda lease: (lease.group, lease.name)):
        for node, _ in lease.slots:
            if node in nodes:
                found.setdefault(lease.group, nodes[node].domain)
    return found


def free_group(run: RunState) -> int:
    """The first number that no group of the Run has."""
    used = {lease.group for lease in run.leases.values()}
    return next(number for number in range(len(used) + 1) if number not in used)


def growth_obstacle(trial: Trial, run: RunState, flavor: FlavorPool, step: int) -> str:
    """Why a step cannot be taken, in words."""
    shape = run.shape
    assert shape is not None
    world = trial.world
    whys = funding_refusals(world, run, step, run.pod_size, world.now)
    if not whys:
        layout = GangLayout(trial, run, run.pod_size, world.now, "Grow")
        have = min(step, placeable_gpus(flavor, layout.demand(), shape))
        reason = Reason.NO_FREE_SLOTS if have < step else Reason.HELD
        whys = [Cause(reason, f"flavor {flavor.name}", have if have < step else 0, step)]
    return "; ".join(str(why) for why in whys)


def add_spares(trial: Trial, run: RunState) -> list[Cause]:
    """Standby pods that groups lack, each group by itself (P5)."""
    now, size = trial.world.now, run.pod_size
    lacking = run.missing_spares()
    homes = group_domains(trial, run) if lacking else {}
    for group, pods in lacking.items():
        mark = trial.checkpoint()
        trial.begin_action("AddSpare", run, now, Cause(Reason.SPARE_ADDED, "", pods * size, pods * size))
        layout = GangLayout(trial, run, size, now, "Grow")
        if group not in homes or not layout.place_spares(group, pods, homes[group]):
            trial.rollback(mark)
    missing = sum(run.missing_spares().values()) * size
    return [Cause(Reason.SPARE_MISSING, "no room or no money", 0, missing)] if missing else []


# Narrower


def shrink_to(trial: Trial, run: RunState, width: int) -> None:
    """The Run wants to be narrower: whole groups, those that others pay for first; else its highest ranks."""
    shape, now = run.shape, trial.world.now
    assert shape is not None
    trial.begin_action("Shrink", run, now, Cause(Reason.RESIZED, "", width, width))
    shrink_by(trial, run, run.width - width, now)


def shrink_by(trial: Trial, run: RunState, gpus: int, at: int) -> None:
    """Give up so many GPUs of a malleable Run (E2). The action they belong to has begun."""
    shape = run.shape
    assert shape is not None
    if not shape.group:
        highest = reversed(ranks_in_order(run).values())
        pieces = [LeasePart(lease, *pod) for lease, pod in highest][: gpus // run.pod_size]
        end_lease_parts(trial, run, pieces, at, "Shrink")
        return
    owned: dict[int, int] = {}
    held: dict[int, int] = {}
    for lease in run.leases.values():
        if lease.role != "Spare":
            held[lease.group] = held.get(lease.group, 0) + lease.gpus
            owned[lease.group] = owned.get(lease.group, 0) + lease.gpus * (lease.class_ == "Owned")
    going: list[int] = []
    for group in sorted(held, key=lambda group: (owned[group], -group)):
        if gpus > 0:
            going.append(group)
            gpus -= held[group]
    close_groups(trial, run, going, at)


def close_groups(trial: Trial, run: RunState, groups: Iterable[int], at: int) -> None:
    close_all(trial, [lease for lease in run.leases.values() if lease.group in set(groups)], at, "Shrink")
