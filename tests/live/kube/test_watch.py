"""Watches of a real API server: how they start, and that they continue after a restart."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest

from jobtree.kube.auth.cluster_access import find_access
from jobtree.kube.http import api_requests
from jobtree.kube.http.api_errors import KubeError
from jobtree.kube.http.api_requests import Preconditions, Request, Selector
from jobtree.kube.http.api_resources import CONFIG_MAPS
from jobtree.kube.http.async_transport import PooledTransport
from jobtree.kube.http.blocking_transport import PlainTransport
from jobtree.kube.watch.blocking_watch import follow_changes
from jobtree.kube.watch.object_store import Encoded, Store, StoredObject
from jobtree.kube.watch.reflector import Reflector
from jobtree.kube.watch.watch_protocol import WatchProtocol
from jobtree.kube.write.object_writer import Writer
from jobtree.kube.write.write_gate import Gate
from tests.live.cluster.api_server_restart import restart_api_server
from tests.live.cluster.control_plane import ControlPlane

LIMIT_SECONDS = 120
SELECTOR = Selector(labels="test=kube-watch")


def read(encoded: Encoded) -> StoredObject[str]:
    document = msgspec.json.decode(encoded)
    metadata = document["metadata"]
    value = document.get("data", {}).get("a", "")
    return StoredObject(
        metadata["uid"], metadata["name"], metadata["namespace"], metadata["resourceVersion"], value
    )


def config_map(name: str, value: str = "") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "labels": {"test": "kube-watch"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": value}}


class RecordingTransport:
    """Forwards requests and records them."""

    def __init__(self, inner: PooledTransport) -> None:
        self.inner = inner
        self.sent: list[Request] = []

    async def send(self, request: Request) -> bytes:
        self.sent.append(request)
        return await self.inner.send(request)

    def stream(self, request: Request, silence_seconds: float | None) -> AsyncGenerator[bytes, None]:
        self.sent.append(request)
        return self.inner.stream(request, silence_seconds)

    async def close(self) -> None:
        await self.inner.close()


class ConfigMapStore:
    """A store of ConfigMaps with a label; ``watched`` keeps it up to date."""

    def __init__(self, plane: ControlPlane) -> None:
        access = find_access(kubeconfig=str(plane.admin_kubeconfig))
        self.transport = RecordingTransport(PooledTransport(access))
        self.writer = Writer(self.transport.inner, Gate())
        self.store = Store(read)
        self.follow = WatchProtocol(CONFIG_MAPS, self.store, SELECTOR)

    @property
    def values(self) -> dict[str, str]:
        return {held.name: held.value for held in self.store}

    def drained_changes(self) -> list[tuple[str | None, str | None]]:
        return [
            (before.value if before else None, after.value if after else None)
            for before, after in self.store.drain()
        ]

    async def create(self, **values: str) -> None:
        await asyncio.gather(
            *(self.writer.create(CONFIG_MAPS, config_map(name, value)) for name, value in values.items())
        )

    async def delete(self, *names: str) -> None:
        await asyncio.gather(
            *(self.writer.delete(CONFIG_MAPS, Preconditions(name, "default")) for name in names)
        )

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[Reflector]:
        watch = Reflector(self.transport, self.follow)
        task = asyncio.create_task(watch.run())
        try:
            yield watch
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while not condition():  # noqa: ASYNC110  what is waited for is state, not an event
            await asyncio.sleep(0.01)


@asynccontextmanager
async def config_map_store(plane: ControlPlane) -> AsyncIterator[ConfigMapStore]:
    watched_maps = ConfigMapStore(plane)
    try:
        yield watched_maps
        await watched_maps.delete(*watched_maps.values)
    finally:
        await watched_maps.transport.close()


def test_watch_starts_with_a_streamed_list(control_plane: ControlPlane) -> None:
    async def main() -> None:
        async with config_map_store(control_plane) as watched_maps:
            await watched_maps.create(one="1", two="2")
            async with watched_maps.watched() as watch:
                await until(lambda: watched_maps.store.synced)
                assert watched_maps.values == {"one": "1", "two": "2"}
                (first,) = watched_maps.transport.sent
                assert "sendInitialEvents=true" in first.target
                assert watch.error is None
                await watched_maps.delete("one")
                await watched_maps.create(one="recreated")
                await until(lambda: watched_maps.values.get("one") == "recreated")

    asyncio.run(main())


@pytest.fixture(name="old_plane", scope="module")
def _old_plane() -> Iterator[ControlPlane]:
    """An API server that does not stream lists, like older versions."""
    with ControlPlane({"feature-gates": "WatchList=false"}) as plane:
        yield plane


def test_watch_lists_in_pages_when_the_server_does_not_stream_lists(old_plane: ControlPlane) -> None:
    async def main() -> None:
        async with config_map_store(old_plane) as watched_maps:
            await watched_maps.create(**{f"m{n:03d}": str(n) for n in range(600)})
            async with watched_maps.watched():
                await until(lambda: watched_maps.store.synced)
                assert len(watched_maps.store) == 600
                lists = [
                    request for request in watched_maps.transport.sent if "watch=true" not in request.target
                ]
                assert len(lists) == 2, "the list must have two pages"
                await watched_maps.create(late="x")
                await until(lambda: "late" in watched_maps.values)

    asyncio.run(main())


def test_watch_reports_missed_changes_after_a_restart_of_the_server(old_plane: ControlPlane) -> None:
    """Uses a control plane of its own, because it restarts the API server."""

    async def main() -> None:
        async with config_map_store(old_plane) as watched_maps:
            await watched_maps.create(kept="k", deleted="g", recreated="first")
            async with watched_maps.watched() as watch:
                await until(lambda: len(watched_maps.store) == 3)
                await asyncio.to_thread(restart_api_server, old_plane)
                await watched_maps.create(after="a")
                await until(lambda: "after" in watched_maps.values and watch.error is None)
            watched_maps.store.drain()
            before = watched_maps.store.named("recreated", "default")
            await watched_maps.delete("deleted", "recreated")
            await watched_maps.create(recreated="second", fresh="f")
            await asyncio.to_thread(
                restart_api_server, old_plane
            )  # empties its watch cache, which then lacks the version of the store
            watched_maps.transport.sent.clear()
            async with watched_maps.watched():
                await until(lambda: watched_maps.values.keys() == {"kept", "after", "recreated", "fresh"})
                await until(lambda: watched_maps.values["recreated"] == "second")
            after = watched_maps.store.named("recreated", "default")
            watched, listed, *_ = watched_maps.transport.sent
            assert "resourceVersion=" in watched.target, "the watch must resume at the version of the store"
            assert "watch=true" not in listed.target, "a list must follow when the server lacks that version"
            assert before is not None
            assert after is not None
            assert before.uid != after.uid
            changes = watched_maps.drained_changes()
            assert sorted(changes[:2], key=str) == [("first", None), ("g", None)]
            assert sorted(changes[2:], key=str) == [(None, "f"), (None, "second")]

    asyncio.run(main())


def test_watch_replaces_a_silent_connection(control_plane: ControlPlane) -> None:
    """Bookmarks come less often than ``silence_seconds``, so the watch is replaced; no change is lost."""

    async def main() -> None:
        async with config_map_store(control_plane) as watched_maps:
            watch = Reflector(watched_maps.transport, watched_maps.follow, silence_seconds=0.5)
            task = asyncio.create_task(watch.run())
            await until(lambda: len(watched_maps.transport.sent) > 4)
            await watched_maps.create(late="x")
            await until(lambda: "late" in watched_maps.values)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def test_blocking_watch_reports_changes(control_plane: ControlPlane) -> None:
    transport = PlainTransport(find_access(kubeconfig=str(control_plane.admin_kubeconfig)))
    store = Store(read)
    changes = follow_changes(transport, WatchProtocol(CONFIG_MAPS, store, SELECTOR))
    try:
        while not store.synced:
            next(changes)
        for name in ("x", "y"):
            transport.send(api_requests.create(CONFIG_MAPS, config_map(name)))
            while store.named(name, "default") is None:
                next(changes)
        for name in ("x", "y"):
            transport.send(api_requests.delete(CONFIG_MAPS, Preconditions(name, "default")))
            while store.named(name, "default") is not None:
                next(changes)
    finally:
        changes.close()
        with suppress(KubeError):
            transport.close()
