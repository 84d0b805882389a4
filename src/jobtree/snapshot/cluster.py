"""A cluster that isn't there: the same core, a virtual clock, and documents in place of an API server.

Things happen in the order of their instants; at one instant, in the order in which they were set. After
every instant the cluster is planned until nothing is left to do, and the invariants are checked.
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
from jobtree.api.kubernetes.node import CORDONED, OUT_OF_SERVICE, read_node
from jobtree.api.kubernetes.pod import read_pod
from jobtree.api.schema.problems import InputError
from jobtree.api.schema.quantities import format_time, parse_time
from jobtree.api.validation.object_parser import parse_object, to_document
from jobtree.api.validation.object_rules import policy_problems
from jobtree.core import (
    FINISHED,
    MAX_ROUNDS,
    Action,
    GroupRank,
    KnownRisks,
    LedgerReplay,
    Plan,
    RankLoss,
    Reason,
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
from jobtree.messages.run_events import Event, events_of, merged_actions
from jobtree.snapshot.object_documents import Key, Objects, made_up_uid
from jobtree.snapshot.reservation_documents import ReservationDocuments
from jobtree.snapshot.simulated_work import (
    DONE,
    DURATION,
    LOST,
    SimulatedWork,
    encode_work,
    pace_of,
    read_work,
)


class BrokenInvariantError(AssertionError):
    """The cluster is in a state that must not be. Always a bug in Jobtree."""


class Cluster:
    def __init__(
        self, now: int, policy: Policy | None = None, *, key: bytes = bytes(32), checked: bool = True
    ) -> None:
        self.world = World(policy, now)
        self.world.lottery_key = key
        self.objects = Objects()
        self._reservations = ReservationDocuments(self.world, self.objects)
        self.events: list[Event] = []
        self._work: dict[RunKey, SimulatedWork] = {}
        self._endings: list[tuple[int, int, RunKey]] = []  # instant, sequence, Run
        self._sequence = 0
        self._replay = LedgerReplay()
        self.policy_document: dict[str, Any] | None = None
        self.beacon_documents: list[dict[str, Any]] = []
        self._touched: set[RunKey] = set()
        self._checked = checked
        self._as_written = False  # what another planner wrote is left as it is
        self.archiving = False  # whether closed leases leave when the policy lets them
        self.retired: list[dict[str, Any]] = []  # those that have left, for whoever archives them
        self._closed: list[tuple[int, str]] = []  # end and name of closed leases that are here

    @property
    def now(self) -> int:
        return self.world.now

    # What people do

    def load(self, documents: Iterable[Document], *, settle: bool = True) -> None:
        """Take in the documents of a state file, or of a live cluster; then plan, if asked to."""
        keys = [self.objects.add(document) for document in documents]
        for kind in ("Node", "Pod", "Budget", "Run", "Lease", "Reservation"):
            for key in keys:
                if key[0] == kind:
                    self._load(key)
        self._refuse_cycles(keys)
        for run in self.world.runs.values():
            self._watch_work(run.key)
            run.verdict = reported_verdict(run) if settle else verdict_from_status(run)
        self.world.forget_archived_except({key[2] for key, _ in self.objects.of("Lease")})
        self._note_cuts()
        self._as_written = not settle
        if settle:
            self.run_to_rest()

    def submit(self, documents: Iterable[Document]) -> list[Key]:
        """Create new objects (Runs, Budgets, Nodes, Pods), all of them or none, then plan."""
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
        """Replace an object by another version of itself, then plan."""
        self.objects.put(key, document.body)
        self._load(key)
        self._refuse_cycles([key])
        self.run_to_rest()

    def cancel(self, run_key: RunKey) -> None:
        """Delete a Run, and with a tree all of it: leases close and documents go."""
        gone = [run_key, *(run.key for run in self.world.run_graph.descendants(self.world.runs[run_key]))]
        self.world.drop_run(run_key)
        for key in gone:
            self.objects.remove(("Run", *key))
            self._work.pop(key, None)
        self.run_to_rest()

    def complete(self, run_key: RunKey) -> None:
        """All ranks of a Run succeed, now."""
        self.world.finish(run_key, succeeded=True, at=self.now)
        self.run_to_rest()

    def crash(self, run_key: RunKey, rank: int, code: int) -> None:
        """One rank of a Run fails, now."""
        run = self.world.runs[run_key]
        self._lose_rank(run, list(run.rank_slots)[rank], failed=True, message=f"exit code {code}")
        self.run_to_rest()

    def drain(self, nodes: Iterable[str]) -> None:
        """Nodes are cordoned and all pods on them evicted, at once, together."""
        names = set(nodes)
        for name in sorted(names):
            body = self.objects.get(("Node", "", name)) or {}
            body.setdefault("spec", {})["unschedulable"] = True
            self._load(("Node", "", name))
        for run in self.world.runs.values():
            for seat, (node, _) in run.rank_slots.items():
                if node in names:
                    self._lose_rank(run, seat, failed=False)
            for lease in run.leases.values():
                for node in sorted(names & {node for node, _ in lease.slots}):
                    if lease.role == "Spare":
                        self.world.lose_spare(run.key, node)
        self.run_to_rest()

    def _lose_rank(self, run: RunState, seat: GroupRank, *, failed: bool, message: str = "") -> None:
        self.world.lose_rank(run.key, RankLoss(self.now, seat, run.attempt, failed, message))

    def fail(self, nodes: Iterable[str]) -> None:
        """Nodes go out of service at once, together."""
        for name in nodes:
            body = self.objects.get(("Node", "", name)) or {}
            taints = body.setdefault("spec", {}).setdefault("taints", [])
            if not any(taint.get("key") == OUT_OF_SERVICE for taint in taints):
                taints.append({"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"})
            self._load(("Node", "", name))
        self.run_to_rest()

    def heal(self, nodes: Iterable[str]) -> None:
        """Nodes are in service again."""
        for name in nodes:
            body = self.objects.get(("Node", "", name)) or {}
            spec = body.setdefault("spec", {})
            spec["taints"] = [taint for taint in spec.get("taints", []) if taint.get("key") != OUT_OF_SERVICE]
            if not spec["taints"]:
                del spec["taints"]
            if body.get("metadata", {}).get("annotations", {}).pop(CORDONED, None) is not None:
                spec.pop("unschedulable", None)
            self._load(("Node", "", name))
        self.run_to_rest()

    def is_failed(self, node: str) -> bool:
        """Whether a node is out of service."""
        known = self.world.fleet.nodes.get(node)
        return known is not None and known.node.failed

    def domains(self) -> dict[str, str]:
        """The domain of every node with GPUs."""
        return {name: state.domain.name for name, state in sorted(self.world.fleet.nodes.items())}

    def advance(self, until: int) -> None:
        """Let time pass, from instant to instant."""
        while (at := self._next_instant()) is not None and at <= until:
            self._arrive(at)
        self._arrive(until)
        self.retire()

    def retire(self) -> None:
        """Closed leases older than the policy keeps them leave, if they are archived; their sums stay."""
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
            self._reservations.collect()

    # What happens by itself

    def _next_instant(self) -> int | None:
        while self._endings and not self._still_ends(*self._endings[0]):
            heappop(self._endings)
        instants = [self._endings[0][0]] if self._endings else []
        alarm = self.world.timers.next_instant()
        if alarm is not None:
            instants.append(max(alarm, self.now))
        return min(instants, default=None)

    def _still_ends(self, at: int, _: int, run_key: RunKey) -> bool:
        run, work = self.world.runs.get(run_key), self._work.get(run_key)
        return run is not None and run.phase == "Running" and work is not None and work.ends_at() == at

    def _arrive(self, at: int) -> None:
        self.world.advance_clock(at)
        while self._endings and self._endings[0][0] <= at:
            ending, number, run_key = heappop(self._endings)
            if self._still_ends(ending, number, run_key):
                self.world.finish(run_key, succeeded=True, at=ending)
        self.run_to_rest()

    def run_to_rest(self) -> None:
        """Plans and applies until nothing is left to do at this instant, then checks the invariants."""
        if not run_to_rest(self.world, self._apply_plan, creates_children=True):
            raise BrokenInvariantError(f"something is still left to do after {MAX_ROUNDS} plans")
        if self._checked and (broken := self.violations()):
            raise BrokenInvariantError("; ".join(str(violation) for violation in broken))

    def _apply_plan(self, decided: Plan) -> None:
        self.world.apply_plan(decided)
        self._cordon(decided.cordons)
        warnings = [warning for action in decided.actions for warning in self._carry_out(action)]
        happened = [event for action in merged_actions(decided.actions) for event in events_of(action)]
        self.events += [*happened, *warnings]
        self._touched.update(decided.verdicts)
        for child in decided.children:
            self._keep_child(child)

    def _keep_child(self, child: Run) -> None:
        """One Run per stage of a tree, as the tree wants it (J2)."""
        key = ("Run", child.metadata.namespace, child.metadata.name)
        body = to_document(child)
        known = self.objects.get(key)
        if known is not None:
            known["spec"] = body["spec"]
        else:
            self.objects.add(Document(f"stage {child.metadata.name}", body))
        self._load(key)

    def _cordon(self, nodes: Iterable[str]) -> None:
        """Nothing new is placed on a node that failed, until somebody heals it (F3)."""
        for name in nodes:
            body = self.objects.get(("Node", "", name)) or {}
            body.setdefault("spec", {})["unschedulable"] = True
            why = f"the node failed by {format_time(self.now)}"
            body.setdefault("metadata", {}).setdefault("annotations", {})[CORDONED] = why
            self._load(("Node", "", name))

    def violations(self, *, planned: bool = True) -> list[Violation]:
        """All invariants that do not hold, of the cluster as it stands; with ``planned``, one at rest."""
        return check_invariants(self.world, self._replay, planned=planned)

    def _carry_out(self, action: Action) -> list[Event]:
        """Write down what an action changes; who is warned by it."""
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
            document["metadata"].update(creationTimestamp=created, uid=made_up_uid(key, created))
            self.objects.put(key, document)
        self._touched.add(action.run_key)
        if action.run_key in self.world.runs:
            self._update_work(action)
        return self._reservations.carry_out(action)

    def _update_work(self, action: Action) -> None:
        """Work goes on at the Run's new width, or stops."""
        run, work = self.world.runs[action.run_key], self._work[action.run_key]
        if action.kind in ("Requeue", "Preempt"):
            self._stop(action, run, work)
        elif run.waiting:
            return  # a later action of the same plan stops it
        elif run.attempt != work.attempt:
            self._stop(action, run, work)
            work.attempt = run.attempt
            work.resize(pace_of(run), max(action.at, run.resume_at))
        elif pace_of(run) != work.width:
            work.resize(pace_of(run), action.at)
        else:
            return
        self._note_ending(action.run_key)

    def _stop(self, action: Action, run: RunState, work: SimulatedWork) -> None:
        """Work stops, for good or until the next attempt: what was not saved is lost."""
        saved = run.run_object.spec.runtime.on_notice == "Checkpoint" and self._had_notice(action)
        work.stop(action.at, run.shape.checkpoint if run.shape else None, saved=saved)

    def _had_notice(self, action: Action) -> bool:
        """Lotteries, resizes and the end of provisional work are announced; failures are not."""
        if action.kind in ("Preempt", "Grow"):
            return True
        if action.kind == "Shrink" and action.cause.reason is not Reason.RECLAIMED:
            return True
        leases = [self.objects.get(("Lease", "", closing.lease)) or {} for closing in action.closes]
        unpaid = any(lease.get("spec", {}).get("role") == "Opportunistic" for lease in leases)
        return action.cause.reason is Reason.RECLAIMED and not unpaid

    def _watch_work(self, run_key: RunKey) -> None:
        run = self.world.runs[run_key]
        try:
            self._work[run_key] = read_work(run)
        except ValueError as broken:
            key = ("Run", *run_key)
            raise InputError(
                self.objects.where(key), [f"metadata.annotations[{DURATION}]: {broken}"]
            ) from None
        self._note_ending(run_key)

    def _note_ending(self, run_key: RunKey) -> None:
        at = self._work[run_key].ends_at()
        if at is not None:
            self._sequence += 1
            heappush(self._endings, (at, self._sequence, run_key))

    # Documents in and out

    def _load(self, key: Key) -> None:
        body, where = self.objects.get(key) or {}, self.objects.where(key)
        kind = key[0]
        metadata = body["metadata"]
        if not metadata.get("creationTimestamp"):  # absent, or null as kubectl --dry-run has it
            metadata["creationTimestamp"] = format_time(self.now)
        if not metadata.get("uid"):
            metadata["uid"] = made_up_uid(key, str(metadata["creationTimestamp"]))
        if kind == "Node":
            self.world.put_node(read_node(body, where))
        elif kind == "Pod":
            self.world.put_pod(read_pod(body, where))
        else:
            self._take_in_ours(key, parse_object(body, where))

    def _take_in_ours(self, key: Key, parsed: object) -> None:
        where = self.objects.where(key)
        if isinstance(parsed, Budget):
            if not self.world.budgets.has_budget(parsed.metadata.name):
                self._replay.add_opening_balance(parsed)
            self.world.put_budget(parsed)
        elif isinstance(parsed, Run):
            if found := policy_problems(parsed, self.world.policy.max_grace_ms):
                raise InputError(where, found)
            run = self.world.put_run(parsed)
            self._reservations.number_on(run)
            self._watch_work(run.key)
            self._touched.add(run.key)
        elif isinstance(parsed, WireLease):
            self._take_in_lease(parsed, where)
        elif isinstance(parsed, Reservation):
            self._reservations.take_in(parsed, where)

    def _take_in_lease(self, lease: WireLease, where: str) -> None:
        known = lease_from_object(lease)
        if lease.status.end is None:
            for node, _ in known.slots:
                if ("Node", "", node) not in self.objects:
                    raise InputError(
                        where, [f"spec.slots: node {node} is not in the file, but this lease is open"]
                    )
            if ("Run", *known.run_key) not in self.objects:
                raise InputError(where, [f"spec.runRef: Run {'/'.join(known.run_key)} is not in the file"])
        self.world.put_lease(lease)
        if lease.status.end is not None:
            self._replay.close(known, parse_time(lease.status.end))
            heappush(self._closed, (parse_time(lease.status.end), known.name))

    def _refuse_cycles(self, keys: Iterable[Key]) -> None:
        """What came may close a circle of parents, or of Runs that wait for each other."""
        kinds = {key[0] for key in keys}
        cycle = self.world.budgets.family.cycle() if "Budget" in kinds else []
        if cycle:
            raise InputError("budgets", [f"spec.parents: {' → '.join(cycle)} is a cycle: a family has none"])
        circle = self.world.run_graph.find_cycle() if "Run" in kinds else []
        if circle:
            names = " after ".join("/".join(key) for key in circle)
            raise InputError(
                "runs", [f"spec.follow.after: {names} is a cycle: none of them could ever start"]
            )

    def _note_cuts(self) -> None:
        """Budgets may have been cut in the file, or before it was saved: settle what exceeds them (C10).

        What closed leases used was within the limits of their time, even if it is more than those of today.
        """
        ledger = self.world.budgets
        ledger.edited_envelopes.update(ledger.envelopes)
        if self.world.posted_leases:  # who was entitled to pay when a lease began is not in the file (I2)
            self.world.budgets_edited_at = self.now
        for envelope in ledger.envelopes.values():
            accounts = (envelope.account, envelope.lending_account, *(cap.account for cap in envelope.caps))
            if any(
                account.max_use is not None and account.closed_usage > account.max_use for account in accounts
            ):
                envelope.amended_at = self.now

    def documents(self) -> list[dict[str, Any]]:
        """All documents with the status as of now."""
        if self._as_written:
            return self.objects.all()
        refresh_verdicts(self.world, [order[1:] for order in self.world.queue])
        refresh_stalled_verdicts(self.world)
        threats = self._reservations.refresh()
        for run_key, run in self.world.runs.items():
            if run_key in self._touched or run.phase not in FINISHED:
                self._write_run(run_key, threats.known_risks(run_key) or KnownRisks(run.phase_at))
        self._touched.clear()
        for key, body in self.objects.of("Budget"):
            status = msgspec.to_builtins(budget_status(self.world, key[2]))
            body["status"] = status
        return self.objects.all()

    def _write_run(self, run_key: RunKey, warned: KnownRisks) -> None:
        run, body = self.world.runs.get(run_key), self.objects.get(("Run", *run_key))
        if run is None or body is None:
            return
        body["status"] = msgspec.to_builtins(run_status(self.world, run, warned))
        work = self._work[run_key]
        if work.total is not None and work.at:
            body["metadata"].setdefault("annotations", {})[DONE] = encode_work(work)
        if work.lost:
            body["metadata"].setdefault("annotations", {})[LOST] = str(work.lost)


def without_status(body: dict[str, Any]) -> dict[str, Any]:
    """What a user submits has no status of its own: Jobtree writes it."""
    return {field: value for field, value in body.items() if field != "status" or body.get("kind") == "Node"}
