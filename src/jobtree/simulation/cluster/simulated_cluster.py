"""A cluster in virtual time, which its caller moves: work ends, timers come due, nodes fail.

Events happen in the order of their instants; those of one instant in the order in which they were scheduled.
After each instant the cluster is planned until nothing is left to do.
"""

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Any

from jobtree.api.kinds.policy import Policy
from jobtree.api.kubernetes.node import CORDONED, OUT_OF_SERVICE
from jobtree.api.schema.problems import InputError
from jobtree.core import REQUEUES, Action, GroupRank, KnownRisks, RankLoss, Reason, RunKey, RunState
from jobtree.simulation.cluster.simulated_work import (
    DONE,
    DURATION,
    LOST,
    SimulatedWork,
    encode_work,
    read_work,
    work_rate,
)
from jobtree.snapshot.cluster import Cluster


class SimulatedCluster(Cluster):
    def __init__(
        self, now: int, policy: Policy | None = None, *, key: bytes = bytes(32), checked: bool = True
    ) -> None:
        super().__init__(now, policy, key=key, checked=checked)
        self._work: dict[RunKey, SimulatedWork] = {}
        self._endings: list[tuple[int, int, RunKey]] = []  # instant, sequence, Run
        self._sequence = 0

    # What happens to Runs

    def complete(self, run_key: RunKey) -> None:
        """All ranks of a Run succeed now."""
        self.world.finish(run_key, succeeded=True, at=self.now)
        self.run_to_rest()

    def crash(self, run_key: RunKey, rank: int, code: int) -> None:
        """One rank of a Run fails now."""
        run = self.world.runs[run_key]
        self._lose_rank(run, list(run.rank_slots)[rank], failed=True, message=f"exit code {code}")
        self.run_to_rest()

    def _lose_rank(self, run: RunState, rank: GroupRank, *, failed: bool, message: str = "") -> None:
        self.world.lose_rank(run.key, RankLoss(self.now, rank, run.attempt, failed, message))

    # What happens to nodes

    def drain(self, nodes: Iterable[str]) -> None:
        """Cordons nodes and evicts all pods on them, together."""
        names = set(nodes)
        for name in sorted(names):
            self._node_spec(name)["unschedulable"] = True
            self._load(("Node", "", name))
        for run in self.world.runs.values():
            for rank, (node, _) in run.rank_slots.items():
                if node in names:
                    self._lose_rank(run, rank, failed=False)
            for lease in run.leases.values():
                for node in sorted(names & {node for node, _ in lease.slots}):
                    if lease.role == "Spare":
                        self.world.lose_spare(run.key, node)
        self.run_to_rest()

    def fail(self, nodes: Iterable[str]) -> None:
        """Takes nodes out of service, together."""
        for name in nodes:
            taints = self._node_spec(name).setdefault("taints", [])
            if not any(taint.get("key") == OUT_OF_SERVICE for taint in taints):
                taints.append({"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"})
            self._load(("Node", "", name))
        self.run_to_rest()

    def heal(self, nodes: Iterable[str]) -> None:
        """Puts nodes back into service, and uncordons those that Jobtree cordoned."""
        for name in nodes:
            spec = self._node_spec(name)
            spec["taints"] = [taint for taint in spec.get("taints", []) if taint.get("key") != OUT_OF_SERVICE]
            if not spec["taints"]:
                del spec["taints"]
            body = self.objects.get(("Node", "", name)) or {}
            if body.get("metadata", {}).get("annotations", {}).pop(CORDONED, None) is not None:
                spec.pop("unschedulable", None)
            self._load(("Node", "", name))
        self.run_to_rest()

    def _node_spec(self, name: str) -> dict[str, Any]:
        body = self.objects.get(("Node", "", name)) or {}
        spec: dict[str, Any] = body.setdefault("spec", {})
        return spec

    def is_failed(self, name: str) -> bool:
        """Whether a node is out of service."""
        node_slots = self.world.fleet.nodes.get(name)
        return node_slots is not None and node_slots.node.failed

    def domains(self) -> dict[str, str]:
        """The domain of each node with GPUs."""
        return {name: domain.name for name, domain in sorted(self.world.fleet.domain_by_node.items())}

    # Time

    def advance(self, until: int) -> None:
        """Moves the clock from instant to instant, up to ``until``."""
        while (at := self.next_instant()) is not None and at <= until:
            self._advance_to(at)
        self._advance_to(until)
        self.retire()

    def next_instant(self) -> int | None:
        """Returns when something happens next; None if nothing is going to."""
        while self._endings and not self._is_current(*self._endings[0]):
            heappop(self._endings)
        instants = [self._endings[0][0]] if self._endings else []
        timer = self.world.timers.next_instant()
        if timer is not None:
            instants.append(max(timer, self.now))
        return min(instants, default=None)

    def _is_current(self, at: int, _: int, run_key: RunKey) -> bool:
        """Whether the Run still ends at that instant: it may have stopped, or changed its width, since."""
        run, work = self.world.runs.get(run_key), self._work.get(run_key)
        return run is not None and run.phase == "Running" and work is not None and work.ends_at() == at

    def _advance_to(self, at: int) -> None:
        self.world.advance_clock(at)
        while self._endings and self._endings[0][0] <= at:
            end, number, run_key = heappop(self._endings)
            if self._is_current(end, number, run_key):
                self.world.finish(run_key, succeeded=True, at=end)
        self.run_to_rest()

    # Work

    def _run_loaded(self, run: RunState) -> None:
        try:
            self._work[run.key] = read_work(run)
        except ValueError as broken:
            where = self.objects.where(("Run", *run.key))
            raise InputError(where, [f"metadata.annotations[{DURATION}]: {broken}"]) from None
        self._schedule_end(run.key)

    def _schedule_end(self, run_key: RunKey) -> None:
        at = self._work[run_key].ends_at()
        if at is not None:
            self._sequence += 1
            heappush(self._endings, (at, self._sequence, run_key))

    def _action_written(self, action: Action) -> None:
        """Continues work at the Run's new width, or stops it."""
        run = self.world.runs.get(action.run_key)
        if run is None:
            return
        work = self._work[action.run_key]
        if action.kind in REQUEUES:
            self._stop(action, run, work)
        elif run.waiting:
            return  # a later action of the same plan stops it
        elif run.attempt != work.attempt:
            self._stop(action, run, work)
            work.attempt = run.attempt
            work.resize(work_rate(run), max(action.at, run.resume_at))
        elif work_rate(run) != work.width:
            work.resize(work_rate(run), action.at)
        else:
            return
        self._schedule_end(action.run_key)

    def _stop(self, action: Action, run: RunState, work: SimulatedWork) -> None:
        """Stops work, for good or until the next attempt: what was not saved is lost."""
        saved = run.run_object.spec.runtime.on_notice == "Checkpoint" and self._had_notice(action)
        work.stop(action.at, run.shape.checkpoint if run.shape else None, saved=saved)

    def _had_notice(self, action: Action) -> bool:
        """Whether the stop was announced: failures and the end of opportunistic work are not."""
        if action.kind in ("Preempt", "Grow"):
            return True
        if action.kind == "Shrink" and action.cause.reason is not Reason.RECLAIMED:
            return True
        leases = [self.objects.get(("Lease", "", closing.lease)) or {} for closing in action.closes]
        opportunistic = any(lease.get("spec", {}).get("role") == "Opportunistic" for lease in leases)
        return action.cause.reason is Reason.RECLAIMED and not opportunistic

    def _write_status(self, run: RunState, body: dict[str, Any], risks: KnownRisks) -> None:
        super()._write_status(run, body, risks)
        work = self._work[run.key]
        if work.total is not None and work.at:
            body["metadata"].setdefault("annotations", {})[DONE] = encode_work(work)
        if work.lost:
            body["metadata"].setdefault("annotations", {})[LOST] = str(work.lost)
