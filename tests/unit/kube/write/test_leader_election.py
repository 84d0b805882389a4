"""The election, step by step, on a clock of the tests' own and a server that keeps one Lease."""

from collections.abc import Generator
from typing import Any

import msgspec
import pytest

from jobtree.kube.http.api_errors import StatusError, UnreachableError
from jobtree.kube.http.api_requests import Request
from jobtree.kube.http.blocking_client import Client
from jobtree.kube.write.leader_election import DEFAULT_TIMING, ElectionTarget, Leader, Timing
from jobtree.kube.write.write_gate import Gate
from tests.unit.kube.clocks import Clock


class LeaseServer:
    """One Lease, with the server's rule about versions. ``trouble`` comes in place of any answer."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.trouble: Exception | None = None
        self.loses_answers = False

    def send(self, request: Request) -> bytes:
        if self.trouble is not None:
            raise self.trouble
        if request.method == "GET":
            if self.lease is None:
                raise StatusError(404, "NotFound", "no lease")
            return msgspec.json.encode(self.lease)
        self._write(request.method, msgspec.json.decode(request.body or b""))
        if self.loses_answers:
            raise UnreachableError("no answer", may_have_happened=True)
        return msgspec.json.encode(self.lease)

    def _write(self, method: str, lease: dict[str, Any]) -> None:
        if method == "POST" and self.lease is not None:
            raise StatusError(409, "AlreadyExists", "there")
        if method == "PUT" and (
            self.lease is None
            or lease["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]
        ):
            raise StatusError(409, "Conflict", "changed")
        self.version += 1
        lease["metadata"]["resourceVersion"] = str(self.version)
        self.lease = lease

    @property
    def holder(self) -> str:
        return str(self.lease["spec"]["holderIdentity"]) if self.lease else ""

    def stream(self, request: Request, silence_seconds: float | None) -> Generator[bytes, None, None]:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture(name="clock")
def _clock() -> Clock:
    return Clock()


@pytest.fixture(name="server")
def _server() -> LeaseServer:
    return LeaseServer()


def candidate(server: LeaseServer, clock: Clock, name: str, heard: list[str] | None = None) -> Leader:
    post = ElectionTarget("jobtree-system", "jobtree", name)
    notes = [] if heard is None else heard
    return Leader(Client(server), post, notes.append, clock=clock)


def test_the_first_to_ask_leads(server: LeaseServer, clock: Clock) -> None:
    heard: list[str] = []
    leader = candidate(server, clock, "a", heard)
    assert not leader.may_write()
    assert leader._step() == DEFAULT_TIMING.retry
    assert leader.may_write()
    assert heard == ["elected"]
    assert server.holder == leader.holder == "a"


def test_others_wait_and_take_over_in_time_to_decide_within_fifteen_seconds(
    server: LeaseServer, clock: Clock
) -> None:
    leader, other = candidate(server, clock, "a"), candidate(server, clock, "b")
    leader._step()
    for _ in range(5):
        clock.pass_by(other._step())
        leader._step()
    died = clock.now
    while not other.may_write():
        clock.pass_by(other._step())
    assert server.holder == "b"
    assert DEFAULT_TIMING.renew_deadline < clock.now - died <= 13


def test_two_never_write_at_once_even_after_a_pause(server: LeaseServer, clock: Clock) -> None:
    heard: list[str] = []
    leader, other = candidate(server, clock, "a", heard), candidate(server, clock, "b")
    gate = Gate(leader.may_write)
    leader._step()
    gate.check()
    while not other.may_write():
        clock.pass_by(other._step())
        assert not (leader.may_write() and other.may_write())
    assert not leader.may_write(), "its deadline has passed, though its thread has not run since"
    assert leader._step() < 0
    assert server.holder == "b", "it does not take back what it lost"


def test_a_deadline_that_has_passed_is_final_even_if_nobody_took_over(
    server: LeaseServer, clock: Clock
) -> None:
    leader = candidate(server, clock, "a")
    leader._step()
    clock.pass_by(DEFAULT_TIMING.renew_deadline)
    assert not leader.may_write()
    assert leader._step() < 0
    assert not leader.may_write()


def test_renewals_move_the_deadline_from_when_they_began(server: LeaseServer, clock: Clock) -> None:
    leader = candidate(server, clock, "a")
    leader._step()
    for _ in range(20):
        clock.pass_by(DEFAULT_TIMING.retry)
        assert leader._step() == DEFAULT_TIMING.retry
    clock.pass_by(DEFAULT_TIMING.renew_deadline - 0.1)
    assert leader.may_write()
    clock.pass_by(0.1)
    assert not leader.may_write()


def test_a_server_that_is_away_for_a_moment_costs_nothing(server: LeaseServer, clock: Clock) -> None:
    leader = candidate(server, clock, "a")
    leader._step()
    server.trouble = UnreachableError("restarting", may_have_happened=False)
    for _ in range(4):
        clock.pass_by(2)
        assert leader._step() > 0
    assert leader.may_write()
    server.trouble = None
    assert leader._step() == DEFAULT_TIMING.retry
    clock.pass_by(DEFAULT_TIMING.renew_deadline - 1)
    assert leader.may_write()


def test_a_server_that_stays_away_ends_it_before_anyone_can_take_over(
    server: LeaseServer, clock: Clock
) -> None:
    leader = candidate(server, clock, "a")
    leader._step()
    server.trouble = UnreachableError("gone", may_have_happened=False)
    began, wait = clock.now, 0.0
    while wait >= 0:
        clock.pass_by(wait)
        wait = leader._step()
    assert clock.now - began == DEFAULT_TIMING.renew_deadline


def test_a_renewal_whose_answer_was_lost_is_not_taken_for_a_rival(server: LeaseServer, clock: Clock) -> None:
    leader = candidate(server, clock, "a")
    leader._step()
    server.loses_answers = True
    clock.pass_by(2)
    leader._step()
    server.loses_answers = False
    clock.pass_by(2)
    assert leader._step() == DEFAULT_TIMING.retry
    clock.pass_by(DEFAULT_TIMING.renew_deadline - 1)
    assert leader.may_write()


def test_a_lease_that_somebody_else_took_is_lost_at_once(server: LeaseServer, clock: Clock) -> None:
    leader = candidate(server, clock, "a")
    leader._step()
    assert server.lease is not None
    server._write("PUT", {**server.lease, "spec": {**server.lease["spec"], "holderIdentity": "b"}})
    clock.pass_by(2)
    assert leader._step() < 0
    assert not leader.may_write()


def test_a_lease_that_was_deleted_is_lost(server: LeaseServer, clock: Clock) -> None:
    leader = candidate(server, clock, "a")
    leader._step()
    server.lease = None
    clock.pass_by(2)
    assert leader._step() < 0


def test_what_is_given_up_is_free_at_once(server: LeaseServer, clock: Clock) -> None:
    leader, other = candidate(server, clock, "a"), candidate(server, clock, "b")
    leader._step()
    other._step()
    leader.stop()
    assert not leader.may_write(), "from the moment it is asked to stop"
    leader._release()
    other._step()
    assert other.may_write()
    assert server.lease is not None
    assert server.lease["spec"]["leaseTransitions"] == 2


def test_the_thread_leads_tells_and_gives_up(server: LeaseServer) -> None:
    heard: list[str] = []
    leader = Leader(Client(server), ElectionTarget("ns", "jobtree", "a"), heard.append)
    leader.start()
    leader.stop()
    assert server.holder == ""
    assert heard in ([], ["elected"])
    assert not leader.may_write()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_says_that_it_does_not_lead(server: LeaseServer) -> None:
    heard: list[str] = []
    leader = Leader(Client(server), ElectionTarget("ns", "jobtree", "a"), heard.append)
    server.trouble = ZeroDivisionError()
    leader.start()
    leader._thread.join()
    assert heard == ["lost"]
    assert not leader.may_write()


def test_timings_under_which_two_could_lead_are_refused(server: LeaseServer) -> None:
    with pytest.raises(AssertionError, match="two could lead"):
        Leader(Client(server), ElectionTarget("n", "x", "a"), print, Timing(10, 9, 2))
