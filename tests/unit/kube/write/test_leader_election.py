"""The leader election, step by step, with a clock that tests move and a server with one Lease."""

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
    """A server with one Lease and its version check. It raises ``error`` instead of any response."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.error: Exception | None = None
        self.loses_responses = False

    def send(self, request: Request) -> bytes:
        if self.error is not None:
            raise self.error
        if request.method == "GET":
            if self.lease is None:
                raise StatusError(404, "NotFound", "no lease")
            return msgspec.json.encode(self.lease)
        self._write(request.method, msgspec.json.decode(request.body or b""))
        if self.loses_responses:
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


def candidate(server: LeaseServer, clock: Clock, name: str, changes: list[str] | None = None) -> Leader:
    target = ElectionTarget("jobtree-system", "jobtree", name)
    recorded = [] if changes is None else changes
    return Leader(Client(server), target, recorded.append, clock=clock)


def test_first_candidate_leads(server: LeaseServer, clock: Clock) -> None:
    changes: list[str] = []
    leader = candidate(server, clock, "a", changes)
    assert not leader.may_write()
    assert leader._step() == DEFAULT_TIMING.retry
    assert leader.may_write()
    assert changes == ["elected"]
    assert server.holder == leader.holder == "a"


def test_standby_takes_over_within_thirteen_seconds(server: LeaseServer, clock: Clock) -> None:
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


def test_two_processes_never_write_at_once_even_after_a_pause(server: LeaseServer, clock: Clock) -> None:
    changes: list[str] = []
    leader, other = candidate(server, clock, "a", changes), candidate(server, clock, "b")
    gate = Gate(leader.may_write)
    leader._step()
    gate.check()
    while not other.may_write():
        clock.pass_by(other._step())
        assert not (leader.may_write() and other.may_write())
    assert not leader.may_write(), "its deadline has passed, though its thread has not run since"
    assert leader._step() < 0
    assert server.holder == "b", "it does not take the Lease back"


def test_passed_deadline_is_final_when_no_other_process_leads(server: LeaseServer, clock: Clock) -> None:
    leader = candidate(server, clock, "a")
    leader._step()
    clock.pass_by(DEFAULT_TIMING.renew_deadline)
    assert not leader.may_write()
    assert leader._step() < 0
    assert not leader.may_write()


def test_renewal_moves_the_deadline_from_its_beginning(server: LeaseServer, clock: Clock) -> None:
    leader = candidate(server, clock, "a")
    leader._step()
    for _ in range(20):
        clock.pass_by(DEFAULT_TIMING.retry)
        assert leader._step() == DEFAULT_TIMING.retry
    clock.pass_by(DEFAULT_TIMING.renew_deadline - 0.1)
    assert leader.may_write()
    clock.pass_by(0.1)
    assert not leader.may_write()


def test_leader_stays_leader_when_the_server_is_briefly_unreachable(
    server: LeaseServer, clock: Clock
) -> None:
    leader = candidate(server, clock, "a")
    leader._step()
    server.error = UnreachableError("restarting", may_have_happened=False)
    for _ in range(4):
        clock.pass_by(2)
        assert leader._step() > 0
    assert leader.may_write()
    server.error = None
    assert leader._step() == DEFAULT_TIMING.retry
    clock.pass_by(DEFAULT_TIMING.renew_deadline - 1)
    assert leader.may_write()


def test_leader_stops_at_its_deadline_when_the_server_stays_unreachable(
    server: LeaseServer, clock: Clock
) -> None:
    leader = candidate(server, clock, "a")
    leader._step()
    server.error = UnreachableError("gone", may_have_happened=False)
    began, wait = clock.now, 0.0
    while wait >= 0:
        clock.pass_by(wait)
        wait = leader._step()
    assert clock.now - began == DEFAULT_TIMING.renew_deadline


def test_leader_stays_leader_when_the_response_to_a_renewal_is_lost(
    server: LeaseServer, clock: Clock
) -> None:
    leader = candidate(server, clock, "a")
    leader._step()
    server.loses_responses = True
    clock.pass_by(2)
    leader._step()
    server.loses_responses = False
    clock.pass_by(2)
    assert leader._step() == DEFAULT_TIMING.retry
    clock.pass_by(DEFAULT_TIMING.renew_deadline - 1)
    assert leader.may_write()


def test_leadership_is_lost_when_another_process_holds_the_lease(server: LeaseServer, clock: Clock) -> None:
    leader = candidate(server, clock, "a")
    leader._step()
    assert server.lease is not None
    server._write("PUT", {**server.lease, "spec": {**server.lease["spec"], "holderIdentity": "b"}})
    clock.pass_by(2)
    assert leader._step() < 0
    assert not leader.may_write()


def test_leadership_is_lost_when_the_lease_is_deleted(server: LeaseServer, clock: Clock) -> None:
    leader = candidate(server, clock, "a")
    leader._step()
    server.lease = None
    clock.pass_by(2)
    assert leader._step() < 0


def test_released_lease_can_be_taken_at_once(server: LeaseServer, clock: Clock) -> None:
    leader, other = candidate(server, clock, "a"), candidate(server, clock, "b")
    leader._step()
    other._step()
    leader.stop()
    assert not leader.may_write(), "from the call of stop on"
    leader._release()
    other._step()
    assert other.may_write()
    assert server.lease is not None
    assert server.lease["spec"]["leaseTransitions"] == 2


def test_thread_releases_the_lease_when_it_stops(server: LeaseServer) -> None:
    changes: list[str] = []
    leader = Leader(Client(server), ElectionTarget("ns", "jobtree", "a"), changes.append)
    leader.start()
    leader.stop()
    assert server.holder == ""
    assert changes in ([], ["elected"])
    assert not leader.may_write()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_thread_reports_that_leadership_is_lost_when_it_fails(server: LeaseServer) -> None:
    changes: list[str] = []
    leader = Leader(Client(server), ElectionTarget("ns", "jobtree", "a"), changes.append)
    server.error = ZeroDivisionError()
    leader.start()
    leader._thread.join()
    assert changes == ["lost"]
    assert not leader.may_write()


def test_timing_under_which_two_could_lead_is_refused(server: LeaseServer) -> None:
    with pytest.raises(AssertionError, match="two could lead"):
        Leader(Client(server), ElectionTarget("n", "x", "a"), print, Timing(10, 9, 2))
