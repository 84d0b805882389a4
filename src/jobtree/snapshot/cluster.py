"""A cluster held in memory: documents, and the core that plans on them.

The documents come from a state file or from a live cluster. Each change is planned until nothing is left to
do; then the invariants are checked. Time does not pass here: a simulated cluster has a clock that is moved.
"""

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Any

import msgspec

from jobtree.api.documents.document_stream import Document
from jobtree.api.documents.struct_decoder import decode_struct
from jobtree.api.kinds.budget import Budget
from jobtree.api.kinds.lease import Lease as WireLease
from jobtree.api.kinds.policy import Policy
from jobtree.api.kinds.reservation import Reservation
from jobtree.api.kinds.run import Run
from jobtree.api.kubernetes.node import CORDONED, read_node
from jobtree.api.kubernetes.pod import read_pod
from jobtree.api.schema.problems import InputError
from jobtree.api.schema.quantities import format_time, parse_time
from jobtree.api.validation.object_parser import parse_object, to_document
from jobtree.api.validation.object_rules import policy_problems
from jobtree.core import (
    FINISHED,
    MAX_ROUNDS,
    Action,
    KnownRisks,
    LedgerReplay,
    Plan,
    RunKey,
    RunState,
    Violation,
    World,
    budget_status,
    check_invariants,
    lease_from_object,
    lease_to_object,
    refresh_stalled_verdicts,
    refresh_verdicts,
    run_status,
    run_to_rest,
)
from jobtree.messages.reported_verdict import reported_verdict, verdict_from_status
from jobtree.messages.run_events import Event, events_of, in_causal_order, merged_actions
from jobtree.snapshot.object_documents import Key, Objects, derived_uid
from jobtree.snapshot.reservation_documents import ReservationDocuments


class BrokenInvariantError(AssertionError):
    """An invariant does not hold: the file was edited by hand, or Jobtree has a bug."""


