"""One simulated week, all of it from a seed: what people do, what breaks, and what must hold after each step.

Elastic Runs, spares, trees, followers, lotteries, unpaid and provisional work, edited budgets, crashes,
drains, faults of nodes and of whole domains; and now and then the cluster is thrown away and read anew from
its own file. The cluster checks the invariants of SPEC section 12 whenever it settles; the rest is here.
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
from tests.property.scenes import OWNERS
from tests.soak.fleet import budget_document, fleet_documents, run_document, tree_document
from tests.unit.core.build import T0

KEY = bytes(range(32))
END = T0 + 7 * DAY
RATES = OutageRates(
    interval=10 * DAY, median=2 * HOUR, spread=1.3981173493065902, flapping=0.2, domain_interval=40 * DAY
)
HAPPENINGS = (
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
        self.named = 0
        self.leases: dict[str, Any] = {}  # documents as they were seen last
        self.story: list[str] = []
        documents = fleet_documents(self.dice)
        documents += [budget_document(self.dice, owner) for owner in OWNERS if self.dice.random() < 0.8]
        self.cluster.load(documents)
        outages = draw_cluster_outages(seed, self.cluster.domains(), END, RATES)
        self.outages = [outage for outage in outages if outage.end > T0]

    def live(self) -> None:
        """Everything that happens in the week, in order, each followed by a look."""
        moments = sorted((self.dice.randrange(T0, END), what) for what in HAPPENINGS)
        for at, what in moments:
            self.pass_time(at)
            self.story.append(f"+{(at - T0) / HOUR:.2f}h {what}")
            getattr(self, f"_{what}")()
            self.look()
        self.pass_time(END)
        self.look()
        self._reread()

    def pass_time(self, until: int) -> None:
        advance_with_faults(self.cluster, faults_between(self.outages, self.cluster.now, until), until)

    # What people do

    def _submit(self) -> None:
        self._create(run_document(self.dice, self._name("r")))

    def _tree(self) -> None:
        self._create(tree_document(self.dice, self._name("t")))

    def _follow(self) -> None:
        upstream = self.dice.choice([*sorted(name for _, name in self.runs), "nobody"])
        self._create(run_document(self.dice, self._name("f"), upstream))

    def _name(self, letter: str) -> str:
        self.named += 1
        return f"{letter}{self.named}"

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
        """Somebody looks after nodes that are cordoned and not down."""
        idle = [name for name in self.cluster.domains() if not self.cluster.is_failed(name)]
        for name in idle:
            body = self.cluster.objects.get(("Node", "", name)) or {}
            body["spec"].pop("unschedulable", None)
        self.cluster.heal(idle)

    def _reread(self) -> None:
        """The process ends, and another reads what was written: that changes nothing.

        Save that GPUs which nobody pays for are asked about again, and may find a payer by now (C8).
        """
        text, unpaid = (
            write_cluster(self.cluster),
            any(one.opportunistic_gpus for one in self.cluster.world.runs.values()),
        )
        again = SimulatedCluster(self.cluster.now, Policy(), key=KEY)
        again.load([one for one in read_documents(text, "the week") if one.body["kind"] != "Clock"])
        same = unpaid or steady(again.documents()) == steady(self.cluster.documents())
        assert same, "a cluster read anew writes another file"
        self.cluster = again

    def _running(self, *, malleable: bool = False) -> RunState | None:
        states = [state for _, state in sorted(self.cluster.world.runs.items()) if state.rank_slots]
        found = [one for one in states if not malleable or (one.shape is not None and one.shape.malleable)]
        found = [one for one in found if one.phase == "Running" and not (malleable and one.parent)]
        return self.dice.choice(found) if found else None

    # What must hold

    def look(self) -> None:
        found = [*self.lost_runs(), *self.edited_leases(), *self.false_lotteries()]
        assert not found, "\n".join(found)

    def lost_runs(self) -> Iterator[str]:
        """I11: each is waiting with a reason, reserved, running or finished."""
        world = self.cluster.world
        for key in sorted(self.runs):
            state = world.runs.get(key)
            if state is None:
                yield f"{key} is lost"
                continue
            below = list(world.run_graph.descendants(state))
            if (
                state.is_tree
                and state.phase not in FINISHED
                and len(below) < len(state.run_object.spec.stages)
            ):
                yield f"stages of {key} are lost"
            for one in (state, *below):
                if (one.waiting or one.phase == "Waiting") and not (one.verdict and one.verdict.causes):
                    yield f"{one.key} is {one.phase} for no reason"
                if one.phase == "Running" and one.shape is not None and not one.leases:
                    yield f"{one.key} runs on nothing"

    def edited_leases(self) -> Iterator[str]:
        """I6: a lease is closed once, and otherwise never changes."""
        for key, body in self.cluster.objects.of("Lease"):
            seen = self.leases.get(key[2])
            if seen is not None and (
                seen["spec"] != body["spec"] or (seen.get("status") and seen["status"] != body.get("status"))
            ):
                yield f"lease {key[2]} was edited"
            self.leases[key[2]] = {"spec": body["spec"], "status": body.get("status")}
        gone = self.leases.keys() - {key[2] for key, _ in self.cluster.objects.of("Lease")}
        yield from (f"lease {name} was deleted" for name in sorted(gone))

    def false_lotteries(self) -> Iterator[str]:
        """I9: every record verifies by itself."""
        for key, body in self.cluster.objects.of("Reservation"):
            status = body.get("status", {})
            for record in filter(None, (status.get("lottery"), *status.get("lotteries", ()))):
                wrong = verify(msgspec.convert(record, Record))
                if wrong:
                    yield f"{key}: {wrong}"


def steady(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The documents, without what Runs that wait were told: that is told again by every plan."""
    bodies: list[dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(documents))
    for body in bodies:
        status = body.get("status", {})
        if body["kind"] == "Run" and status.get("phase") in ("Pending", "Reserved", "Running"):
            for said in ("reason", "message"):
                status.pop(said, None)
            for condition in status["conditions"]:
                del condition["reason"]
    return bodies
