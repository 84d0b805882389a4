"""A simulated cluster in a state file, which other programs may change at any time.

Each change locks the file, reads it, and replaces it in one step, as each command does. What was read is kept
until the file is another one.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy

from jobtree.api.documents.document_stream import Document
from jobtree.api.schema.quantities import DAY, SECOND
from jobtree.client.backends.backend import NEVER, Backend, ObjectBody
from jobtree.client.errors import ConflictError, NotFoundError
from jobtree.client.plans.plan_result import PlanResult, what_if
from jobtree.client.source.archive_access import NOTHING_ARCHIVED, ArchivedLeases
from jobtree.client.source.name_lookup import Names
from jobtree.client.source.object_creation import create_in_cluster
from jobtree.client.source.simulated_width import set_desired_width
from jobtree.client.source.stage_rules import refuse_stage
from jobtree.core import RunKey, phase_of
from jobtree.messages.run_events import Event
from jobtree.simulation.cluster.simulated_cluster import SimulatedCluster
from jobtree.snapshot.state_file import StateFile

LONGEST_WAIT = 30 * DAY  # of a wait without a limit: a Run that cannot start would never end it
NO_PODS = "a simulated cluster has no pods and no logs"


class SimulatedBackend(Backend):
    def __init__(self, path: str, namespace: str = "") -> None:
        self._file = StateFile(path, SimulatedCluster)
        self._namespace = namespace
        self._lock = threading.RLock()
        self._read: tuple[object, SimulatedCluster] | None = None
        self.title = path

    @property
    def names(self) -> Names:
        return Names(self._namespace)

    @property
    def default_namespace(self) -> str:
        return self._namespace or "default"

    def snapshot(self, *, pods: bool = False) -> SimulatedCluster:  # noqa: ARG002  the file has them
        with self._lock:
            stamp = self._file.stamp()
            if self._read is None or self._read[0] != stamp:
                self._read = (stamp, self._file.read())
            return self._read[1]

    @contextmanager
    def edit(self) -> Iterator[SimulatedCluster]:
        """Locks the file and yields its cluster, which is saved if the block ends without an exception."""
        with self._lock, self._file.edit() as cluster:
            yield cluster

    def change(self, change: Callable[[SimulatedCluster], None]) -> list[Event]:
        """Changes the cluster, and returns the events that follow."""
        with self.edit() as cluster:
            change(cluster)
            return cluster.events

    def objects(self, kind: str, namespace: str = "") -> list[ObjectBody]:
        cluster = self.snapshot()
        with self._lock:
            cluster.documents()
            found = sorted(cluster.objects.of(kind), key=lambda item: item[0])
            return [deepcopy(body) for key, body in found if namespace in ("", key[1])]

    def run(self, name: str) -> ObjectBody:
        cluster = self.snapshot()
        with self._lock:
            return run_body(cluster, self._key(cluster, name))

    def _key(self, cluster: SimulatedCluster, name: str) -> RunKey:
        return self.names.choose(name, list(cluster.world.runs))

    def what_if(self, documents: list[Document]) -> PlanResult:
        return what_if(self._file.read(), documents)

    def create(self, documents: Sequence[Document], *, replace: bool, dry_run: bool) -> list[ObjectBody]:
        if dry_run:
            return self._create(self._file.read(), documents, replace=replace)
        with self.edit() as cluster:
            return self._create(cluster, documents, replace=replace)

    @staticmethod
    def _create(
        cluster: SimulatedCluster, documents: Sequence[Document], *, replace: bool
    ) -> list[ObjectBody]:
        copies = [Document(document.where, deepcopy(document.body)) for document in documents]
        keys = create_in_cluster(cluster, copies, replace=replace)
        cluster.documents()
        return [deepcopy(body) for key in keys if (body := cluster.objects.get(key))]

    def resize(self, name: str, sign: int, by: int | None, width: int | None) -> ObjectBody:
        with self.edit() as cluster:
            run_key = self._key(cluster, name)
            set_desired_width(cluster, run_key, sign, by, width)
            return run_body(cluster, run_key)

    def delete(self, body: ObjectBody) -> None:
        metadata = body["metadata"]
        with self.edit() as cluster:
            run_key = self._key(cluster, f"{metadata['namespace']}/{metadata['name']}")
            run = cluster.world.runs[run_key]
            if run.uid != metadata["uid"]:
                raise ConflictError(f"{'/'.join(run_key)} was deleted and created again: read it again")
            refuse_stage("/".join(run_key), "/".join(run.parent) if run.parent else "")
            cluster.cancel(run_key)

    def wait(
        self,
        run_key: RunKey,
        is_done: Callable[[ObjectBody | None], bool],
        seconds: float | None,
        stop: threading.Event = NEVER,
    ) -> ObjectBody | None:
        """Moves the clock until the Run is done: in a simulation nothing happens by itself."""
        body = self._found(run_key)
        if is_done(body):
            return body
        with self.edit() as cluster:
            end = cluster.now + (LONGEST_WAIT if seconds is None else int(seconds * SECOND))
            before = None
            while not stop.is_set():
                phase = phase_now(cluster, run_key)
                if phase != before and is_done(body := run_body(cluster, run_key) if phase else None):
                    return body
                before, at = phase, cluster.next_instant()
                if at is None or at > end:
                    break
                cluster.advance(at)
            if seconds is not None and not stop.is_set():
                cluster.advance(end)
            return run_body(cluster, run_key) if run_key in cluster.world.runs else None

    def _found(self, run_key: RunKey) -> ObjectBody | None:
        try:
            return self.run("/".join(run_key))
        except NotFoundError:
            return None

    def close(self) -> None:
        """Forgets what was read."""
        self._read = None

    def log(self, *_: object, **__: object) -> Iterator[str]:
        raise ConflictError(NO_PODS)

    def archived(self, since: int) -> ArchivedLeases:  # noqa: ARG002  the file names no archive
        return NOTHING_ARCHIVED


def phase_now(cluster: SimulatedCluster, run_key: RunKey) -> str:
    """Returns the phase of a Run without building its status; empty if it is gone."""
    run = cluster.world.runs.get(run_key)
    return phase_of(cluster.world, run) if run is not None else ""


def run_body(cluster: SimulatedCluster, run_key: RunKey) -> ObjectBody:
    """Returns a Run with its present status."""
    cluster.documents()
    return deepcopy(cluster.objects.get(("Run", *run_key)) or {})