class Cluster:
    def __init__(
        self, now: int, policy: Policy | None = None, *, key: bytes = bytes(32), checked: bool = True
    ) -> None:
        self.world = World(policy, now)
        self.world.lottery_key = key
        self.objects = Objects()
        self._reservations = ReservationDocuments(self.world, self.objects)
        self.events: list[Event] = []
        self._replay = LedgerReplay()
        self.policy_document: dict[str, Any] | None = None
        self.beacon_documents: list[dict[str, Any]] = []
        self._touched: set[RunKey] = set()
        self._checked = checked
        self._keep_statuses = False  # statuses stay as the manager of a live cluster wrote them
        self.archiving = False  # whether closed leases are removed when the policy allows it
        self.retired: list[dict[str, Any]] = []  # removed leases, which are to be archived
        self._closed: list[tuple[int, str]] = []  # end and name of closed leases that are not removed yet

    @property
    def now(self) -> int:
        return self.world.now

    # Changes by users

    def load(self, documents: Iterable[Document], *, settle: bool = True) -> None:
        """Loads the documents of a state file or of a live cluster, and plans if ``settle`` is true."""
        keys = [self.objects.add(document) for document in documents]
        for kind in ("Node", "Pod", "Budget", "Run", "Lease", "Reservation"):
            for key in keys:
                if key[0] == kind:
                    self._load(key)
        self._refuse_cycles(keys)
        for run in self.world.runs.values():
            self._run_loaded(run)
            run.record_verdict(reported_verdict(run) if settle else verdict_from_status(run))
        self.world.forget_archived_except({key[2] for key, _ in self.objects.of("Lease")})
        self.world.recheck_limits()
        self._keep_statuses = not settle
        if settle:
            self.run_to_rest()

    def submit(self, documents: Iterable[Document]) -> list[Key]:
        """Creates Runs, Budgets, Nodes or Pods, all of them or none, then plans."""
        keys = []
        for document in documents:
            if document.body.get("kind") in ("Lease", "Reservation"):
                raise InputError(document.where, [f"a {document.body['kind']} is written by Jobtree alone"])
            keys.append(self.objects.add(Document(document.where, without_status(document.body))))
        for key in keys:
            self._load(key)
        self._refuse_cycles(keys)
        self.run_to_rest()
        return keys

    def edit(self, key: Key, document: Document) -> None:
        """Replaces an object by another version of it, then plans."""
        self.objects.put(key, document.body)
        self._load(key)
        self._refuse_cycles([key])
        self.run_to_rest()

    def cancel(self, run_key: RunKey) -> None:
        """Deletes a Run with all its stages, and closes their leases; then plans."""
        descendants = self.world.run_graph.descendants(self.world.runs[run_key])
        run_keys = [run_key, *(run.key for run in descendants)]
        self.world.drop_run(run_key)
        for key in run_keys:
            self.objects.remove(("Run", *key))
        self.run_to_rest()

    def retire(self) -> None:
        """Removes closed leases that are older than the policy's leaseRetention, if they are archived.

        Their usage stays in the totals of Budgets and Runs.
        """
        kept_since = self.now - self.world.policy.lease_retention_ms
        while self.archiving and self._closed and self._closed[0][0] <= kept_since:
            end, name = heappop(self._closed)
            key = ("Lease", "", name)
            body = self.objects.get(key)
            if body is None:
                continue
            wire = parse_object(body, self.objects.where(key))
            assert isinstance(wire, WireLease)
            lease = lease_from_object(wire)
            self.world.carry_lease(lease, end)
            self.world.drop_lease(lease, end)
            self._touched.add(lease.run_key)
            self.objects.remove(key)
            self.retired.append(body)
        if self.archiving:
            self._reservations.remove_unowned()

    def run_to_rest(self) -> None:
        """Plans and applies until nothing is left to do at this instant, then checks the invariants."""
        if not run_to_rest(self.world, self._apply_plan, creates_children=True):
            raise BrokenInvariantError(f"something is still left to do after {MAX_ROUNDS} plans")
        if self._checked and (broken := self.violations()):
            raise BrokenInvariantError("; ".join(str(violation) for violation in broken))

    def _apply_plan(self, plan: Plan) -> None:
        self.world.apply_plan(plan)
        self._cordon(plan.cordons)
        warnings = [warning for action in plan.actions for warning in self._write_action(action)]
        events = [event for action in merged_actions(plan.actions) for event in events_of(action)]
        self.events += [*in_causal_order(events), *warnings]
        if plan.actions:
            self.events += self._reservations.warn_others(self.now)
        self._touched.update(plan.verdicts)
        for child in plan.children:
            self._put_child(child)

    def _put_child(self, child: Run) -> None:
        """Creates or updates the Run of a stage of a job tree (J2)."""
        key = ("Run", child.metadata.namespace, child.metadata.name)
        body = to_document(child)
        existing = self.objects.get(key)
        if existing is not None:
            existing["spec"] = body["spec"]
        else:
            self.objects.add(Document(f"stage {child.metadata.name}", body))
        self._load(key)

    def _cordon(self, nodes: Iterable[str]) -> None:
        """Cordons nodes that failed, so that no pod is placed there until a user heals them (F3)."""
        for name in nodes:
            body = self.objects.get(("Node", "", name)) or {}
            body.setdefault("spec", {})["unschedulable"] = True
            why = f"the node failed by {format_time(self.now)}"
            body.setdefault("metadata", {}).setdefault("annotations", {})[CORDONED] = why
            self._load(("Node", "", name))

    def violations(self, *, planned: bool = True) -> list[Violation]:
        """Returns the violations of invariants; with ``planned``, also those of a cluster at rest."""
        return check_invariants(self.world, self._replay, planned=planned)

    def _write_action(self, action: Action) -> list[Event]:
        """Writes the leases and the Reservation of an action. Returns the warnings to other Runs."""
        for closing in action.closes:
            key = ("Lease", "", closing.lease)
            body = self.objects.get(key) or {}
            body["status"] = {"end": format_time(closing.at), "closureReason": closing.reason}
            wire = decode_struct(
                {part: body[part] for part in ("metadata", "spec")}, WireLease, closing.lease
            )
            self._replay.close(lease_from_object(wire), closing.at)
            heappush(self._closed, (closing.at, closing.lease))
        for lease in action.opens:
            key, created = ("Lease", "", lease.name), format_time(lease.start)
            document = to_document(lease_to_object(lease))
            document["metadata"].update(creationTimestamp=created, uid=derived_uid(key, created))
            self.objects.put(key, document)
        self._touched.add(action.run_key)
        self._action_written(action)
        return self._reservations.write(action)

    # For simulated clusters to override

    def _run_loaded(self, run: RunState) -> None:
        """Called for each Run that was loaded or edited."""

    def _action_written(self, action: Action) -> None:
        """Called for each action after its leases were written."""

    # Documents in and out

    def _load(self, key: Key) -> None:
        body, where = self.objects.get(key) or {}, self.objects.where(key)
        kind = key[0]
        metadata = body["metadata"]
        if not metadata.get("creationTimestamp"):  # absent, or null as kubectl --dry-run has it
            metadata["creationTimestamp"] = format_time(self.now)
        if not metadata.get("uid"):
            metadata["uid"] = derived_uid(key, str(metadata["creationTimestamp"]))
        if kind == "Node":
            self.world.put_node(read_node(body, where))
        elif kind == "Pod":
            self.world.put_pod(read_pod(body, where))
        else:
            self._load_object(key, parse_object(body, where))

    def _load_object(self, key: Key, parsed: object) -> None:
        where = self.objects.where(key)
        if isinstance(parsed, Budget):
            if not self.world.budgets.has_budget(parsed.metadata.name):
                self._replay.add_opening_balance(parsed)
            self.world.put_budget(parsed)
        elif isinstance(parsed, Run):
            if problems := policy_problems(parsed, self.world.policy.max_grace_ms):
                raise InputError(where, problems)
            run = self.world.put_run(parsed)
            self._reservations.continue_numbering(run)
            self._reservations.load_risks(parsed)
            self._run_loaded(run)
            self._touched.add(run.key)
        elif isinstance(parsed, WireLease):
            self._load_lease(parsed, where)
        elif isinstance(parsed, Reservation):
            self._reservations.load(parsed, where)

    def _load_lease(self, wire: WireLease, where: str) -> None:
        lease = lease_from_object(wire)
        if wire.status.end is None:
            for node, _ in lease.slots:
                if ("Node", "", node) not in self.objects:
                    raise InputError(
                        where, [f"spec.slots: node {node} is not in the file, but this lease is open"]
                    )
            if ("Run", *lease.run_key) not in self.objects:
                raise InputError(where, [f"spec.runRef: Run {'/'.join(lease.run_key)} is not in the file"])
        self.world.put_lease(wire)
        if wire.status.end is not None:
            self._replay.close(lease, parse_time(wire.status.end))
            heappush(self._closed, (parse_time(wire.status.end), lease.name))

    def _refuse_cycles(self, keys: Iterable[Key]) -> None:
        """Raises InputError if Budgets are their own ancestors, or Runs wait for each other."""
        kinds = {key[0] for key in keys}
        cycle = self.world.budgets.family.cycle() if "Budget" in kinds else []
        if cycle:
            raise InputError("budgets", [f"spec.parents: {' → '.join(cycle)} is a cycle: a family has none"])
        run_cycle = self.world.run_graph.find_cycle() if "Run" in kinds else []
        if run_cycle:
            names = " after ".join("/".join(key) for key in run_cycle)
            raise InputError(
                "runs", [f"spec.follow.after: {names} is a cycle: none of them could ever start"]
            )

    def documents(self) -> list[dict[str, Any]]:
        """Returns all documents with their current statuses."""
        if self._keep_statuses:
            return self.objects.all()
        refresh_verdicts(self.world, [order[1:] for order in self.world.queue])
        refresh_stalled_verdicts(self.world)
        risks = self._reservations.refresh()
        for run_key, run in self.world.runs.items():
            if run_key in self._touched or run.phase not in FINISHED:
                body = self.objects.get(("Run", *run_key))
                if body is not None:
                    self._write_status(run, body, risks.known_risks(run_key) or KnownRisks(run.phase_at))
        self._touched.clear()
        for key, body in self.objects.of("Budget"):
            body["status"] = msgspec.to_builtins(budget_status(self.world, key[2]))
        return self.objects.all()

    def _write_status(self, run: RunState, body: dict[str, Any], risks: KnownRisks) -> None:
        body["status"] = msgspec.to_builtins(run_status(self.world, run, risks))


def without_status(body: dict[str, Any]) -> dict[str, Any]:
    """Returns the document without its status, which Jobtree writes. The status of a Node stays."""
    return {field: value for field, value in body.items() if field != "status" or body.get("kind") == "Node"}
