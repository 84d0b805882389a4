"""Measures the limits of the API server with a client that writes like the manager but decides nothing.

The manager runs one gang, and copies of its objects are then created under other names. *Raw pods* are only
its pods, created for as long as the compared gangs took: so kwok, which reacts to pods, uses an equal part of
the machine. *Raw writes* are all writes of a gang of one pod in their order, for many gangs at once. The Run
is written by a user and the rest by the account of the manager, because the server checks other rules for
each account.
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
from benchmarks.live.gangs import GangFigures
from jobtree.kube.http import api_requests
from jobtree.kube.http.api_requests import Preconditions as Object, Request
from jobtree.kube.http.api_resources import EVENTS, LEASES, PODS, RUNS
from jobtree.kube.installation import FINALIZER

SAMPLE_SECONDS = 60.0
LEAST_SECONDS = 1.0
AMPLE = 4  # times the number of gangs: more than can be created in their time
WRITES_PER_GANG = 5  # the Run, its commit, its lease, its pod, its event
SERVER_FIELDS = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "finalizers")


class Sample(msgspec.Struct, frozen=True):
    """The objects of a gang of one pod."""

    run: Document
    lease: Document
    pod: Document
    event: Document


async def take_sample(cluster: Cluster, owner: str) -> Sample:
    """Returns the objects of a gang of 8 GPUs that the manager started. No manager leads afterwards."""
    namespace = await cluster.add_namespace()
    client = cluster.client
    async with cluster.managed():
        await client.write(api_requests.create(RUNS, run_manifest("sample", namespace, owner, GPUS)))

        async def complete() -> bool:
            kinds = (PODS, EVENTS)
            return all([await client.count(kind, namespace) for kind in kinds])

        await client.until(complete, "the pod and the event of the sample exist", SAMPLE_SECONDS)
        run = await client.get(RUNS.path(namespace, "sample"))
        leases = [
            lease for lease in await client.items(LEASES) if lease["spec"]["runRef"]["namespace"] == namespace
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

    async def pods(self, like: GangFigures) -> Limit:
        """Creates pods for as long as the gangs took."""
        namespace = await self._cluster.add_namespace()
        pods = [self._pod(namespace, next(self._numbers)) for _ in range(like.pods * AMPLE)]
        made = [api_requests.create(PODS, pod) for pod in pods]
        account = self._cluster.account
        limit = await self._measure((account.write(request) for request in made), namespace, like.seconds)
        await self._cluster.sweep(namespace)
        return limit

    async def gangs(self, like: GangFigures) -> Limit:
        """Creates all objects of gangs of one pod for as long as the gangs took."""
        namespace = await self._cluster.add_namespace()
        numbers = [next(self._numbers) for _ in range(like.gangs * AMPLE)]
        gangs = (self._gang(namespace, number) for number in numbers)
        limit = await self._measure(gangs, namespace, like.seconds)
        await self._forget(namespace)
        return limit

    async def _measure(self, actions: Iterable[Awaitable[object]], namespace: str, seconds: float) -> Limit:
        """Counts what is done in the time; pods are watched, as for the gangs."""
        seconds = max(seconds, LEAST_SECONDS)
        await self._cluster.rest()
        async with arrivals(self._cluster.client, PODS, namespace):
            begun = time.perf_counter()
            done = await in_blocks(actions, seconds)
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
        without_finalizers = {"metadata": {"finalizers": None}}
        made = [run["metadata"]["name"] for run in await client.items(RUNS, namespace)]
        await client.write_all(
            api_requests.merge_patch(RUNS, Object(name, namespace), without_finalizers) for name in made
        )
        await client.clear(RUNS, namespace)
        await self._cluster.sweep(namespace)
        await self._cluster.forget_leases()


def bare(document: Document) -> Document:
    """Returns an object as its writer sent it, without the fields that the server adds."""
    copy = deepcopy(document)
    for field in SERVER_FIELDS:
        copy["metadata"].pop(field, None)
    return copy
