"""System clocks jump ahead and back and managers restart: leases, hours and pods stay right."""

from random import Random

from hypothesis import given, strategies as st

from jobtree.api.kinds.lease import Lease
from jobtree.api.schema.quantities import HOUR, MINUTE, format_time, parse_time
from jobtree.api.validation.object_parser import parse_object
from jobtree.core import check_lease_history, lease_from_object
from jobtree.kube.http.api_resources import BUDGETS, LEASES, NODES, RUNS
from tests.property.examples import examples
from tests.unit.manager.cluster_objects import (
    finish_pods,
    pods_of,
    put_budget,
    put_nodes,
    put_policy,
    put_run,
)
from tests.unit.manager.memory_cluster import Body, Manager, Server

STEPS = (
    *("set clock", "wait") * 3,
    *("submit",) * 4,
    *("finish", "fail", "delete", "restart", "lose node", "lose contact", "find contact"),
)
STEPS_OF_A_HISTORY = 14
JUMPS = (-2 * HOUR, -HOUR, -5 * MINUTE, -1000, 1000, 5 * MINUTE, HOUR, 3 * HOUR)
RESTART_PAUSE_MS = 5 * MINUTE  # more than twice as long as pods wait after failures, for half speed
WAITS = (0, 1000, MINUTE, 10 * MINUTE, HOUR)


class ClockHistory:
    """A random history of one small cluster, in which only the clocks are wrong."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.server = Server()
        put_policy(self.server)
        self.nodes = put_nodes(self.server, "nv-a", 5)
        put_budget(self.server, "org", 24)
        put_budget(self.server, "other", 24, maxGPUHours=96)
        self.manager = Manager(self.server)
        self.story: list[str] = []
        self.runs = 0

    def play(self) -> None:
        for _ in range(STEPS_OF_A_HISTORY):
            step = self.dice.choice(STEPS)
            self.story.append(step)
            getattr(self, step.replace(" ", "_"))()
            self.manager.settle()
            self.check()

    # Steps

    def set_clock(self) -> None:
        jump = self.dice.choice(JUMPS)
        self.story[-1] += f" by {jump // 1000} s"
        self.server.set_clock(jump)

    def wait(self) -> None:
        self.server.now += self.dice.choice(WAITS)

    def submit(self) -> None:
        self.runs += 1
        put_run(
            self.server,
            f"run-{self.runs}",
            self.dice.choice(("org", "other")),
            self.dice.choice((8, 16)),
            spares=self.dice.choice((0, 0, 1)),
            checkpoint=self.dice.choice((None, "10m")),
            max_duration=self.dice.choice((None, "2h")),
            opportunistic=self.dice.random() < 0.3,
        )

    def finish(self) -> None:
        self._end_pods("Succeeded")

    def fail(self) -> None:
        self._end_pods("Failed")

    def _end_pods(self, phase: str) -> None:
        running = [run for run in self.running_runs() if not self._has_lost_contact(run)]
        if running:
            finish_pods(self.server, self.dice.choice(running)["metadata"]["name"], phase)

    def _has_lost_contact(self, run: Body) -> bool:
        """Whether a node of a Run is not Ready: its kubelet reports nothing."""
        nodes = {pod["spec"]["nodeName"] for pod in pods_of(self.server, run["metadata"]["name"])}
        bodies = [self.server.objects.get(NODES.path(name=node)) for node in nodes]
        return any(body is None or body["status"]["conditions"][0]["status"] != "True" for body in bodies)

    def delete(self) -> None:
        runs = [run for run in self.server.all(RUNS) if "deletionTimestamp" not in run["metadata"]]
        if runs:
            self.server.delete(RUNS.path("ns", self.dice.choice(runs)["metadata"]["name"]))

    def restart(self) -> None:
        self.manager.is_dead = True
        self.manager = Manager(self.server)

    def lose_node(self) -> None:
        if len(self.nodes) > 3:
            self.server.delete(NODES.path(name=self.nodes.pop()))

    def lose_contact(self) -> None:
        """Some nodes, or all, become NotReady together."""
        for node in self.dice.sample(self.nodes, self.dice.randint(1, len(self.nodes))):
            self._set_ready(node, "Unknown")

    def find_contact(self) -> None:
        for node in self.nodes:
            self._set_ready(node, "True")

    def _set_ready(self, node: str, status: str) -> None:
        condition = {"type": "Ready", "status": status, "lastTransitionTime": format_time(self.server.now)}
        patch = {"status": {"conditions": [condition]}}
        self.server.change(NODES.path(name=node), patch, "status", merge=True)

    # What must hold

    def check(self) -> None:
        story = ", ".join(self.story)
        assert self.manager.broken() == [], story
        assert self.manager.violations == [], story
        leases = [parse_object(body, "test") for body in self.server.all(LEASES)]
        history = [
            (lease_from_object(lease), parse_time(lease.status.end) if lease.status.end else None)
            for lease in leases
            if isinstance(lease, Lease)
        ]
        assert [str(violation) for violation in check_lease_history(history)] == [], story
        for budget in self.server.all(BUDGETS):
            for envelope in budget.get("status", {}).get("envelopes", ()):
                assert not envelope["usedGPUHours"].startswith("-"), story
        if not all(map(self.has_its_pods, self.running_runs())):
            self.server.now += RESTART_PAUSE_MS
            self.manager.settle()
        for run in self.running_runs():
            assert self.has_its_pods(run), f"{run['metadata']['name']}: {story}"

    def running_runs(self) -> list[Body]:
        return [run for run in self.server.all(RUNS) if run.get("status", {}).get("phase") == "Running"]

    def has_its_pods(self, run: Body) -> bool:
        leased = sum(
            gpus_in(lease["slots"])
            for lease in run["status"]["allocation"]["leases"]
            if lease["role"] != "Spare"
        )
        pods = [
            pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
            for pod in pods_of(self.server, run["metadata"]["name"])
            if pod["metadata"]["labels"]["rq.davidlangworthy.io/role"] == "rank"
            and pod["status"]["phase"] == "Running"
        ]
        return sum(map(int, pods)) == leased


def gpus_in(slots: list[str]) -> int:
    """Counts slots that are written like gpu-a-01#0-7."""
    ends = [text.partition("#")[2].split("-") for text in slots]
    return sum(int(end[-1]) - int(end[0]) + 1 for end in ends)


@examples(100)
@given(st.integers(min_value=0, max_value=2**32))
def test_leases_hours_and_pods_are_right_when_clocks_jump(seed: int) -> None:
    ClockHistory(seed).play()
