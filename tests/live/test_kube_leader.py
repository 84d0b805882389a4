"""Several processes, one Lease: who writes when one is paused, killed or asked to go."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import jobtree
from jobtree.kube.auth.cluster_access import find_access
from jobtree.kube.http import api_requests
from jobtree.kube.http.api_requests import Preconditions
from jobtree.kube.http.api_resources import CONFIG_MAPS, ELECTIONS
from jobtree.kube.http.blocking_client import Client
from jobtree.kube.http.blocking_transport import PlainTransport
from tests.live.contender import COUNTS, LEASE, LOST, NAMESPACE
from tests.live.control_plane import ControlPlane
from tests.live.process import wait_until

LIMIT_SECONDS = 120
ROOT = Path(__file__).parents[2]


class Contender:
    def __init__(self, plane: ControlPlane, identity: str, log: Path) -> None:
        self.identity = identity
        self._log = log
        path = os.pathsep.join([str(Path(jobtree.__file__).parents[1]), str(ROOT)])
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.live.contender", str(plane.admin_kubeconfig), identity],
                env=os.environ | {"PYTHONPATH": path},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def said(self, word: str) -> bool:
        if self.process.poll() not in (None, 0, LOST, -signal.SIGKILL):
            raise AssertionError(self._log.read_text())
        return word in self._log.read_text().split()

    def await_word(self, word: str) -> None:
        wait_until(lambda: self.said(word), f"{self.identity} says {word}", LIMIT_SECONDS)


class Counts:
    def __init__(self, plane: ControlPlane) -> None:
        self._transport = PlainTransport(find_access(kubeconfig=str(plane.admin_kubeconfig)))
        self.client = Client(self._transport)
        metadata = {"name": COUNTS.name, "namespace": COUNTS.namespace}
        self.client.ask(api_requests.create(CONFIG_MAPS, {"metadata": metadata}))

    def of(self, identity: str) -> int:
        found = self.client.ask(api_requests.get(CONFIG_MAPS, COUNTS.name, COUNTS.namespace))
        return int(found.get("data", {}).get(identity, 0))

    def await_more(self, identity: str) -> None:
        now = self.of(identity)
        wait_until(lambda: self.of(identity) > now, f"{identity} counts", LIMIT_SECONDS)

    def close(self) -> None:
        self.client.ask(api_requests.delete(CONFIG_MAPS, COUNTS))
        self.client.ask(api_requests.delete(ELECTIONS, Preconditions(LEASE, NAMESPACE)))
        self._transport.close()


@pytest.fixture(name="counts")
def _counts(control_plane: ControlPlane) -> Iterator[Counts]:
    counts = Counts(control_plane)
    yield counts
    counts.close()


Start = Callable[[str], Contender]


@pytest.fixture(name="start")
def _start(control_plane: ControlPlane, counts: Counts, tmp_path: Path) -> Iterator[Start]:  # noqa: ARG001  what they count in
    started: list[Contender] = []

    def start(identity: str) -> Contender:
        started.append(Contender(control_plane, identity, tmp_path / identity))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()


def test_a_paused_leader_wakes_up_and_writes_nothing(start: Start, counts: Counts) -> None:
    paused = start("paused")
    paused.await_word("elected")
    counts.await_more("paused")
    other = start("other")
    counts.await_more("paused")
    assert not other.said("elected")

    paused.process.send_signal(signal.SIGSTOP)
    other.await_word("elected")
    counts.await_more("other")
    before = counts.of("paused")
    paused.process.send_signal(signal.SIGCONT)
    assert paused.process.wait(LIMIT_SECONDS) == LOST
    assert counts.of("paused") == before
    counts.await_more("other")


def test_the_standby_takes_over_from_a_leader_that_was_killed_or_that_goes(
    start: Start, counts: Counts
) -> None:
    first = start("first")
    first.await_word("elected")
    second = start("second")
    counts.await_more("first")
    first.process.kill()
    second.await_word("elected")

    third = start("third")
    counts.await_more("second")
    second.process.terminate()
    assert second.process.wait(LIMIT_SECONDS) == 0
    third.await_word("elected")
    assert not second.said("lost"), "it gave the Lease up"
    lease = counts.client.ask(api_requests.get(ELECTIONS, LEASE, NAMESPACE))
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("third", 3)
