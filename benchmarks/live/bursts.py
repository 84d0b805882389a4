"""Measures how long a Run of one namespace waits while another namespace creates thousands (H4).

A canary of 8 GPUs is submitted every second, over a connection of its own. Some of the others start, the rest
wait for a date.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress

import msgspec

from benchmarks.live.client import Client, connect
from benchmarks.live.cluster import GPUS, Cluster, run_manifest
from benchmarks.live.idle import bound_pods
from jobtree.kube.http import api_requests
from jobtree.kube.http.api_requests import Preconditions
from jobtree.kube.http.api_resources import RUNS
from tests.live.cluster.api_server_flags import ADMIN_GROUP

EVERY_SECONDS = 1.0
AFTER_SECONDS = 5.0  # for which canaries are submitted after the burst, or after the start of the manager


class BurstFigures(msgspec.Struct, frozen=True):
    """Seconds from submit to bound of the canaries, in a burst and after a start of the manager."""

    burst: list[float]
    start: list[float]


async def measure_bursts(cluster: Cluster, runs: int) -> BurstFigures:
    """Measures with ``runs`` Runs that come while a manager leads, and then with these when one starts."""
    many, few = await cluster.add_team(len(cluster.nodes) * GPUS // 2), await cluster.add_team(8 * GPUS)
    crowded, other = await cluster.add_namespace(), await cluster.add_namespace()
    submits = [
        api_requests.create(RUNS, run_manifest(f"burst-{number}", crowded, many, GPUS))
        for number in range(runs)
    ]
    async with connect(cluster.plane.kubeconfig("canary", ADMIN_GROUP)) as client:
        async with cluster.managed(), canaries(cluster, client, other, few) as during:
            await cluster.client.write_all(submits)
            await asyncio.sleep(AFTER_SECONDS)
        async with canaries(cluster, client, other, few) as after, cluster.managed():
            await asyncio.sleep(AFTER_SECONDS)
    return BurstFigures(sorted(during), sorted(after[1:]))  # the first one waits for the manager


@asynccontextmanager
async def canaries(
    cluster: Cluster, client: Client, namespace: str, owner: str
) -> AsyncIterator[list[float]]:
    """Submits a canary every second; the seconds to bound of each are in the list."""
    seconds: list[float] = []
    submitting = asyncio.ensure_future(submit_canaries(cluster, client, namespace, owner, seconds))
    try:
        yield seconds
    finally:
        submitting.cancel()
        with suppress(asyncio.CancelledError):
            await submitting


async def submit_canaries(
    cluster: Cluster, client: Client, namespace: str, owner: str, seconds: list[float]
) -> None:
    async with aclosing(bound_pods(cluster, namespace)) as bound:
        await anext(bound)
        while True:
            begun = time.perf_counter()
            name = f"canary-{time.monotonic_ns()}"
            await client.write(api_requests.create(RUNS, run_manifest(name, namespace, owner, GPUS)))
            seconds.append(await anext(bound) - begun)
            await client.writer.write(api_requests.delete(RUNS, Preconditions(name, namespace)))
            await asyncio.sleep(max(0.0, begun + EVERY_SECONDS - time.perf_counter()))
