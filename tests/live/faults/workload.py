"""A workload for managers that are killed or disturbed: growth, a swap, a lottery, a job tree, deletions.

Each part has a tenant of its own, so the parts run side by side and do not influence each other. A part is a
generator: it acts as users do and yields conditions to wait for. The outcome must be the same whatever
happens to the manager.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress

from tests.live.cluster.server_process import wait_until
from tests.live.crds.manifests import GROUP
from tests.live.faults.fault_cluster import FaultCluster
from tests.live.faults.outcome import Outcome, describe_difference, is_settled, outcome_of
from tests.live.manager.manager_process import Manager
from tests.live.manager.tenant import Tenant

WORKLOAD_SECONDS = 300
SETTLE_SECONDS = 120

Steps = Iterator[tuple[str, Callable[[], bool]]]
"""Descriptions and conditions to wait for."""


def growth(tenant: Tenant) -> Steps:
    """Starts a Run that grows by a step and completes at its new width."""
    tenant.add_nodes("nv", 2)
    tenant.create_budget("a", 16)
    malleable = {"minTotalGPUs": 8, "maxTotalGPUs": 16, "stepGPUs": 8}
    tenant.create_run("grows", "a", 8, malleable=malleable, runtime={"checkpoint": "1s"})
    yield "the Run has grown", lambda: running_attempts(tenant, "grows") == ["2", "2"]
    tenant.finish("grows")
    yield "the Run is completed", lambda: tenant.phase("grows") == "Completed"


def swap(tenant: Tenant) -> Steps:
    """Removes the node of a rank, which continues on the spare; then deletes the Run."""
    tenant.add_nodes("nv", 2)
    tenant.create_budget("a", 16)
    tenant.create_run("spared", "a", 8, spares=1)
    yield "rank and spare run", lambda: len(tenant.running_pods("spared")) == 2
    rank = next(pod for pod in tenant.pods("spared") if pod["spec"].get("hostname") == "spared-0-0")
    tenant.fleet.remove_node(rank["spec"]["nodeName"])
    yield "the rank runs on the spare", lambda: running_attempts(tenant, "spared") == ["2"]
    tenant.cancel("spared")
    yield "the Run is deleted", lambda: not tenant.plane.rest.get(tenant.run_path("spared")).accepted
    yield "its pods are deleted", lambda: tenant.pods("spared") == []


def lottery(tenant: Tenant) -> Steps:
    """Lets a promise come due, for which one of two Runs must end; then deletes that Run."""
    tenant.add_nodes("nv", 2)
    tenant.create_budget("a", 16)
    tenant.create_budget("b", 8)
    for name in ("left", "right"):
        tenant.create_run(name, "a", 8, runtime={"requeue": False})
    yield "both Runs run", lambda: all(len(tenant.running_pods(name)) == 1 for name in ("left", "right"))
    tenant.create_run("newcomer", "b", 8)
    yield "the newcomer runs", lambda: len(tenant.running_pods("newcomer")) == 1
    yield "one Run has failed", lambda: "Failed" in (tenant.phase("left"), tenant.phase("right"))
    loser = next(name for name in ("left", "right") if tenant.phase(name) == "Failed")
    tenant.cancel(loser)
    yield "the loser is deleted", lambda: not tenant.plane.rest.get(tenant.run_path(loser)).accepted
    yield "its pods are deleted", lambda: tenant.pods(loser) == []


def job_tree(tenant: Tenant) -> Steps:
    """Runs a job tree whose last two stages start together; then deletes it."""
    tenant.add_nodes("nv", 2)
    tenant.create_budget("a", 16)
    gpus = {"gpuType": tenant.flavor, "totalGPUs": 8}
    stages = [
        {"name": "prep", "resources": {"totalGPUs": 0, "pods": 1}},
        {"name": "train", "resources": gpus, "after": ["prep"]},
        {"name": "eval", "resources": gpus, "after": ["prep"], "with": ["train"]},
    ]
    tenant.create("Run", "tree", {"owner": tenant.owner("a"), "stages": stages})
    yield "the first stage runs", lambda: len(tenant.running_pods("tree-prep")) == 1
    tenant.finish("tree-prep")
    yield (
        "both other stages run",
        lambda: all(len(tenant.running_pods(f"tree-{stage}")) == 1 for stage in ("train", "eval")),
    )
    starts = {
        lease["spec"]["start"] for stage in ("train", "eval") for lease in tenant.leases(f"tree-{stage}")
    }
    assert len(starts) == 1
    tenant.cancel("tree")
    yield "its Runs are deleted", lambda: tenant.items(tenant.runs_path) == []
    yield "its pods are deleted", lambda: tenant.items(tenant.pods_path) == []


PARTS = {"growth": growth, "swap": swap, "lottery": lottery, "tree": job_tree}


class Workload:
    """One run of all parts, with a manager that may be replaced at any time."""

    def __init__(self, cluster: FaultCluster) -> None:
        self._cluster = cluster
        name = cluster.next_name()
        self._tenants = {part: cluster.create_tenant(f"{name}-{part}") for part in PARTS}

    def play(self, managers: list[Manager], check_manager: Callable[[], None] = lambda: None) -> None:
        """Plays all parts to their end; calls ``check_manager`` all the time."""
        parts = {part: play(self._tenants[part]) for part, play in PARTS.items()}
        pending = {part: next(steps) for part, steps in parts.items()}

        def finished() -> bool:
            check_manager()
            for part in [part for part, (_, condition) in pending.items() if condition()]:
                step = next(parts[part], None)
                if step is None:
                    del pending[part]
                else:
                    pending[part] = step
            return not pending

        try:
            wait_until(finished, "all parts are finished", WORKLOAD_SECONDS)
        except TimeoutError:
            late = {part: description for part, (description, _) in pending.items()}
            managers[-1].abort()
            raise TimeoutError(f"after {WORKLOAD_SECONDS} s, still not: {late}\n{logs(managers)}") from None

    def play_to_outcome(self, start: Callable[[], Manager], expected: Outcome) -> None:
        """Plays all parts and checks the outcome. A manager that ended, or lost the election, is replaced."""
        self._cluster.delete_election_lease()
        managers = [start()]

        def replace_manager() -> None:
            if managers[-1].has_ended:
                self._cluster.delete_election_lease()
                managers.append(start())

        try:
            self.play(managers, replace_manager)
            self.await_outcome(expected, managers, replace_manager)
            self.clear(replace_manager)
        finally:
            for manager in managers:
                manager.stop()

    def await_outcome(
        self, expected: Outcome, managers: list[Manager], check_manager: Callable[[], None] = lambda: None
    ) -> None:
        """Waits until the outcome is the expected one; asserts that no manager logged an error."""

        def is_expected() -> bool:
            check_manager()
            return self.outcome() == expected

        with suppress(TimeoutError):
            wait_until(is_expected, "the expected outcome", SETTLE_SECONDS)
        outcome = self.outcome()
        assert outcome == expected, f"{describe_difference(outcome, expected)}\n{logs(managers)}"
        for manager in managers:
            assert not manager.has_logged("Traceback"), logs(managers)
            assert not manager.has_logged("an invariant is broken"), logs(managers)

    def await_settled(self) -> Outcome:
        """Waits until Runs, leases and Budgets agree; returns the outcome."""
        wait_until(lambda: all(map(is_settled, self.outcome().values())), "all objects agree", SETTLE_SECONDS)
        return self.outcome()

    def outcome(self) -> Outcome:
        return {part: outcome_of(tenant) for part, tenant in self._tenants.items()}

    def clear(self, check_manager: Callable[[], None] = lambda: None) -> None:
        """Cancels all Runs and waits until they and their pods are deleted."""
        tenants = self._tenants.values()
        for tenant in tenants:
            for run in tenant.items(tenant.runs_path):
                tenant.cancel(run["metadata"]["name"])

        def is_empty() -> bool:
            check_manager()
            return not any(
                tenant.items(path) for tenant in tenants for path in (tenant.runs_path, tenant.pods_path)
            )

        wait_until(is_empty, "all Runs and pods are deleted", SETTLE_SECONDS)


def logs(managers: list[Manager]) -> str:
    return "\n".join(manager.log.read_text(errors="replace") for manager in managers)


def running_attempts(tenant: Tenant, run: str) -> list[str]:
    """The attempt of each running pod of a Run."""
    return [pod["metadata"]["labels"].get(f"{GROUP}/attempt", "") for pod in tenant.running_pods(run)]
