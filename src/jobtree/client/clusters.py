"""A cluster as its user sees it, live or simulated: Runs, Budgets, Reservations, leases, plans."""

from collections.abc import Callable, Iterable, Mapping
from contextvars import Token
from types import TracebackType
from typing import Any, Self

from jobtree.api.documents.document_stream import Document
from jobtree.api.kinds.policy import Policy
from jobtree.api.kinds.reservation import Reservation
from jobtree.api.schema.quantities import format_time, parse_duration
from jobtree.api.validation.object_parser import parse_object
from jobtree.client.answers.fleet_rows import (
    EnvelopeRow,
    ReservationRow,
    envelope_rows,
    reservation_row,
)
from jobtree.client.answers.lease_rows import LeaseRow, lease_row
from jobtree.client.answers.rows import Rows
from jobtree.client.answers.timeline import Timeline
from jobtree.client.backends.backend import Backend, ObjectBody
from jobtree.client.backends.current_backend import CURRENT
from jobtree.client.backends.simulated_backend import SimulatedBackend
from jobtree.client.errors import ArgumentError, NotFoundError
from jobtree.client.plans.plan_result import PlanResult
from jobtree.client.run import Run
from jobtree.client.source.archive_access import NOTHING_ARCHIVED, carries_anything
from jobtree.client.source.clock_moves import instant_after
from jobtree.client.source.lease_entries import belongs_to, entries
from jobtree.client.source.ledger_period import parse_period
from jobtree.messages.run_events import Event
from jobtree.simulation.cluster.simulated_cluster import SimulatedCluster

Described = Run | Mapping[str, Any] | str
"""A Run, a manifest as a dict, or the name of a Run that exists."""


