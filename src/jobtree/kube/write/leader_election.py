"""Elects one of several managers as the leader, by a coordination.k8s.io Lease, in a thread of its own.

The thread has its own connection, so nothing that the manager does delays a renewal. Only the monotonic clock
counts; the times in the Lease are for people. The leader renews every ``retry`` seconds and may write until
``renew_deadline`` after it *began* its last successful renewal. Another candidate takes the Lease when it has
not seen the Lease change for ``duration - retry``. Since the deadline is earlier than that, two processes
never write at once. A leader that was paused finds at its next write that its deadline has passed. It never
leads again: its process must restart.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from jobtree.api.schema.problems import InputError
from jobtree.kube.auth.cluster_access import Access
from jobtree.kube.http import api_requests
from jobtree.kube.http.api_errors import NOT_FOUND, KubeError, StatusError
from jobtree.kube.http.api_resources import ELECTIONS
from jobtree.kube.http.blocking_client import Client
from jobtree.kube.http.blocking_transport import PlainTransport

ElectionChange = Literal["elected", "lost"]


class Timing(NamedTuple):
    """The times of an election, in seconds. ``renew_deadline + retry`` must be less than ``duration``.

    A standby must make its first decision at most 15 s after the leader died. The defaults leave it some
    seconds to build its world.
    """

    duration: int = 13
    renew_deadline: float = 9.0
    retry: float = 1.5


class ElectionTarget(NamedTuple):
    """The Lease of an election, and the identity of the candidate, which no other process has."""

    namespace: str
    name: str
    identity: str


DEFAULT_TIMING = Timing()


def leader_client(access: Access, timing: Timing = DEFAULT_TIMING) -> Client:
    """Returns a client whose requests time out early enough to try a second one before the deadline."""
    return Client(PlainTransport(access, timing.renew_deadline / 2))


class Leader:
    """A candidate. Calls ``on_change`` in its own thread, at most once with each change."""

    def __init__(
        self,
        client: Client,
        target: ElectionTarget,
        on_change: Callable[[ElectionChange], None],
        timing: Timing = DEFAULT_TIMING,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        assert timing.renew_deadline + timing.retry < timing.duration, "two could lead at once"
        self._client = client
        self._target = target
        self._on_change = on_change
        self._timing = timing
        self._clock = clock
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leader", daemon=True)
        self._lease: dict[str, Any] = {}
        self._seen_version = ""
        self._seen_at = 0.0
        self._until: float | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stops the election and releases the Lease. No write is allowed afterwards."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(self._timing.duration)

    def may_write(self) -> bool:
        """Whether this process is the leader now."""
        until = self._until
        return until is not None and not self._stopping.is_set() and self._clock() < until

    @property
    def holder(self) -> str:
        """The identity of the leader when the Lease was last read."""
        holder: str = self._lease.get("spec", {}).get("holderIdentity", "")
        return holder

    # --- the thread

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException:
            self._until = None
            self._on_change("lost")
            raise

    def _serve(self) -> None:
        wait = 0.0
        while not self._stopping.wait(wait):
            wait = self._step()
            if wait < 0:
                self._on_change("lost")
                return
        if self._until is not None:
            self._release()

    def _step(self) -> float:
        """Tries once to get or keep the Lease. Returns the seconds to the next try; below 0 if it is lost."""
        try:
            if self._until is None:
                return self._campaign()
            self._renew()
        except (KubeError, InputError):
            if self._until is None:
                return self._timing.retry / 2
        assert self._until is not None
        remaining = self._until - self._clock()
        return -1.0 if remaining <= 0 else min(self._timing.retry, remaining)

    def _campaign(self) -> float:
        began = self._clock()
        self._read()
        if self._lease and self.holder and self._free_in() > 0:
            return min(self._timing.retry / 2, self._free_in())
        self._write(self._target.identity)
        self._until = began + self._timing.renew_deadline
        self._on_change("elected")
        return self._timing.retry

    def _renew(self) -> None:
        """Renews the Lease; after a conflict, reads it and renews it again if this process still holds it.

        A renewal of our own without a response also causes a conflict.
        """
        began = self._clock()
        try:
            self._write(self._target.identity)
        except StatusError as error:
            if not error.is_conflict and error.code != NOT_FOUND:
                raise
            self._read()
            if self.holder != self._target.identity:
                self._until = began
                return
            self._write(self._target.identity)
        if self.may_write():  # a deadline that has passed is final
            self._until = began + self._timing.renew_deadline

    def _release(self) -> None:
        with suppress(KubeError, InputError):  # if this fails, the Lease expires, as after a crash
            self._write("")
        self._until = None

    # --- the Lease

    def _free_in(self) -> float:
        lasts = self._lease["spec"].get("leaseDurationSeconds") or self._timing.duration
        return self._seen_at + lasts - self._timing.retry - self._clock()

    def _read(self) -> None:
        try:
            lease = self._client.ask(api_requests.get(ELECTIONS, self._target.name, self._target.namespace))
        except StatusError as error:
            if error.code != NOT_FOUND:
                raise
            lease = {}
        self._remember(lease)

    def _write(self, holder: str) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + ".000000Z"
        old = self._lease.get("spec", {})
        changed = old.get("holderIdentity", "") != holder
        spec = {
            **old,
            "holderIdentity": holder,
            "leaseDurationSeconds": self._timing.duration,
            "renewTime": now,
            "acquireTime": now if changed else old.get("acquireTime", now),
            "leaseTransitions": old.get("leaseTransitions", 0) + (1 if changed and holder else 0),
        }
        if self._lease:
            request = api_requests.replace(ELECTIONS, {**self._lease, "spec": spec})
        else:
            metadata = {"name": self._target.name, "namespace": self._target.namespace}
            kind = {"apiVersion": ELECTIONS.api_version, "kind": ELECTIONS.kind}
            request = api_requests.create(ELECTIONS, {**kind, "metadata": metadata, "spec": spec})
        self._remember(self._client.ask(request))

    def _remember(self, lease: dict[str, Any]) -> None:
        version = lease.get("metadata", {}).get("resourceVersion", "")
        if version != self._seen_version:
            self._seen_version, self._seen_at = version, self._clock()
        self._lease = lease
