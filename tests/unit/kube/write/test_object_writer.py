import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

from jobtree.kube.http import api_requests
from jobtree.kube.http.api_errors import FencedError, StatusError, UnreachableError
from jobtree.kube.http.api_requests import Preconditions, Request
from jobtree.kube.http.api_resources import CONFIG_MAPS
from jobtree.kube.write.object_writer import PATIENCE_SECONDS, Writer, holds
from jobtree.kube.write.write_gate import Gate
from tests.unit.kube.clocks import Clock

WANTED = {"metadata": {"name": "x", "namespace": "team"}, "data": {"a": "1"}}
THERE = {"metadata": {"name": "x", "namespace": "team", "uid": "u"}, "data": {"a": "1"}, "extra": True}
LOST = UnreachableError("no answer", may_have_happened=True)
BUSY = StatusError(429, "TooManyRequests", "busy", retry_after_seconds=5)
UNWELL = StatusError(503, "ServiceUnavailable", "unwell")
CONFLICT = StatusError(409, "Conflict", "changed")
EXISTS = StatusError(409, "AlreadyExists", "there")
MISSING = StatusError(404, "NotFound", "gone")


class Script:
    """A transport that answers writes from a list, and reads with ``there``."""

    def __init__(self, *answers: object, there: object = THERE) -> None:
        self.left = list(answers)
        self.there = there
        self.sent: list[Request] = []

    async def send(self, request: Request) -> bytes:
        self.sent.append(request)
        answer = self.there if request.method == "GET" else self.left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return msgspec.json.encode(answer)

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


@pytest.mark.parametrize("trouble", [LOST, BUSY, UNWELL])
def test_passing_trouble_is_met_with_another_attempt(trouble: Exception) -> None:
    script, clock = Script(trouble, trouble, THERE), Clock()
    assert msgspec.json.decode(run(script, create, clock=clock)) == THERE
    assert len(clock.slept) == 2
    assert clock.slept[0] < clock.slept[1] * 2
    if trouble is BUSY:
        assert min(clock.slept) >= 5, "a Retry-After is respected"


@pytest.mark.parametrize(
    "refusal", [CONFLICT, MISSING, StatusError(422, "Invalid", "bad"), StatusError(403, "", "")]
)
def test_a_refusal_is_not_repeated(refusal: StatusError) -> None:
    script = Script(refusal)
    with pytest.raises(StatusError) as error:
        run(script, create)
    assert error.value is refusal
    assert len(script.sent) == 1


def test_patience_ends() -> None:
    clock = Clock()
    with pytest.raises(UnreachableError):
        run(Script(*[LOST] * 100), create, clock=clock)
    assert sum(clock.slept) <= PATIENCE_SECONDS


def test_what_a_lost_answer_had_made_counts_as_made() -> None:
    assert msgspec.json.decode(run(Script(LOST, EXISTS), create)) == THERE


