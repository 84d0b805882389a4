"""One simulated week from a seed: steps of users, outages, and checks after each step.

There are elastic Runs, spares, trees, followers, lotteries, opportunistic and provisional work, edited
Budgets, crashes, drains, and outages of nodes and whole domains. Sometimes the cluster is replaced by one
that reads its state file. The cluster checks the invariants of the specification after every plan; this
module checks the rest.
"""

from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec

from jobtree.api.documents.document_stream import Document, read_documents
from jobtree.api.kinds.policy import Policy
from jobtree.api.schema.quantities import DAY, HOUR
from jobtree.core.lottery.resolution_record import Record, verify
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.runs.run_state import FINISHED, RunState
from jobtree.simulation.cluster.node_faults import advance_with_faults, faults_between
from jobtree.simulation.cluster.simulated_cluster import SimulatedCluster
from jobtree.simulation.inputs.outages import OutageRates, draw_cluster_outages
from jobtree.snapshot.state_file import write_cluster
from tests.property.random_histories import OWNERS
from tests.soak.fleet import budget_document, fleet_documents, run_document, tree_document
from tests.unit.core.build import T0

KEY = bytes(range(32))
END = T0 + 7 * DAY
RATES = OutageRates(
    interval=10 * DAY, median=2 * HOUR, spread=1.3981173493065902, flapping=0.2, domain_interval=40 * DAY
)
STEP_KINDS = (
    *("submit",) * 8,
    *("tree",) * 2,
    *("edit",) * 2,
    *("crash",) * 2,
    *("resize",) * 2,
    "follow",
    "cancel",
    "complete",
    "drain",
    "uncordon",
    "reread",
)


