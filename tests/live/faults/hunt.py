"""``python -m tests.live.faults.hunt``: hostile objects beside a tenant who must not wait for them.

One tenant creates, edits and deletes Runs, trees and Budgets at all limits and one past them, as fast as the
API server takes them. Another one, the canary, submits a Run of 8 GPUs every second. The hunt fails if the
manager ends, logs a traceback or a broken invariant, or if the p99 of the time to bound of the canary's Runs
is above ``BAR_SECONDS``. ``--seeds 1-3`` plays three hunts, each on a cluster of its own.
"""

import argparse
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import msgspec

from tests.live.cluster.control_plane import ControlPlane
from tests.live.cluster.server_process import wait_until
from tests.live.crds.installed_crds import collection_path
from tests.live.crds.manifests import API_VERSION
from tests.live.faults.fault_cluster import FaultCluster
from tests.live.faults.hostile_objects import hostile_object
from tests.live.faults.soak import spans
from tests.live.manager.manager_process import Manager
from tests.live.manager.tenant import Tenant
from tests.live.programs.build_recipes import CLUSTER_PROGRAMS
from tests.live.programs.program_finder import find_programs

BAR_SECONDS = 2.0
ATTACKERS = 2
BOUND_SECONDS = 60.0
SOME_OBJECTS = 60  # of each attacker, that are there at a time; older ones are deleted
CLEAR_SECONDS = 120.0
NODES = 40
HOSTILE = "hunt"  # how the names of hostile objects begin
BUDGETS_PATH = f"/apis/{API_VERSION}/budgets"
POLL_SECONDS = 0.02


class Hunt(msgspec.Struct):
    """What a hunt found: seconds to bound, in order of time, and what was created just before each canary."""

    seconds: list[float] = []
    accepted: int = 0
    refused: int = 0
    before: list[str] = []

    @property
    def p99(self) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]

    def __str__(self) -> str:
        ordered = sorted(self.seconds)
        slowest = max(range(len(self.seconds)), key=self.seconds.__getitem__)
        return (
            f"{self.accepted} objects accepted, {self.refused} refused; {len(ordered)} canaries bound after "
            f"{ordered[len(ordered) // 2]:.2f} s (p50), {self.p99:.2f} s (p99), {ordered[-1]:.2f} s (most, "
            f"after {self.before[slowest]})"
        )


class Attacker:
    """Creates, edits and deletes hostile objects until it is stopped."""

    def __init__(self, tenant: Tenant, seed: str, hunt: Hunt, stopping: threading.Event) -> None:
        self._tenant = tenant
        self._draw = Random(seed)
        self._prefix = f"{HOSTILE}-{seed}"
        self._hunt = hunt
        self._stopping = stopping
        self._paths: list[str] = []
        self.last = "nothing"

    def run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            number += 1
            self._create(f"{self._prefix}-{number}")
            if self._paths and self._draw.random() < 0.2:
                patch = {"spec": {"resources": {"totalGPUs": self._draw.choice((1, 8, 512))}}}
                self._tenant.plane.rest.merge(self._draw.choice(self._paths), patch)
            if len(self._paths) > SOME_OBJECTS:
                self._tenant.plane.rest.delete(self._paths.pop(self._draw.randrange(len(self._paths))))

    def _create(self, name: str) -> None:
        tenant = self._tenant
        manifest = hostile_object(self._draw, name, tenant.name, tenant.owner("a"), tenant.flavor)
        self.last = f"{manifest['kind']} {name}"
        answer = tenant.plane.rest.post(collection_path(manifest), manifest)
        self._hunt.accepted += answer.accepted
        self._hunt.refused += not answer.accepted
        if answer.accepted:
            self._paths.append(f"{collection_path(manifest)}/{name}")


def submit_canaries(tenant: Tenant, hunt: Hunt, attackers: list[Attacker], until: float) -> None:
    """Submits a Run every second, and waits until it has its pod."""
    number = 0
    while time.monotonic() < until:
        number += 1
        begun = time.monotonic()
        before = ", ".join(attacker.last for attacker in attackers)
        tenant.create_run(f"canary-{number}", "a", 8)
        wait_until(
            lambda: bool(tenant.pods(f"canary-{number}")),  # noqa: B023  it is called at once
            "the canary is bound",
            BOUND_SECONDS,
        )
        hunt.seconds.append(time.monotonic() - begun)
        hunt.before.append(before)
        tenant.cancel(f"canary-{number}")
        time.sleep(max(0.0, begun + 1 - time.monotonic()))


@contextmanager
def attacks(tenant: Tenant, seed: int, hunt: Hunt) -> Iterator[list[Attacker]]:
    stopping = threading.Event()
    attackers = [Attacker(tenant, f"{seed}-{number}", hunt, stopping) for number in range(ATTACKERS)]
    threads = [threading.Thread(target=attacker.run) for attacker in attackers]
    for thread in threads:
        thread.start()
    try:
        yield attackers
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def play(cluster: FaultCluster, seed: int, seconds: float) -> Hunt:
    """Plays one hunt. Raises AssertionError if the manager does not survive it."""
    hostile, canary = cluster.create_tenant(), cluster.create_tenant()
    canary.flavor = hostile.flavor
    hostile.add_nodes("nv", NODES)
    hostile.create_budget("a", 8 * NODES // 2)
    canary.create_budget("a", 8 * NODES // 4)
    hunt = Hunt()
    cluster.delete_election_lease()
    with cluster.start_manager("--check-seconds=30") as manager:
        canary.create_run("first", "a", 8)
        canary.await_running_pods("first", 1)
        with attacks(hostile, seed, hunt) as attackers:
            submit_canaries(canary, hunt, attackers, time.monotonic() + seconds)
        assert_survives(manager)
        clear(hostile, canary)
    return hunt


def clear(*tenants: Tenant) -> None:
    """Deletes what the tenants created, while a manager runs."""
    rest = tenants[0].plane.rest
    for budget in tenants[0].items(BUDGETS_PATH):
        if budget["metadata"]["name"].startswith(HOSTILE):
            rest.delete(f"{BUDGETS_PATH}/{budget['metadata']['name']}")
    for tenant in tenants:
        rest.delete(tenant.runs_path)
    for tenant in tenants:
        wait_until(lambda: not tenant.items(tenant.runs_path), "all Runs are deleted", CLEAR_SECONDS)  # noqa: B023  it is called at once


def assert_survives(manager: Manager) -> None:
    assert not manager.has_ended, manager.log.read_text()
    for sign in ("Traceback", "an invariant is broken"):
        assert not manager.has_logged(sign), [line for line in manager.log_lines() if sign in str(line)][:3]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.live.faults.hunt", description=__doc__)
    parser.add_argument("--seeds", type=spans, default=spans("1"), help="such as 5,8 or 1-3")
    parser.add_argument("--seconds", type=float, default=300.0, help="of each hunt")
    options = parser.parse_args()
    find_programs(list(CLUSTER_PROGRAMS))
    failed = False
    for seed in (seed for span in options.seeds for seed in span):
        with ControlPlane() as plane:
            hunt = play(FaultCluster(plane), seed, options.seconds)
        failed = failed or hunt.p99 > BAR_SECONDS
        sys.stdout.write(f"seed {seed}: {hunt}\n")
        sys.stdout.flush()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
