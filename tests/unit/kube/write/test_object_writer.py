import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

from jobtree.kube.http import api_requests
from jobtree.kube.http.api_errors import FencedError, StatusError, UnreachableError
from jobtree.kube.http.api_requests import Preconditions, Request
from jobtree.kube.http.api_resources import CONFIG_MAPS
from jobtree.kube.write.object_writer import BUSY_PATIENCE_SECONDS, PATIENCE_SECONDS, Writer, contains
from jobtree.kube.write.write_gate import Gate
from tests.unit.kube.clocks import Clock

WANTED = {"metadata": {"name": "x", "namespace": "team"}, "data": {"a": "1"}}
EXISTING = {"metadata": {"name": "x", "namespace": "team", "uid": "u"}, "data": {"a": "1"}, "extra": True}
LOST = UnreachableError("no response", may_have_happened=True)
BUSY = StatusError(429, "TooManyRequests", "busy", retry_after_seconds=1)
FAILING = StatusError(503, "ServiceUnavailable", "unwell")
CONFLICT = StatusError(409, "Conflict", "changed")
EXISTS = StatusError(409, "AlreadyExists", "exists")
MISSING = StatusError(404, "NotFound", "gone")


class Script:
    """A transport that answers writes from a list of responses, and reads with ``existing``."""

    def __init__(self, *responses: object, existing: object = EXISTING) -> None:
        self.responses = list(responses)
        self.existing = existing
        self.sent: list[Request] = []

    async def send(self, request: Request) -> bytes:
        self.sent.append(request)
        response = self.existing if request.method == "GET" else self.responses.pop(0)
        if isinstance(response, Exception):
            raise response
        return msgspec.json.encode(response)

    def stream(self, request: Request, silence_seconds: float | None) -> AsyncGenerator[bytes, None]:
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing is open."""


Play = Callable[[Writer], Awaitable[Any]]


def run(script: Script, play: Play, gate: Gate | None = None, clock: Clock | None = None) -> Any:  # noqa: ANN401
    clock = clock or Clock()

    async def main() -> Any:  # noqa: ANN401  what the play gives
        return await play(Writer(script, gate or Gate(), clock=clock, sleep=clock.sleep))

    return asyncio.run(main())


def create(writer: Writer) -> Awaitable[bytes]:
    return writer.create(CONFIG_MAPS, WANTED)


@pytest.mark.parametrize("error", [LOST, FAILING])
def test_write_is_sent_again_after_a_passing_error(error: Exception) -> None:
    script, clock = Script(error, error, EXISTING), Clock()
    assert msgspec.json.decode(run(script, create, clock=clock)) == EXISTING
    assert len(clock.slept) == 2
    assert clock.slept[0] < clock.slept[1] * 2


def test_write_is_sent_again_after_the_time_that_the_server_asks_for() -> None:
    script, clock = Script(BUSY, EXISTING), Clock()
    assert msgspec.json.decode(run(script, create, clock=clock)) == EXISTING
    assert min(clock.slept) >= 1


def test_write_without_patience_is_sent_once_to_a_busy_server() -> None:
    """H1: an object that was refused before is tried once, so that others do not wait for it again."""
    request = api_requests.create(CONFIG_MAPS, WANTED)
    script, clock = Script(FAILING, EXISTING), Clock()
    with pytest.raises(StatusError):
        run(script, lambda writer: writer.write(request, 0.0), clock=clock)
    assert (len(script.sent), clock.slept) == (1, [])


@pytest.mark.parametrize(
    "refusal", [CONFLICT, MISSING, StatusError(422, "Invalid", "bad"), StatusError(403, "", "")]
)
def test_refused_write_is_not_sent_again(refusal: StatusError) -> None:
    script = Script(refusal)
    with pytest.raises(StatusError) as error:
        run(script, create)
    assert error.value is refusal
    assert len(script.sent) == 1


def test_writer_gives_up_when_its_patience_ends() -> None:
    clock = Clock()
    with pytest.raises(UnreachableError):
        run(Script(*[LOST] * 100), create, clock=clock)
    assert sum(clock.slept) <= PATIENCE_SECONDS


@pytest.mark.parametrize("error", [FAILING, StatusError(429, "TooManyRequests", "busy", (), 30)])
def test_writer_gives_up_soon_when_the_server_answers_that_it_is_busy(error: StatusError) -> None:
    """H1: the server may mean this object alone, and other objects wait for the writer."""
    clock = Clock()
    with pytest.raises(StatusError):
        run(Script(*[error] * 100), create, clock=clock)
    assert sum(clock.slept) <= BUSY_PATIENCE_SECONDS


def test_object_that_is_too_large_is_not_sent_again() -> None:
    """H1: etcd's refusal has code 500, like errors that pass."""
    too_large = StatusError(500, "", "etcdserver: request is too large")
    script = Script(too_large)
    with pytest.raises(StatusError) as error:
        run(script, create)
    assert (error.value, len(script.sent)) == (too_large, 1)


def test_object_of_a_lost_response_counts_as_created() -> None:
    assert msgspec.json.decode(run(Script(LOST, EXISTS), create)) == EXISTING


