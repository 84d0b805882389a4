"""One of several managers leads: an election on a coordination.k8s.io Lease, in a thread of its own.

The thread has its own connection, so nothing that the manager does delays a renewal. Only the monotonic clock
judges; the times in the Lease are for people. The leader renews every ``retry`` seconds and may write until
``renew_deadline`` after it *began* its last renewal that succeeded. Others take the Lease when they have not
seen it change for ``duration - retry``. Since the deadline is earlier than that, two never write at once,
even if one was paused: it finds its deadline passed at the first write. A leader whose deadline has passed is
done for good; its process is to end and begin anew.
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
    """``renew_deadline + retry`` must be less than ``duration``.

    A standby decides 15 s after a leader died at the latest: that leaves it some seconds to build its world.
    """

    duration: int = 13
    renew_deadline: float = 9.0
    retry: float = 1.5


class ElectionTarget(NamedTuple):
    """What is led, by the name of its Lease, and who asks to lead it: a name no other process has."""

    namespace: str
    name: str
    identity: str


DEFAULT_TIMING = Timing()


def leader_client(access: Access, timing: Timing = DEFAULT_TIMING) -> Client:
    """A connection of its own, which is given up in time to try a second one before the deadline."""
    return Client(PlainTransport(access, timing.renew_deadline / 2))


class Leader:
    """``heard`` is called in the leader's thread, at most once with each."""

    def __init__(
        self,
        client: Client,
        post: ElectionTarget,
        heard: Callable[[ElectionChange], None],
        timing: Timing = DEFAULT_TIMING,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        assert timing.renew_deadline + timing.retry < timing.duration, "two could lead at once"
        self._client = client
        self._post = post
        self._heard = heard
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
        """Gives the Lease up, if it is held. Call it when the last write is done: none is allowed later."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(self._timing.duration)

    def may_write(self) -> bool:
        """Whether this process leads at this very moment."""
        until = self._until
        return until is not None and not self._stopping.is_set() and self._clock() < until

    @property
    def holder(self) -> str:
        """Who leads, as far as is known."""
        holder: str = self._lease.get("spec", {}).get("holderIdentity", "")
        return holder

    # --- the thread

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException:
            self._until = None
            self._heard("lost")
            raise

    def _serve(self) -> None:
        wait = 0.0
        while not self._stopping.wait(wait):
            wait = self._step()
            if wait < 0:
                self._heard("lost")
                return
        if self._until is not None:
            self._release()

    def _step(self) -> float:
        """One attempt to get or keep the Lease: the seconds to the next; less than 0 if it is lost."""
        try:
            if self._until is None:
                return self._campaign()
            self._renew()
        except (KubeError, InputError):
            if self._until is None:
                return self._timing.retry / 2
        assert self._until is not None
        left = self._until - self._clock()
        return -1.0 if left <= 0 else min(self._timing.retry, left)

    def _campaign(self) -> float:
        began = self._clock()
        self._read()
        if self._lease and self.holder and self._free_in() > 0:
            return min(self._timing.retry / 2, self._free_in())
        self._write(self._post.identity)
        self._until = began + self._timing.renew_deadline
        self._heard("elected")
        return self._timing.retry

    def _renew(self) -> None:
        """A conflict may be a renewal of our own that got no answer: then it is read and renewed again."""
        began = self._clock()
        try:
            self._write(self._post.identity)
        except StatusError as refused:
            if not refused.is_conflict and refused.code != NOT_FOUND:
                raise
            self._read()
            if self.holder != self._post.identity:
                self._until = began
                return
            self._write(self._post.identity)
        if self.may_write():  # a deadline that has passed is not taken back
            self._until = began + self._timing.renew_deadline

    def _release(self) -> None:
        with suppress(KubeError, InputError):  # else the others wait for its end, as after a crash
            self._write("")
        self._until = None

    # --- the Lease

    def _free_in(self) -> float:
        lasts = self._lease["spec"].get("leaseDurationSeconds") or self._timing.duration
        return self._seen_at + lasts - self._timing.retry - self._clock()

    def _read(self) -> None:
        try:
            lease = self._client.ask(api_requests.get(ELECTIONS, self._post.name, self._post.namespace))
        except StatusError as refused:
            if refused.code != NOT_FOUND:
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
            metadata = {"name": self._post.name, "namespace": self._post.namespace}
            kind = {"apiVersion": ELECTIONS.api_version, "kind": ELECTIONS.kind}
            request = api_requests.create(ELECTIONS, {**kind, "metadata": metadata, "spec": spec})
        self._remember(self._client.ask(request))

    def _remember(self, lease: dict[str, Any]) -> None:
        version = lease.get("metadata", {}).get("resourceVersion", "")
        if version != self._seen_version:
            self._seen_version, self._seen_at = version, self._clock()
        self._lease = lease