@pytest.mark.parametrize(
    "there",
    [
        {**THERE, "data": {"a": "2"}},
        {**THERE, "metadata": {**THERE["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}},  # type: ignore[dict-item]
    ],
)
def test_another_object_under_the_name_is_a_conflict(there: object) -> None:
    with pytest.raises(StatusError) as error:
        run(Script(EXISTS, there=there), create)
    assert error.value.exists_already


@pytest.mark.parametrize(
    ("there", "wanted", "same"),
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
def test_servers_add_fields_but_no_items(there: object, wanted: object, same: bool) -> None:
    assert holds(there, wanted) is same


@pytest.mark.parametrize(
    ("answer", "seen", "fine"),
    [
        (THERE, Preconditions("x", "team", "u"), True),
        (MISSING, Preconditions("x", "team", "u"), True),
        (CONFLICT, Preconditions("x", "team", "of another one"), True),
        (CONFLICT, Preconditions("x", "team", "u", "7"), False),
        (CONFLICT, Preconditions("x", "team"), False),
        (StatusError(403, "Forbidden", "no"), Preconditions("x", "team", "u"), False),
    ],
)
def test_deleting_is_done_when_that_very_object_is_gone(
    answer: object, seen: Preconditions, fine: bool
) -> None:
    def play(writer: Writer) -> Awaitable[None]:
        return writer.delete(CONFIG_MAPS, seen)

    if fine:
        run(Script(answer), play)
    else:
        with pytest.raises(StatusError):
            run(Script(answer), play)


def test_a_deletion_that_the_server_stumbled_over_is_asked_for_again() -> None:
    script = Script(CONFLICT, LOST, CONFLICT, THERE)
    run(script, lambda writer: writer.delete(CONFIG_MAPS, Preconditions("x", "team", "u")))
    assert [request.method for request in script.sent] == [
        "DELETE",
        "GET",
        "DELETE",
        "DELETE",
        "GET",
        "DELETE",
    ]


def test_after_a_conflict_the_caller_decides_again() -> None:
    decided: list[int] = []

    async def decide() -> Request | None:
        decided.append(len(decided))
        patch = {"data": {"n": str(len(decided))}}
        return (
            api_requests.merge_patch(CONFIG_MAPS, Preconditions("x", "team"), patch)
            if len(decided) < 4
            else None
        )

    script = Script(CONFLICT, UNWELL, THERE)
    run(script, lambda writer: writer.rewrite(decide))
    assert [request.body for request in script.sent] == [
        b'{"data":{"n":"1"}}',
        b'{"data":{"n":"2"}}',
        b'{"data":{"n":"2"}}',
    ], "what is only delayed is not decided anew"
    assert run(Script(CONFLICT, CONFLICT), lambda writer: writer.rewrite(decide)) is None


def test_conflicts_without_end_are_given_up() -> None:
    async def decide() -> Request | None:
        return api_requests.create(CONFIG_MAPS, WANTED)

    with pytest.raises(StatusError) as error:
        run(Script(*[CONFLICT] * 100), lambda writer: writer.rewrite(decide))
    assert error.value is CONFLICT


def test_a_closed_gate_lets_nothing_through_and_stays_closed() -> None:
    leads = [True]
    gate = Gate(lambda: leads[0])
    script = Script(THERE, THERE, THERE)
    run(script, create, gate)
    leads[0] = False
    with pytest.raises(FencedError):
        run(script, create, gate)
    leads[0] = True
    with pytest.raises(FencedError):
        run(script, create, gate)
    assert len(script.sent) == 1


def test_the_gate_is_asked_before_every_attempt() -> None:
    allowed = iter([True, False])
    script = Script(LOST, THERE)
    with pytest.raises(FencedError):
        run(script, create, Gate(lambda: next(allowed)))
    assert len(script.sent) == 1


def test_a_pause_on_the_way_to_the_socket_keeps_a_write_from_leaving() -> None:
    leads = [True]

    class Pausing(Script):
        async def send(self, request: Request) -> bytes:
            leads[0] = False  # a process may be stopped here, for minutes
            assert request.guard is not None
            request.guard()
            return await super().send(request)

    script = Pausing(THERE)
    with pytest.raises(FencedError):
        run(script, create, Gate(lambda: leads[0]))
    assert script.sent == []


def test_accepted_writes_are_counted_and_told() -> None:
    told: list[int] = []
    gate = Gate(after_write=told.append)

    async def play(writer: Writer) -> None:
        await writer.create(CONFIG_MAPS, WANTED)
        await writer.create(CONFIG_MAPS, WANTED)
        await writer.delete(CONFIG_MAPS, Preconditions("x", "team"))

    run(Script(LOST, THERE, EXISTS, THERE), play, gate)
    assert told == [1, 2]
    assert gate.writes == 2, "what was lost, found or refused is no write"


def test_only_so_many_writes_are_on_their_way_at_once() -> None:
    class Slow(Script):
        now = most = 0

        async def send(self, request: Request) -> bytes:
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0)
            self.now -= 1
            return await super().send(request)

    script = Slow(*[THERE] * 20)

    async def main() -> None:
        writer = Writer(script, Gate(), at_once=3)
        await asyncio.gather(*(writer.create(CONFIG_MAPS, WANTED) for _ in range(20)))

    asyncio.run(main())
    assert script.most == 3
    assert len(script.sent) == 20
