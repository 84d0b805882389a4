"""A live cluster, with the rights of the user."""

import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from jobtree.api.documents.document_stream import Document
from jobtree.client.backends.backend import NEVER, Backend, ObjectBody
from jobtree.client.errors import ForbiddenError, NoAnswerError, NotFoundError
from jobtree.client.plans.plan_result import PlanResult, what_if
from jobtree.client.source import live_runs
from jobtree.client.source.archive_access import ArchivedLeases, ManagerArchive, archived_since
from jobtree.client.source.live_cluster import ClusterName, Live
from jobtree.client.source.live_pods import RunPods
from jobtree.client.source.name_lookup import Names
from jobtree.client.source.server_refusals import STARTUP_SECONDS, translated_errors
from jobtree.client.source.stage_rules import refuse_stage
from jobtree.core import RunKey
from jobtree.kube.http import api_requests
from jobtree.kube.http.api_requests import Selector
from jobtree.kube.http.api_resources import BUDGETS, LEASES, NODES, PODS, RESERVATIONS, RUNS
from jobtree.snapshot.cluster import Cluster

RESOURCES = {resource.kind: resource for resource in (BUDGETS, LEASES, NODES, PODS, RESERVATIONS, RUNS)}
LOOK_SECONDS = 5  # one look at the Run takes no longer, so that a wait can be ended
RETRY_SECONDS = 1.0


def warn(text: str) -> None:
    warnings.warn(text, stacklevel=2)


class LiveBackend(Backend):
    def __init__(self, name: ClusterName) -> None:
        self._live = Live(name, warn)
        weakref.finalize(self, self._live.transport.close)  # where nobody used a with block
        self._namespace = name.namespace
        self.title = name.context or "the current context"

    @property
    def names(self) -> Names:
        return Names(self._namespace, lambda: self._live.namespace)

    @property
    def default_namespace(self) -> str:
        return self._live.namespace

    def snapshot(self, *, pods: bool = False) -> Cluster:
        return self._live.cluster(plan=False, pods=pods)

    def objects(self, kind: str, namespace: str = "") -> list[ObjectBody]:
        with translated_errors():
            return self._live.client.list(RESOURCES[kind], Selector(namespace))

    def run(self, name: str) -> ObjectBody:
        return live_runs.find(self._live, name)

    def what_if(self, documents: list[Document]) -> PlanResult:
        return what_if(self._live.cluster(plan=True), documents)

    def create(self, documents: Sequence[Document], *, replace: bool, dry_run: bool) -> list[ObjectBody]:
        if not dry_run:
            return live_runs.create(self._live, documents, replace=replace)
        live_runs.dry_run(self._live, documents, replace=replace)
        return [document.body for document in documents]

    def resize(self, name: str, sign: int, by: int | None, width: int | None) -> ObjectBody:
        return live_runs.resize(self._live, name, sign, by, width).body

    def delete(self, body: ObjectBody) -> None:
        metadata = body["metadata"]
        refuse_stage(f"{metadata['namespace']}/{metadata['name']}", live_runs.tree_of(body))
        live_runs.delete(self._live, [body])

    def wait(
        self,
        run_key: RunKey,
        is_done: Callable[[ObjectBody | None], bool],
        seconds: float | None,
        stop: threading.Event = NEVER,
    ) -> ObjectBody | None:
        """Looks at the Run after each change. A server that does not answer is asked again."""
        begun = time.monotonic()
        body = self._found("/".join(run_key))
        while not is_done(body) and not stop.is_set():
            left = LOOK_SECONDS if seconds is None else seconds - (time.monotonic() - begun)
            if left <= 0:
                break
            body = self._next_look(body, min(left, LOOK_SECONDS), begun)
        return body

    def _found(self, name: str) -> ObjectBody | None:
        try:
            return self.run(name)
        except NotFoundError:
            return None

    def _next_look(self, body: ObjectBody | None, seconds: float, begun: float) -> ObjectBody | None:
        """Waits for a change of the Run, and reads it. A server that starts may refuse what it allows."""
        if body is None:
            return None
        try:
            self._await_change(body["metadata"], seconds)
            return self._found(f"{body['metadata']['namespace']}/{body['metadata']['name']}")
        except NoAnswerError:
            time.sleep(min(seconds, RETRY_SECONDS))
        except ForbiddenError:
            if time.monotonic() > begun + STARTUP_SECONDS:
                raise
            time.sleep(min(seconds, RETRY_SECONDS))
        return body

    def _await_change(self, metadata: dict[str, Any], seconds: float) -> None:
        selector = Selector(metadata["namespace"], fields=f"metadata.name={metadata['name']}")
        version = metadata["resourceVersion"]
        request = api_requests.watch(RUNS, selector, version, max(1, int(seconds)), initial=False)
        with translated_errors():
            for line in self._live.client.lines(request):
                if msgspec.json.decode(line)["type"] != "BOOKMARK":
                    return

    def log(self, name: str, rank: int, container: str, *, follow: bool) -> Iterator[str]:
        pods = RunPods(self._live, name)
        return pods.log(pods.of_rank(rank), container, follow=follow)

    def archived(self, since: int) -> ArchivedLeases:
        return archived_since(ManagerArchive(self._live.client), since)

    def close(self) -> None:
        self._live.transport.close()
