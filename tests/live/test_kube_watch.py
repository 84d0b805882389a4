"""Watches of a real API server: how they start, and that they outlive it."""

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
from tests.live.control_plane import ControlPlane
from tests.live.outage import restart

LIMIT_SECONDS = 120
OURS = Selector(labels="test=kube-watch")


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


class Counting:
    """Passes requests on and writes them down."""

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


class Scene:
    """A store of our config maps, watched whenever ``watched`` is entered."""

    def __init__(self, plane: ControlPlane) -> None:
        access = find_access(kubeconfig=str(plane.admin_kubeconfig))
        self.transport = Counting(PooledTransport(access))
        self.writer = Writer(self.transport.inner, Gate())
        self.store = Store(read)
        self.follow = WatchProtocol(CONFIG_MAPS, self.store, OURS)

    @property
    def values(self) -> dict[str, str]:
        return {held.name: held.value for held in self.store}

    def told(self) -> list[tuple[str | None, str | None]]:
        return [
            (before.value if before else None, after.value if after else None)
            for before, after in self.store.drain()
        ]

    async def put(self, **values: str) -> None:
        await asyncio.gather(
            *(self.writer.create(CONFIG_MAPS, config_map(name, value)) for name, value in values.items())
        )

    async def remove(self, *names: str) -> None:
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
async def scene_of(plane: ControlPlane) -> AsyncIterator[Scene]:
    scene = Scene(plane)
    try:
        yield scene
        await scene.remove(*scene.values)
    finally:
        await scene.transport.close()


def test_a_watch_starts_with_all_there_is_in_one_stream(control_plane: ControlPlane) -> None:
    async def main() -> None:
        async with scene_of(control_plane) as scene:
            await scene.put(one="1", two="2")
            async with scene.watched() as watch:
                await until(lambda: scene.store.synced)
                assert scene.values == {"one": "1", "two": "2"}
                (first,) = scene.transport.sent
                assert "sendInitialEvents=true" in first.target
                assert watch.trouble is None
                await scene.remove("one")
                await scene.put(one="again")
                await until(lambda: scene.values.get("one") == "again")

    asyncio.run(main())


@pytest.fixture(name="old_plane", scope="module")
def _old_plane() -> Iterator[ControlPlane]:
    """A server that does not stream lists, as older ones do not."""
    with ControlPlane({"feature-gates": "WatchList=false"}) as plane:
        yield plane


def test_a_server_that_does_not_stream_lists_is_read_in_pages(old_plane: ControlPlane) -> None:
    async def main() -> None:
        async with scene_of(old_plane) as scene:
            await scene.put(**{f"m{n:03d}": str(n) for n in range(600)})
            async with scene.watched():
                await until(lambda: scene.store.synced)
                assert len(scene.store) == 600
                lists = [request for request in scene.transport.sent if "watch=true" not in request.target]
                assert len(lists) == 2, "two pages"
                await scene.put(late="x")
                await until(lambda: "late" in scene.values)

    asyncio.run(main())


def test_watches_outlive_the_server_and_learn_what_they_missed(old_plane: ControlPlane) -> None:
    """On a plane of its own, since everybody else needs theirs."""

    async def main() -> None:
        async with scene_of(old_plane) as scene:
            await scene.put(kept="k", gone="g", remade="first")
            async with scene.watched() as watch:
                await until(lambda: len(scene.store) == 3)
                await asyncio.to_thread(restart, old_plane)
                await scene.put(after="a")
                await until(lambda: "after" in scene.values and watch.trouble is None)
            scene.store.drain()
            before = scene.store.named("remade", "default")
            await scene.remove("gone", "remade")
            await scene.put(remade="second", fresh="f")
            await asyncio.to_thread(restart, old_plane)  # its cache begins now: our version is too old for it
            scene.transport.sent.clear()
            async with scene.watched():
                await until(lambda: scene.values.keys() == {"kept", "after", "remade", "fresh"})
                await until(lambda: scene.values["remade"] == "second")
            after = scene.store.named("remade", "default")
            watched, listed, *_ = scene.transport.sent
            assert "resourceVersion=" in watched.target, "it went on from what it knew"
            assert "watch=true" not in listed.target, "which the server did not remember"
            assert before is not None
            assert after is not None
            assert before.uid != after.uid
            told = scene.told()
            assert sorted(told[:2], key=str) == [("first", None), ("g", None)]
            assert sorted(told[2:], key=str) == [(None, "f"), (None, "second")]

    asyncio.run(main())


def test_a_silent_connection_is_replaced(control_plane: ControlPlane) -> None:
    """With less patience than bookmarks take, the watch is always taken for dead, and loses nothing."""

    async def main() -> None:
        async with scene_of(control_plane) as scene:
            watch = Reflector(scene.transport, scene.follow, silence_seconds=0.5)
            task = asyncio.create_task(watch.run())
            await until(lambda: len(scene.transport.sent) > 4)
            await scene.put(late="x")
            await until(lambda: "late" in scene.values)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def test_the_blocking_stream_shows_changes_as_they_happen(control_plane: ControlPlane) -> None:
    transport = PlainTransport(find_access(kubeconfig=str(control_plane.admin_kubeconfig)))
    store = Store(read)
    changes = follow_changes(transport, WatchProtocol(CONFIG_MAPS, store, OURS))
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
