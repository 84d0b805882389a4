"""List and watch over real sockets, with a server that fails in several ways."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from jobtree.kube.http.api_errors import StatusError
from jobtree.kube.http.api_requests import Preconditions, pod_log
from jobtree.kube.http.api_resources import PODS
from jobtree.kube.http.async_transport import PooledTransport
from jobtree.kube.http.blocking_client import Client
from jobtree.kube.http.blocking_transport import PlainTransport
from jobtree.kube.watch.blocking_watch import follow_changes
from jobtree.kube.watch.object_store import Encoded, Store, StoredObject
from jobtree.kube.watch.reflector import Reflector
from jobtree.kube.watch.watch_protocol import WatchProtocol
from tests.unit.kube.server import (
    FakeServer,
    ReceivedRequest,
    Reply,
    bookmark,
    event,
    in_turn,
    refusal,
    serving,
    status,
    thing,
)

LIMIT_SECONDS = 20


def read(encoded: Encoded) -> StoredObject[None]:
    metadata = msgspec.json.decode(encoded)["metadata"]
    return StoredObject(
        metadata["uid"], metadata["name"], metadata["namespace"], metadata["resourceVersion"], None
    )


async def no_wait(_: float) -> None:
    await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while not condition():  # noqa: ASYNC110  what is waited for is state, not an event
            await asyncio.sleep(0.005)


class Scene:
    """A reflector of pods and its store."""

    def __init__(self, transport: PooledTransport, silence_seconds: float) -> None:
        self.store = Store(read)
        self.watch = Reflector(
            transport, WatchProtocol(PODS, self.store), silence_seconds=silence_seconds, sleep=no_wait
        )

    @property
    def names(self) -> list[str]:
        return sorted(stored.name for stored in self.store)


def play_scene(
    server: FakeServer, play: Callable[[Scene], Awaitable[None]], silence_seconds: float = LIMIT_SECONDS
) -> None:
    async def main() -> None:
        transport = PooledTransport(server.access())
        scene = Scene(transport, silence_seconds)
        task = asyncio.create_task(scene.watch.run())
        try:
            await play(scene)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await transport.close()

    asyncio.run(main())


def initial(version: int, *names: str) -> list[bytes]:
    return [*(event("ADDED", thing(name, 1)) for name in names), bookmark(version, end=True)]


def stream(*parts: bytes) -> Reply:
    """A watch that stays open and then sends nothing more."""
    return Reply(parts=parts, then="hang")


@pytest.mark.parametrize("then", ["end", "drop"])
def test_next_watch_continues_from_the_last_version(then: str) -> None:
    first = Reply(parts=initial(5, "a"), then=then)  # type: ignore[arg-type]
    with serving(in_turn(first, stream(event("ADDED", thing("b", 6))))) as server:

        async def play(scene: Scene) -> None:
            await until(lambda: scene.names == ["a", "b"])

        play_scene(server, play)
        assert [request.query.get("resourceVersion", "") for request in server.requests] == ["", "5"]


def test_silent_connection_is_replaced() -> None:
    with serving(in_turn(stream(*initial(5, "a")), stream(event("DELETED", thing("a", 6))))) as server:

        async def play(scene: Scene) -> None:
            await until(lambda: scene.store.synced and scene.names == [])

        play_scene(server, play, silence_seconds=0.2)


def test_deletions_between_two_watches_become_changes() -> None:
    gone = Reply(parts=[event("ERROR", status(410, "Expired"))])
    with serving(lambda _: stream(*initial(5, "a", "b", "c"))) as server:

        async def play(scene: Scene) -> None:
            await until(lambda: scene.names == ["a", "b", "c"])
            scene.store.drain()
            server.respond = in_turn(gone, stream(*initial(9, "b", "d")))
            server.cut()
            await until(lambda: scene.names == ["b", "d"])
            changes = [(c.before and c.before.name, c.after and c.after.name) for c in scene.store.drain()]
            assert changes == [("a", None), ("c", None), (None, "d")]

        play_scene(server, play)


def test_server_that_cannot_stream_lists_is_asked_for_pages() -> None:
    def respond(request: ReceivedRequest) -> Reply:
        if "sendInitialEvents" in request.query:
            return refusal(422, "Invalid")
        if "watch" in request.query:
            return stream(event("ADDED", thing("c", 10)))
        more = {} if "continue" in request.query else {"continue": "t"}
        items = [thing("b" if "continue" in request.query else "a", 1)]
        return Reply(document={"metadata": {"resourceVersion": "9"} | more, "items": items})

    with serving(respond) as server:

        async def play(scene: Scene) -> None:
            await until(lambda: scene.names == ["a", "b", "c"])

        play_scene(server, play)
        assert server.requests[-1].query["resourceVersion"] == "9"


def test_error_is_kept_until_the_next_success() -> None:
    with serving(lambda _: refusal(403, "Forbidden")) as server:

        async def play(scene: Scene) -> None:
            await until(lambda: scene.watch.error is not None)
            error = scene.watch.error
            assert isinstance(error, StatusError)
            assert error.code == 403
            assert not scene.store.synced
            server.respond = lambda _: stream(*initial(5, "a"))
            await until(lambda: scene.names == ["a"])
            assert scene.watch.error is None

        play_scene(server, play)


def test_silence_is_counted_from_the_last_data() -> None:
    now = [100.0]

    async def main(server: FakeServer) -> None:
        transport = PooledTransport(server.access())
        store = Store(read)
        watch = Reflector(transport, WatchProtocol(PODS, store), clock=lambda: now[0])
        now[0] = 130.0
        assert watch.silent_seconds() == 30
        task = asyncio.create_task(watch.run())
        await until(lambda: store.synced)
        assert watch.silent_seconds() == 0
        now[0] = 200.0
        assert watch.silent_seconds() == 70
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await transport.close()

    with serving(lambda _: stream(*initial(5))) as server:
        asyncio.run(main(server))


def test_unreadable_object_does_not_stop_the_watch() -> None:
    broken = event("ADDED", {"metadata": {"uid": "x", "resourceVersion": "2"}})
    with serving(lambda _: stream(broken, *initial(5, "a"))) as server:

        async def play(scene: Scene) -> None:
            await until(lambda: scene.store.synced)
            assert scene.names == ["a"]

        play_scene(server, play)


def test_blocking_watch_yields_after_every_change() -> None:
    gone = Reply(parts=[event("ERROR", status(410, "Expired"))])
    replies = in_turn(Reply(parts=initial(5, "a")), gone, refusal(503, ""), stream(*initial(9, "b")))
    with serving(replies) as server:
        transport, store, waits = PlainTransport(server.access()), Store(read), list[float]()
        changes = follow_changes(transport, WatchProtocol(PODS, store), sleep=waits.append)
        names: list[list[str]] = []
        while not names or names[-1] != ["b"]:
            next(changes)
            names.append(sorted(stored.name for stored in store))
        changes.close()
        transport.close()
    assert ["a"] in names
    assert 0.0 in waits, "there is no wait after a 410"


def test_blocking_watch_raises_when_the_user_lacks_a_right() -> None:
    with serving(lambda _: refusal(403, "Forbidden")) as server:
        changes = follow_changes(PlainTransport(server.access()), WatchProtocol(PODS, Store(read)))
        with pytest.raises(StatusError):
            next(changes)


def test_log_is_read_line_by_line() -> None:
    with serving(lambda _: Reply(parts=[b"one\ntw", b"o\n\xff", b"!"])) as server:
        client = Client(PlainTransport(server.access()))
        lines = list(client.lines(pod_log(Preconditions("x", "team"), follow=True)))
    assert lines == ["one", "two", "\ufffd!"]