class ClusterClient:
    """A cluster. As a ``with`` block it is also the cluster of all Runs that are used in the block."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._tokens: list[Token[Backend | None]] = []

    def __enter__(self) -> Self:
        self._tokens.append(CURRENT.set(self._backend))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        CURRENT.reset(self._tokens.pop())
        self._backend.close()

    def run(self, name: str) -> Run:
        """Returns a Run by its name or ``namespace/name``. Raises NotFoundError."""
        return Run.of(self._backend.run(name), self._backend)

    def runs(self, owner: str | None = None, *, namespace: str = "", phase: str | None = None) -> Rows[Run]:
        """Returns the Runs of a team and of teams below it, of a namespace, in a phase; by default all."""
        found = (Run.of(body, self._backend) for body in self._backend.objects("Run", namespace))
        return Rows(
            "Runs",
            (
                run
                for run in sorted(found, key=lambda run: (run.namespace, run.name))
                if (owner is None or belongs_to(run.owner, owner)) and phase in (None, run.row()["phase"])
            ),
        )

    def budgets(self, owner: str | None = None) -> Rows[EnvelopeRow]:
        """Returns the use of each envelope and cap of a team and of teams below it; by default of all."""
        bodies = sorted(self._backend.objects("Budget"), key=lambda body: str(body["metadata"]["name"]))
        rows = [row for body in bodies for row in envelope_rows(body)]
        return Rows("budgets", (row for row in rows if owner is None or belongs_to(row.owner, owner)))

    def reservations(self, *, namespace: str = "", ended: bool = False) -> Rows[ReservationRow]:
        """Returns promised starts, earliest first; with ``ended``, also those that are over."""
        rows = map(parsed_row, self._backend.objects("Reservation", namespace))
        pending = [row for row in rows if ended or row.state == "Pending"]
        return Rows("Reservations", sorted(pending, key=start_order))

    def leases(
        self,
        run: str | None = None,
        *,
        owner: str | None = None,
        since: str | None = None,
        until: str | None = None,
        only_open: bool = False,
    ) -> Rows[LeaseRow]:
        """Returns leases, oldest first: of a Run, of a team and of teams below it, in a period.

        ``since`` and ``until`` are days (``"2026-02-01"``) or times (``"2026-02-01T09:00:00Z"``). With one of
        them archived leases are read as well; ``warnings`` of the result names what could not be read.
        """
        period = parse_period(since, until, "since=", "until=")
        cluster = self._backend.snapshot()
        wants_archive = (since is not None or until is not None) and not only_open
        archive = NOTHING_ARCHIVED
        if wants_archive and carries_anything(cluster):
            archive = self._backend.archived(period.since)
        found = entries(
            cluster, lambda lease: owner is None or belongs_to(lease.owner, owner), period, archive.bodies
        )
        if run is not None:
            keys = {*cluster.world.runs, *(entry.lease.run_key for entry in found)}
            key = self._backend.names.choose(run, sorted(keys))
            found = [entry for entry in found if entry.lease.run_key == key]
        policy: Policy = cluster.world.policy
        rows = (
            lease_row(policy, cluster.now, entry, period)
            for entry in found
            if not only_open or entry.end is None
        )
        return Rows("leases", rows, archive.warnings)

    def plan(self, *runs: Described) -> PlanResult:
        """Plans as if these Runs were created now, all together; a name is a Run that exists."""
        names = [run for run in runs if isinstance(run, str)]
        if names and len(names) < len(runs):
            raise ArgumentError("give either names of Runs that exist or Runs that do not exist yet")
        if not names:
            return self._backend.what_if(list(map(self._document, runs)))
        snapshot = self._backend.snapshot(pods=True)
        keys = [self._backend.names.choose(name, list(snapshot.world.runs)) for name in names]
        return PlanResult(snapshot, keys, [])

    def submit(self, *runs: Run | Mapping[str, Any], replace: bool = False) -> list[Run]:
        """Creates Runs, all of them or none; manifests of Budgets and Nodes as dicts as well."""
        bodies = self._backend.create(list(map(self._document, runs)), replace=replace, dry_run=False)
        return [Run.of(body, self._backend) for body in bodies if body["kind"] == "Run"]

    def _document(self, run: Described) -> Document:
        assert not isinstance(run, str)
        body: ObjectBody = run.to_dict() if isinstance(run, Run) else dict(run)
        metadata = body.get("metadata")
        where = f"{body.get('kind')} {metadata.get('name') if isinstance(metadata, dict) else ''}".rstrip()
        if body.get("kind") == "Run" and isinstance(metadata, dict):
            body["metadata"] = {"namespace": self._backend.default_namespace, **metadata}
        return Document(where, body)

    def timeline(self, next: str = "8h") -> Timeline:  # noqa: A002  as in the command line
        """Returns the coming hours of each domain: which Runs have GPUs, and which GPUs are promised."""
        return Timeline(self._backend.snapshot(pods=True), milliseconds(next))

    def __repr__(self) -> str:
        return f"<cluster {self._backend.title}>"


class SimulatedClusterClient(ClusterClient):
    """A simulated cluster in a state file. Its clock stands still until it is moved."""

    def __init__(self, backend: SimulatedBackend) -> None:
        super().__init__(backend)
        self._simulated = backend

    @property
    def now(self) -> str:
        """The time of its clock."""
        return format_time(self._simulated.snapshot().now)

    def advance(self, duration: str | None = None, *, to: str | None = None) -> list[Event]:
        """Moves the clock by a duration such as ``"3h"``, or to a time. Returns what happened on the way."""
        if (duration is None) == (to is None):
            raise ArgumentError("give either a duration such as '30m' or to=TIME")

        def move(cluster: SimulatedCluster) -> None:
            cluster.advance(instant_after(cluster.now, duration, to))

        return self._simulated.change(move)

    def complete(self, *runs: str) -> list[Event]:
        """Lets all ranks of Runs succeed now. Returns what follows."""

        def complete(cluster: SimulatedCluster) -> None:
            for name in runs:
                cluster.complete(self._simulated.names.choose(name, list(cluster.world.runs)))

        return self._simulated.change(complete)

    def fail(self, *nodes: str) -> list[Event]:
        """Takes nodes out of service, together. Returns what follows."""
        return self._change_nodes(nodes, SimulatedCluster.fail)

    def heal(self, *nodes: str) -> list[Event]:
        """Puts nodes back into service. Returns what follows."""
        return self._change_nodes(nodes, SimulatedCluster.heal)

    def drain(self, *nodes: str) -> list[Event]:
        """Cordons nodes and evicts the pods on them. Returns what follows."""
        return self._change_nodes(nodes, SimulatedCluster.drain)

    def _change_nodes(
        self, nodes: Iterable[str], change: Callable[[SimulatedCluster, list[str]], None]
    ) -> list[Event]:
        names = list(nodes)

        def apply(cluster: SimulatedCluster) -> None:
            for name in names:
                if ("Node", "", name) not in cluster.objects:
                    raise NotFoundError(f"there is no node {name}", "Node", name)
            change(cluster, names)

        return self._simulated.change(apply)


def parsed_row(body: ObjectBody) -> ReservationRow:
    reservation = parse_object(body, "the cluster")
    assert isinstance(reservation, Reservation)
    return reservation_row(reservation)


def start_order(row: ReservationRow) -> tuple[bool, str, str, str]:
    start = row.earliest_start
    return start is None, start.isoformat() if start else "", row.namespace, row.name


def milliseconds(duration: str) -> int:
    try:
        return parse_duration(duration)
    except ValueError as error:
        raise ArgumentError(str(error)) from None
