"""Converts ClusterQueues and Cohorts to Budgets.

A cohort becomes a family, and its members become siblings: the others may use what one does not use, and its
owner recalls it. The owner of a queue is the path of its cohorts and its own name.

``nominalQuota`` becomes an envelope. ``lendingLimit`` splits it into two, of which the family may use one.
``borrowingLimit`` has no equivalent in a family: a queue with a limit is outside the family, and borrows from
the others as sponsors, up to the limit.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from jobtree.api.kubernetes.resource_quantities import Quantity, whole
from jobtree.api.schema.gpu_resources import GPU_RESOURCES
from jobtree.api.schema.object_meta import API_VERSION
from jobtree.api.schema.problems import InputError
from jobtree.importers.conversion import Converted, ObjectBody
from jobtree.importers.kubernetes_names import short_name, unused
from jobtree.importers.kueue.kueue_kinds import KueueMetadata, Queue
from jobtree.importers.kueue.resource_flavors import Flavors

MAX_LENDEES = 64
MAX_SPONSORS = 16


@dataclass(frozen=True)
class Share:
    """GPUs of a ResourceFlavor in a queue: its own, and how many it lends and borrows (None: any)."""

    flavor: str
    nominal: int
    lendable: int
    borrowing: int | None


@dataclass
class Team:
    """A ClusterQueue or Cohort, and its owner."""

    queue: Queue
    where: str
    owner: str
    cohort: str
    shares: list[Share]
    is_cohort: bool
    sponsors: list[str] = field(default_factory=list)

    @property
    def is_outside_family(self) -> bool:
        """Whether it is outside the family, since it has a borrowing limit."""
        return any(share.borrowing is not None for share in self.shares)

    def limit(self, flavor: str) -> int | None:
        return next((share.borrowing for share in self.shares if share.flavor == flavor), None)


def read_teams(queues: Mapping[str, Queue], cohorts: Mapping[str, Queue], out: Converted) -> dict[str, Team]:
    """The teams of ClusterQueues (by name) and Cohorts (by ``cohort/NAME``). Raises InputError."""
    teams: dict[str, Team] = {}
    implied = {queue.above for queue in queues.values()} | {cohort.above for cohort in cohorts.values()}
    for name in sorted(({*cohorts} | implied) - {""}):
        path = _path(name, cohorts)
        cohort = cohorts.get(name)
        shares = list(_shares(cohort, f"Cohort {name}", out)) if cohort else []
        queue = cohort or Queue(metadata=KueueMetadata(name=name))
        teams[f"cohort/{name}"] = Team(queue, f"Cohort {name}", ":".join(path), queue.above, shares, True)  # noqa: FBT003
    for name, queue in queues.items():
        path = [*(_path(queue.above, cohorts) if queue.above else ()), short_name(name)]
        shares = list(_shares(queue, f"ClusterQueue {name}", out))
        teams[name] = Team(queue, f"ClusterQueue {name}", ":".join(path), queue.above, shares, False)  # noqa: FBT003
    _find_sponsors(teams)
    return teams


def _path(name: str, cohorts: Mapping[str, Queue]) -> list[str]:
    """The path of a cohort from the root. Raises InputError for a cycle."""
    path = [name]
    while (cohort := cohorts.get(path[-1])) and cohort.above:
        if cohort.above in path:
            around = " → ".join([*path[path.index(cohort.above) :], cohort.above])
            raise InputError(
                f"Cohort {name}", [f"spec.parentName: {around} is a cycle: remove one of these parents"]
            )
        path.append(cohort.above)
    return [short_name(part) for part in reversed(path)]


def _shares(queue: Queue, where: str, out: Converted) -> Iterator[Share]:
    covered = False
    for group in queue.spec.resource_groups:
        for flavor in group.flavors:
            for quota in flavor.resources:
                if quota.name in GPU_RESOURCES:
                    covered = True
                    nominal = _gpus(quota.nominal_quota, where, "nominalQuota")
                    lendable = nominal
                    if quota.lending_limit is not None:
                        lendable = min(nominal, _gpus(quota.lending_limit, where, "lendingLimit"))
                    limit = quota.borrowing_limit
                    borrowing = None if limit is None else _gpus(limit, where, "borrowingLimit")
                    yield Share(flavor.name, nominal, lendable, borrowing)
                else:
                    hint = "Budgets have only GPUs; pods still need nodes with what they request"
                    out.remark(where, f"quota of {quota.name}", hint)
    if queue.spec.resource_groups and not covered:
        out.remark(where, "no quota of GPUs", "its Budget has no envelopes: its family pays for its Runs")


def _gpus(quantity: Quantity, where: str, field_name: str) -> int:
    try:
        return whole(quantity)
    except ValueError as broken:
        raise InputError(where, [f"{field_name}: {broken}"]) from None


def _find_sponsors(teams: Mapping[str, Team]) -> None:
    """A team outside the family borrows from all teams that lend to it, and they from it."""
    for team in teams.values():
        lenders = [other for key, other in teams.items() if other is not team and _lends(key, other, team)]
        sponsors = [
            other.owner
            for other in lenders
            if team.is_outside_family or (other.is_outside_family and not other.is_cohort)
        ]
        team.sponsors = sorted(sponsors)[:MAX_SPONSORS]


def _lends(key: str, lender: Team, team: Team) -> bool:
    """Whether Kueue lets the team use what the lender does not: it is in the same cohort, or the cohort."""
    related = lender.cohort == team.cohort or key == f"cohort/{team.cohort}"
    return bool(team.cohort) and related and any(share.lendable for share in lender.shares)


def budgets(teams: Mapping[str, Team], flavors: Flavors, out: Converted) -> list[ObjectBody]:
    """The Budgets of all teams."""
    names: set[str] = set()
    documents = []
    for team in teams.values():
        name = unused(short_name(team.queue.metadata.name), names)
        names.add(name)
        lendees = [other.owner for other in teams.values() if team.owner in other.sponsors]
        spec: dict[str, Any] = {"owner": team.owner}
        if team.is_outside_family:
            spec["parents"] = []
            out.remark(
                team.where,
                "borrowingLimit",
                "the team borrows from sponsors, and its limit (maxBorrowGPUs) holds for each Run by itself",
            )
        spec["envelopes"] = [
            envelope for share in team.shares for envelope in _envelopes(share, flavors, lendees)
        ]
        documents.append(
            {"apiVersion": API_VERSION, "kind": "Budget", "metadata": {"name": name}, "spec": spec}
        )
    return documents


def _envelopes(share: Share, flavors: Flavors, lendees: list[str]) -> Iterator[ObjectBody]:
    """The envelopes of a share: one for the team alone, one that others may use."""
    name = short_name(share.flavor, "gpus")
    common: ObjectBody = {"flavor": flavors.name(share.flavor)}
    selector = flavors.selector(share.flavor)
    if selector:
        common["selector"] = selector
    kept = share.nominal - share.lendable
    if kept > 0:
        yield {"name": name, **common, "concurrency": kept, "sharing": "none"}
    if share.lendable > 0:
        shared: ObjectBody = {
            "name": f"{name}-shared" if kept > 0 else name,
            **common,
            "concurrency": share.lendable,
        }
        if lendees:
            shared["lending"] = {"allow": True, "to": lendees[:MAX_LENDEES]}
        yield shared
