"""The history of a Run: why it is as it is, what it held and who paid, and the lotteries that it was in."""

from collections.abc import Iterator
from typing import Any

from jobtree.api.kinds.run import FundingShare
from jobtree.api.kinds.run_plan import RunPlan
from jobtree.client.answers.html_tables import html_section, html_table
from jobtree.client.answers.lease_rows import LeaseRow, lease_row
from jobtree.client.answers.rows import Rows
from jobtree.client.lottery.resolution_records import Resolution, resolutions
from jobtree.client.lottery.risk_entries import RiskEntry, risks_of
from jobtree.client.plans.plan_builder import run_plan
from jobtree.client.source.lease_entries import entries
from jobtree.client.source.ledger_period import ALWAYS
from jobtree.core import RunState, World, funding_status
from jobtree.snapshot.cluster import Cluster


class Explanation:
    """A Run with its leases, and all Reservations that concern it; of a job tree, also its stages."""

    def __init__(self, cluster: Cluster, run: RunState) -> None:
        self.state = run
        self._cluster = cluster
        documents = cluster.documents()
        self.body: dict[str, Any] = cluster.objects.get(("Run", *run.key)) or {}
        self.stages = [Explanation(cluster, child) for child in cluster.world.run_graph.children(run)]
        self.entries = entries(cluster, lambda lease: (lease.run_key, lease.uid) == (run.key, run.uid))
        self.resolutions: list[Resolution] = [item for item in resolutions(documents) if run.uid in item.uids]
        self.reservations = [
            body
            for _, body in cluster.objects.of("Reservation")
            if body["spec"]["runRef"]["uid"] == run.uid or any(body is item.body for item in self.resolutions)
        ]

    @property
    def world(self) -> World:
        return self._cluster.world

    @property
    def plan(self) -> RunPlan:
        """Why it waits and what would help, or its slots and payers; its promise."""
        return run_plan(self.world, self.state, self.body)

    @property
    def risks(self) -> list[RiskEntry]:
        """Promised starts that might stop it."""
        return risks_of(self.body)

    @property
    def leases(self) -> Rows[LeaseRow]:
        """Its leases, oldest first."""
        policy, now = self.world.policy, self._cluster.now
        return Rows("leases", (lease_row(policy, now, entry, ALWAYS) for entry in self.entries))

    @property
    def payers(self) -> list[FundingShare]:
        """Who pays and paid for it, by class: GPUs now and GPU-hours so far."""
        return funding_status(self.world, self.state)

    def objects(self) -> list[dict[str, Any]]:
        """Returns the Run, all Reservations that concern it, and all its leases; then those of its stages."""
        of_stages = [body for stage in self.stages for body in stage.objects()]
        return [self.body, *self.reservations, *(entry.body for entry in self.entries), *of_stages]

    def __repr__(self) -> str:
        status = self.plan.status
        return f"{'/'.join(self.state.key)} is {status.phase}: {status.message}"

    def _repr_html_(self) -> str:
        return html_section(repr(self), self._tables())

    def _tables(self) -> Iterator[str]:
        causes = [
            (cause.reason, cause.message, "; ".join(cause.remedies)) for cause in self.plan.status.causes
        ]
        if causes:
            yield html_table(("reason", "why", "what would help"), causes)
        if self.risks:
            yield html_table(("reservation", "at", "probability of being stopped"), self.risks)
        if self.entries:
            columns = ("start", "end", "role", "class", "gpus", "budget", "envelope", "opened", "closed")
            rows = self.leases.to_dicts()
            yield html_table(columns, [[row[column] for column in columns] for row in rows])
