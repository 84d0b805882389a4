"""Several processes and one election Lease: which of them writes when one is paused, killed or ended."""

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
from tests.live.cluster.control_plane import ControlPlane
from tests.live.cluster.server_process import wait_until
from tests.live.kube.election_candidate import COUNTS, LEASE, LOST, NAMESPACE
from tests.shown import REPOSITORY

LIMIT_SECONDS = 120


class Candidate:
    """A running process of ``election_candidate``."""

    def __init__(self, plane: ControlPlane, identity: str, log: Path) -> None:
        self.identity = identity
        self._log = log
        path = os.pathsep.join([str(Path(jobtree.__file__).parents[1]), str(REPOSITORY)])
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.live.kube.election_candidate",
                    str(plane.admin_kubeconfig),
                    identity,
                ],
                env=os.environ | {"PYTHONPATH": path},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def has_printed(self, word: str) -> bool:
        if self.process.poll() not in (None, 0, LOST, -signal.SIGKILL):
            raise AssertionError(self._log.read_text())
        return word in self._log.read_text().split()

    def await_output(self, word: str) -> None:
        wait_until(lambda: self.has_printed(word), f"{self.identity} prints {word}", LIMIT_SECONDS)


class Counts:
    """The ConfigMap in which the candidates count."""

    def __init__(self, plane: ControlPlane) -> None:
        self._transport = PlainTransport(find_access(kubeconfig=str(plane.admin_kubeconfig)))
        self.client = Client(self._transport)
        metadata = {"name": COUNTS.name, "namespace": COUNTS.namespace}
        self.client.ask(api_requests.create(CONFIG_MAPS, {"metadata": metadata}))

    def count_of(self, identity: str) -> int:
        config_map = self.client.ask(api_requests.get(CONFIG_MAPS, COUNTS.name, COUNTS.namespace))
        return int(config_map.get("data", {}).get(identity, 0))

    def await_more(self, identity: str) -> None:
        count = self.count_of(identity)
        wait_until(lambda: self.count_of(identity) > count, f"{identity} counts", LIMIT_SECONDS)

    def close(self) -> None:
        self.client.ask(api_requests.delete(CONFIG_MAPS, COUNTS))
        self.client.ask(api_requests.delete(ELECTIONS, Preconditions(LEASE, NAMESPACE)))
        self._transport.close()


@pytest.fixture(name="counts")
def _counts(control_plane: ControlPlane) -> Iterator[Counts]:
    counts = Counts(control_plane)
    yield counts
    counts.close()


Start = Callable[[str], Candidate]


@pytest.fixture(name="start")
def _start(control_plane: ControlPlane, counts: Counts, tmp_path: Path) -> Iterator[Start]:  # noqa: ARG001  it creates the ConfigMap
    started: list[Candidate] = []

    def start(identity: str) -> Candidate:
        started.append(Candidate(control_plane, identity, tmp_path / identity))
        return started[-1]

    yield start
    for candidate in started:
        candidate.process.kill()
        candidate.process.wait()


def test_paused_leader_writes_nothing_when_it_resumes(start: Start, counts: Counts) -> None:
    paused = start("paused")
    paused.await_output("elected")
    counts.await_more("paused")
    other = start("other")
    counts.await_more("paused")
    assert not other.has_printed("elected")

    paused.process.send_signal(signal.SIGSTOP)
    other.await_output("elected")
    counts.await_more("other")
    before = counts.count_of("paused")
    paused.process.send_signal(signal.SIGCONT)
    assert paused.process.wait(LIMIT_SECONDS) == LOST
    assert counts.count_of("paused") == before
    counts.await_more("other")


def test_standby_leads_when_the_leader_is_killed_or_ends(start: Start, counts: Counts) -> None:
    first = start("first")
    first.await_output("elected")
    second = start("second")
    counts.await_more("first")
    first.process.kill()
    second.await_output("elected")

    third = start("third")
    counts.await_more("second")
    second.process.terminate()
    assert second.process.wait(LIMIT_SECONDS) == 0
    third.await_output("elected")
    assert not second.has_printed("lost"), "a candidate that ends must release the Lease"
    lease = counts.client.ask(api_requests.get(ELECTIONS, LEASE, NAMESPACE))
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("third", 3)