class Week:
    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.cluster = SimulatedCluster(T0, Policy(), key=KEY)
        self.runs: set[RunKey] = set()  # submitted and not cancelled
        self.runs_named = 0
        self.leases: dict[str, Any] = {}  # documents at the last check
        self.history: list[str] = []
        documents = fleet_documents(self.dice)
        documents += [budget_document(self.dice, owner) for owner in OWNERS if self.dice.random() < 0.8]
        self.cluster.load(documents)
        outages = draw_cluster_outages(seed, self.cluster.domains(), END, RATES)
        self.outages = [outage for outage in outages if outage.end > T0]

    def play(self) -> None:
        """Takes all steps of the week in order, with a check after each."""
        steps = sorted((self.dice.randrange(T0, END), kind) for kind in STEP_KINDS)
        for at, kind in steps:
            self.pass_time(at)
            self.history.append(f"+{(at - T0) / HOUR:.2f}h {kind}")
            getattr(self, f"_{kind}")()
            self.check()
        self.pass_time(END)
        self.check()
        self._reread()

    def pass_time(self, until: int) -> None:
        advance_with_faults(self.cluster, faults_between(self.outages, self.cluster.now, until), until)

    # Steps

    def _submit(self) -> None:
        self._create(run_document(self.dice, self._name("r")))

    def _tree(self) -> None:
        self._create(tree_document(self.dice, self._name("t")))

    def _follow(self) -> None:
        upstream = self.dice.choice([*sorted(name for _, name in self.runs), "nobody"])
        self._create(run_document(self.dice, self._name("f"), upstream))

    def _name(self, letter: str) -> str:
        self.runs_named += 1
        return f"{letter}{self.runs_named}"

    def _create(self, document: Document) -> None:
        (key,) = self.cluster.submit([document])
        self.runs.add((key[1], key[2]))

    def _edit(self) -> None:
        document = budget_document(self.dice, self.dice.choice(OWNERS))
        key = ("Budget", "", document.body["metadata"]["name"])
        if key in self.cluster.objects:
            self.cluster.edit(key, document)
        else:
            self.cluster.submit([document])

    def _crash(self) -> None:
        state = self._running()
        if state is not None:
            self.cluster.crash(state.key, self.dice.randrange(len(state.rank_slots)), 1)

    def _resize(self) -> None:
        state = self._running(malleable=True)
        if state is None or state.shape is None:
            return
        shape = state.shape
        steps = (shape.max - shape.min) // shape.step
        body = msgspec.json.decode(msgspec.json.encode(self.cluster.objects.get(("Run", *state.key))))
        body["spec"]["malleable"]["desiredTotalGPUs"] = shape.min + shape.step * self.dice.randint(0, steps)
        self.cluster.edit(("Run", *state.key), Document(state.key[1], body))

    def _cancel(self) -> None:
        if self.runs:
            key = self.dice.choice(sorted(self.runs))
            self.runs.remove(key)
            self.cluster.cancel(key)

    def _complete(self) -> None:
        state = self._running()
        if state is not None:
            self.cluster.complete(state.key)

    def _drain(self) -> None:
        self.cluster.drain([self.dice.choice(list(self.cluster.domains()))])

    def _uncordon(self) -> None:
        """An administrator uncordons all nodes that have not failed."""
        names = [name for name in self.cluster.domains() if not self.cluster.is_failed(name)]
        for name in names:
            body = self.cluster.objects.get(("Node", "", name)) or {}
            body["spec"].pop("unschedulable", None)
        self.cluster.heal(names)

    def _reread(self) -> None:
        """Replaces the cluster by one that reads its state file, which changes nothing.

        Only opportunistic GPUs are considered again, and may find a payer then (C8).
        """
        text = write_cluster(self.cluster)
        opportunistic = any(state.opportunistic_gpus for state in self.cluster.world.runs.values())
        reread = SimulatedCluster(self.cluster.now, Policy(), key=KEY)
        documents = read_documents(text, "the week")
        reread.load([document for document in documents if document.body["kind"] != "Clock"])
        same = opportunistic or lasting_parts(reread.documents()) == lasting_parts(self.cluster.documents())
        assert same, "a cluster that reads the state file writes another one"
        self.cluster = reread

    def _running(self, *, malleable: bool = False) -> RunState | None:
        states = [state for _, state in sorted(self.cluster.world.runs.items()) if state.rank_slots]
        if malleable:
            states = [state for state in states if state.shape is not None and state.shape.malleable]
        choices = [state for state in states if state.phase == "Running" and not (malleable and state.parent)]
        return self.dice.choice(choices) if choices else None

    # Checks

    def check(self) -> None:
        violations = [*self.lost_runs(), *self.edited_leases(), *self.false_lotteries()]
        assert not violations, "\n".join(violations)

    def lost_runs(self) -> Iterator[str]:
        """I11: each Run is waiting with a reason, reserved, running or finished."""
        world = self.cluster.world
        for key in sorted(self.runs):
            state = world.runs.get(key)
            if state is None:
                yield f"{key} is lost"
                continue
            descendants = list(world.run_graph.descendants(state))
            if (
                state.is_tree
                and state.phase not in FINISHED
                and len(descendants) < len(state.run_object.spec.stages)
            ):
                yield f"stages of {key} are lost"
            for run in (state, *descendants):
                if (run.waiting or run.phase == "Waiting") and not (run.verdict and run.verdict.causes):
                    yield f"{run.key} is {run.phase} without a reason"
                if run.phase == "Running" and run.shape is not None and not run.leases:
                    yield f"{run.key} runs without a lease"

    def edited_leases(self) -> Iterator[str]:
        """I6: a lease is closed once, and otherwise never changes."""
        for key, body in self.cluster.objects.of("Lease"):
            before = self.leases.get(key[2])
            if before is not None and (
                before["spec"] != body["spec"]
                or (before.get("status") and before["status"] != body.get("status"))
            ):
                yield f"lease {key[2]} was edited"
            self.leases[key[2]] = {"spec": body["spec"], "status": body.get("status")}
        deleted = self.leases.keys() - {key[2] for key, _ in self.cluster.objects.of("Lease")}
        yield from (f"lease {name} was deleted" for name in sorted(deleted))

    def false_lotteries(self) -> Iterator[str]:
        """I9: every record verifies by itself."""
        for key, body in self.cluster.objects.of("Reservation"):
            status = body.get("status", {})
            for record in filter(None, (status.get("lottery"), *status.get("lotteries", ()))):
                problem = verify(msgspec.convert(record, Record))
                if problem:
                    yield f"{key}: {problem}"


def lasting_parts(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the documents without the reasons of unfinished Runs, which each plan writes again."""
    bodies: list[dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(documents))
    for body in bodies:
        status = body.get("status", {})
        if body["kind"] == "Run" and status.get("phase") in ("Pending", "Reserved", "Running"):
            for field in ("reason", "message"):
                status.pop(field, None)
            for condition in status["conditions"]:
                del condition["reason"]
    return bodies