@pytest.mark.parametrize(
    "existing",
    [
        {**EXISTING, "data": {"a": "2"}},
        {**EXISTING, "metadata": {**EXISTING["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}},  # type: ignore[dict-item]
    ],
)
def test_create_raises_when_another_object_has_the_name(existing: object) -> None:
    with pytest.raises(StatusError) as error:
        run(Script(EXISTS, existing=existing), create)
    assert error.value.exists_already


@pytest.mark.parametrize(
    ("existing", "wanted", "same"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 1, "b": None}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"l": [{"x": 1, "y": 2}]}, {"l": [{"x": 1}]}, True),
        ({"l": [1, 2]}, {"l": [1]}, False),
        ({"l": [1]}, {"l": (1,)}, True),
        ({"l": "1"}, {"l": [1]}, False),
        ({"m": 1}, {"m": {}}, False),
    ],
)
def test_contains_allows_more_fields_but_no_more_items(existing: object, wanted: object, same: bool) -> None:
    assert contains(existing, wanted) is same


@pytest.mark.parametrize(
    ("response", "seen", "succeeds"),
    [
        (EXISTING, Preconditions("x", "team", "u"), True),
        (MISSING, Preconditions("x", "team", "u"), True),
        (CONFLICT, Preconditions("x", "team", "of another one"), True),
        (CONFLICT, Preconditions("x", "team", "u", "7"), False),
        (CONFLICT, Preconditions("x", "team"), False),
        (StatusError(403, "Forbidden", "no"), Preconditions("x", "team", "u"), False),
    ],
)
def test_delete_succeeds_when_the_object_with_that_uid_is_gone(
    response: object, seen: Preconditions, succeeds: bool
) -> None:
    def play(writer: Writer) -> Awaitable[None]:
        return writer.delete(CONFIG_MAPS, seen)

    if succeeds:
        run(Script(response), play)
    else:
        with pytest.raises(StatusError):
            run(Script(response), play)


def test_delete_is_sent_again_while_the_object_exists() -> None:
    script = Script(CONFLICT, LOST, CONFLICT, EXISTING)
    run(script, lambda writer: writer.delete(CONFIG_MAPS, Preconditions("x", "team", "u")))
    assert [request.method for request in script.sent] == [
        "DELETE",
        "GET",
        "DELETE",
        "DELETE",
        "GET",
        "DELETE",
    ]


def test_rewrite_decides_again_after_a_conflict() -> None:
    decided: list[int] = []

    async def decide() -> Request | None:
        decided.append(len(decided))
        patch = {"data": {"n": str(len(decided))}}
        return (
            api_requests.merge_patch(CONFIG_MAPS, Preconditions("x", "team"), patch)
            if len(decided) < 4
            else None
        )

    script = Script(CONFLICT, FAILING, EXISTING)
    run(script, lambda writer: writer.rewrite(decide))
    assert [request.body for request in script.sent] == [
        b'{"data":{"n":"1"}}',
        b'{"data":{"n":"2"}}',
        b'{"data":{"n":"2"}}',
    ], "after a 503 the same request is sent again"
    assert run(Script(CONFLICT, CONFLICT), lambda writer: writer.rewrite(decide)) is None


def test_rewrite_gives_up_after_many_conflicts() -> None:
    async def decide() -> Request | None:
        return api_requests.create(CONFIG_MAPS, WANTED)

    with pytest.raises(StatusError) as error:
        run(Script(*[CONFLICT] * 100), lambda writer: writer.rewrite(decide))
    assert error.value is CONFLICT


def test_closed_gate_prevents_writes_and_stays_closed() -> None:
    leads = [True]
    gate = Gate(lambda: leads[0])
    script = Script(EXISTING, EXISTING, EXISTING)
    run(script, create, gate)
    leads[0] = False
    with pytest.raises(FencedError):
        run(script, create, gate)
    leads[0] = True
    with pytest.raises(FencedError):
        run(script, create, gate)
    assert len(script.sent) == 1


def test_gate_is_checked_before_every_attempt() -> None:
    allowed = iter([True, False])
    script = Script(LOST, EXISTING)
    with pytest.raises(FencedError):
        run(script, create, Gate(lambda: next(allowed)))
    assert len(script.sent) == 1


def test_write_is_not_sent_when_leadership_is_lost_before_the_first_byte() -> None:
    leads = [True]

    class Pausing(Script):
        async def send(self, request: Request) -> bytes:
            leads[0] = False  # a process may be stopped here, for minutes
            assert request.guard is not None
            request.guard()
            return await super().send(request)

    script = Pausing(EXISTING)
    with pytest.raises(FencedError):
        run(script, create, Gate(lambda: leads[0]))
    assert script.sent == []


def test_gate_counts_and_reports_accepted_writes() -> None:
    counts: list[int] = []
    gate = Gate(after_write=counts.append)

    async def play(writer: Writer) -> None:
        await writer.create(CONFIG_MAPS, WANTED)
        await writer.create(CONFIG_MAPS, WANTED)
        await writer.delete(CONFIG_MAPS, Preconditions("x", "team"))

    run(Script(LOST, EXISTING, EXISTS, EXISTING), play, gate)
    assert counts == [1, 2]
    assert gate.writes == 2, "a lost response, an existing object and a refusal do not count"


def test_number_of_concurrent_writes_is_limited() -> None:
    class Slow(Script):
        now = most = 0

        async def send(self, request: Request) -> bytes:
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0)
            self.now -= 1
            return await super().send(request)

    script = Slow(*[EXISTING] * 20)

    async def main() -> None:
        writer = Writer(script, Gate(), at_once=3)
        await asyncio.gather(*(writer.create(CONFIG_MAPS, WANTED) for _ in range(20)))

    asyncio.run(main())
    assert script.most == 3
    assert len(script.sent) == 20
