"""Measures the time from submit to bound on an idle cluster, one gang after another."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from benchmarks.live.cluster import Cluster, run_manifest
from jobtree.kube.http import api_requests
from jobtree.kube.http.api_requests import Selector
from jobtree.kube.http.api_resources import PODS, RUNS
from jobtree.kube.http.line_cutter import LineCutter

WATCH_SECONDS = 600


async def bound_pods(cluster: Cluster, namespace: str) -> AsyncGenerator[float, None]:
    """Yields the times at which bound pods were created; the first value comes when the watch is open."""
    request = api_requests.watch(PODS, Selector(namespace), "", WATCH_SECONDS, initial=False)
    cutter, seen = LineCutter(), set[bytes]()
    async with aclosing(cluster.client.transport.stream(request, None)) as stream:
        async for chunk in stream:
            if not chunk:
                yield 0.0
            for line in cutter.feed(chunk):
                name = line.partition(b'"name":"')[2].partition(b'"')[0]
                if b'"nodeName":"' in line and name not in seen:
                    seen.add(name)
                    yield time.perf_counter()


async def measure_idle(cluster: Cluster, owner: str, gpus: int, times: int) -> list[float]:
    """Returns the milliseconds from submit to the last bound pod, sorted, while a manager leads."""
    namespace, found = await cluster.add_namespace(), []
    async with aclosing(bound_pods(cluster, namespace)) as bound:
        await anext(bound)
        for number in range(times):
            begun = time.perf_counter()
            run = run_manifest(f"idle-{number}", namespace, owner, gpus)
            await cluster.client.write(api_requests.create(RUNS, run))
            for _ in range(gpus // 8):
                last = await anext(bound)
            found.append((last - begun) * 1000)
    await cluster.clean(namespace)
    return sorted(found)
