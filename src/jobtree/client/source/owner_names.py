"""Refuses the name of a team that owns nothing in the cluster."""

from collections.abc import Iterator

from jobtree.api.schema.near_names import suggestion
from jobtree.client.errors import NotFoundError
from jobtree.client.source.lease_entries import belongs_to
from jobtree.snapshot.cluster import Cluster


def refuse_unknown_owner(cluster: Cluster, owner: str | None) -> None:
    """Raises NotFoundError unless a Budget, a Run or a lease belongs to the team or to a team below it."""
    owners = set(known_owners(cluster))
    if owner is None or any(belongs_to(known, owner) for known in owners):
        return
    teams = {":".join(known.split(":")[: end + 1]) for known in owners for end in range(known.count(":") + 1)}
    hint = suggestion(owner, teams) or "'kubectl runs budgets usage' lists the owners of all Budgets"
    raise NotFoundError(f"no Budget, Run or lease belongs to {owner}: {hint}", "Budget", owner)


def known_owners(cluster: Cluster) -> Iterator[str]:
    for budget in cluster.world.budgets.budgets.values():
        yield budget.spec.owner
        yield from budget.spec.parents or ()
    for run in cluster.world.runs.values():
        yield run.owner
    for _, body in cluster.objects.of("Lease"):
        yield body["spec"]["owner"]
        yield body["spec"]["payer"]["owner"]
