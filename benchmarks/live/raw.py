"""The limit: what the API server takes from a client like the manager, that only writes and decides nothing.

What is written is what Jobtree writes: one gang is run by the manager, and its objects are then made again
and again under other names. *Raw pods* are its pods alone, on their nodes, made for just as long as the gangs
took that they are compared with: kwok answers to pods, beginning a second after the first, so in equal times
it takes equally much of the machine. *Raw writes* are all that one gang of one pod needs, in the order in
which one needs the other, many gangs at once. The Run is written by a person, the rest with the manager's own
account: who writes decides which rules the server has to look at.
"""

import asyncio
import time
from collections.abc import Awaitable, Iterable
from copy import deepcopy
from itertools import count

import msgspec

from benchmarks.live.arrivals import arrivals
from benchmarks.live.client import Client, Document, in_blocks
from benchmarks.live.cluster import GPUS, Cluster, run_manifest
from benchmarks.live.gangs import Seen
from jobtree.kube.http import api_requests
from jobtree.kube.http.api_requests import Preconditions as Object, Request
from jobtree.kube.http.api_resources import EVENTS, LEASES, PODS, RUNS
from jobtree.kube.installation import FINALIZER

SAMPLE_SECONDS = 60.0
LEAST_SECONDS = 1.0
AMPLE = 4  # times as much as the gangs were: more than can be made in their time
WRITES_PER_GANG = 5  # the Run, its commit, its lease, its pod, its event
SERVER_FIELDS = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "finalizers")


class Sample(msgspec.Struct, frozen=True):
    """What Jobtree made of a gang of one pod."""

    run: Document
    lease: Document
    pod: Document
    event: Document


async def take_sample(cluster: Cluster, owner: str) -> Sample:
    """A gang of 8 GPUs, as the manager leaves it once all is written. No manager leads afterwards."""
    namespace = await cluster.add_namespace()
    client = cluster.client
    async with cluster.managed():
        await client.write(api_requests.create(RUNS, run_manifest("sample", namespace, owner, GPUS)))

        async def complete() -> bool:
            kinds = (PODS, EVENTS)
            return all([await client.count(kind, namespace) for kind in kinds])

        await client.until(complete, "the sample's pod and event are there", SAMPLE_SECONDS)
        run = await client.get(RUNS.path(namespace, "sample"))
        leases = [
            one for one in await client.items(LEASES) if one["spec"]["runRef"]["namespace"] == namespace
        ]
        pod, event = (await client.items(PODS, namespace))[0], (await client.items(EVENTS, namespace))[0]
        sample = Sample(run, leases[0], pod | {"status": {}}, event)
        await cluster.clean(namespace)
    return sample


class Limit(msgspec.Struct, frozen=True):
    done: int
    seconds: float


class Raw:
    def __init__(self, cluster: Cluster, sample: Sample) -> None:
        self._cluster = cluster
        self._sample = sample
        self._numbers = count(1)

    async def pods(self, like: Seen) -> Limit:
        """Pods made for as long as the gangs took."""
        namespace = await self._cluster.add_namespace()
        pods = [self._pod(namespace, next(self._numbers)) for _ in range(like.pods * AMPLE)]
        made = [api_requests.create(PODS, pod) for pod in pods]
        account = self._cluster.account
        limit = await self._measure((account.write(request) for request in made), namespace, like.seconds)
        await self._cluster.sweep(namespace)
        return limit

    async def gangs(self, like: Seen) -> Limit:
        """All that gangs of one pod need, made for as long as the gangs took."""
        namespace = await self._cluster.add_namespace()
        numbers = [next(self._numbers) for _ in range(like.gangs * AMPLE)]
        gangs = (self._gang(namespace, number) for number in numbers)
        limit = await self._measure(gangs, namespace, like.seconds)
        await self._forget(namespace)
        return limit

    async def _measure(self, doings: Iterable[Awaitable[object]], namespace: str, seconds: float) -> Limit:
        """The pods are counted as they come, as those of the gangs are. A few gangs take no time at all."""
        seconds = max(seconds, LEAST_SECONDS)
        await self._cluster.rest()
        async with arrivals(self._cluster.client, PODS, namespace):
            begun = time.perf_counter()
            done = await in_blocks(doings, seconds)
            return Limit(done, min(seconds, time.perf_counter() - begun))

    async def _gang(self, namespace: str, number: int) -> None:
        writer = self._cluster.account.writer
        metadata = {"name": f"raw-{number}", "namespace": namespace}
        run = bare(self._sample.run)
        submitted = {"metadata": metadata | {"finalizers": [FINALIZER]}, "status": {}}
        made = await self._made(self._cluster.client, api_requests.create(RUNS, run | submitted))
        await writer.write(api_requests.replace(RUNS, run | {"metadata": made}, "status"))
        lease = bare(self._sample.lease)
        lease["metadata"]["name"] = f"{namespace}-raw-{number}"
        event = bare(self._sample.event)
        event["metadata"] |= {"name": f"raw-{number}", "namespace": namespace}
        event["involvedObject"]["namespace"] = namespace
        await writer.write(api_requests.create(LEASES, lease))
        await asyncio.gather(
            writer.write(api_requests.create(PODS, self._pod(namespace, number))),
            writer.write(api_requests.create(EVENTS, event)),
        )

    async def _made(self, client: Client, request: Request) -> Document:
        metadata: Document = (await client.write(request))["metadata"]
        return {key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion")}

    def _pod(self, namespace: str, number: int) -> Document:
        pod = bare(self._sample.pod)
        pod["metadata"] |= {"name": f"raw-{number}", "namespace": namespace}
        nodes = self._cluster.nodes
        pod["spec"]["nodeName"] = nodes[number % len(nodes)]
        return pod

    async def _forget(self, namespace: str) -> None:
        client = self._cluster.client
        bare_again = {"metadata": {"finalizers": None}}
        made = [one["metadata"]["name"] for one in await client.items(RUNS, namespace)]
        await client.write_all(
            api_requests.merge_patch(RUNS, Object(name, namespace), bare_again) for name in made
        )
        await client.clear(RUNS, namespace)
        await self._cluster.sweep(namespace)
        await self._cluster.forget_leases()


def bare(document: Document) -> Document:
    """An object as its writer sent it, without what the server adds."""
    made = deepcopy(document)
    for field in SERVER_FIELDS:
        made["metadata"].pop(field, None)
    return made
