"""Creates, changes and deletes Runs on a live cluster, with the user's own rights."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any, NamedTuple

import msgspec

from jobtree.api.documents.document_stream import Document
from jobtree.api.kinds.run import Run
from jobtree.api.validation.object_parser import parse_object
from jobtree.client.errors import ArgumentError, NotFoundError
from jobtree.client.source.live_cluster import Live
from jobtree.client.source.server_refusals import STARTUP_SECONDS, translated_errors
from jobtree.client.source.width_rules import refuse_width
from jobtree.core import gang_shape
from jobtree.kube.http import api_requests
from jobtree.kube.http.api_errors import NOT_FOUND, KubeError, StatusError
from jobtree.kube.http.api_requests import Preconditions, Selector
from jobtree.kube.http.api_resources import BUDGETS, NODES, PODS, RUNS, Resource
from jobtree.kube.installation import FINALIZER
from jobtree.kube.watch.blocking_watch import follow_changes
from jobtree.kube.watch.watch_protocol import WatchProtocol
from jobtree.snapshot.object_documents import object_key

RESOURCES: dict[str, Resource] = {"Run": RUNS, "Budget": BUDGETS, "Node": NODES, "Pod": PODS}
ANSWER_SECONDS = 10  # how long submit waits for a status from the manager


class Resized(NamedTuple):
    """A Run whose desired width was changed, and its allocated width."""

    body: dict[str, Any]
    name: str
    allocated: int
    wanted: int


def create(live: Live, documents: Sequence[Document], *, replace: bool) -> list[dict[str, Any]]:
    """Creates or replaces objects, all of them or none, as far as a dry run can tell.

    Returns them with what the manager decided about each Run, as far as it answers in time.
    """
    if len(documents) > 1:
        dry_run(live, documents, replace=replace)
    else:
        check_documents(documents)
    bodies = [send(live, document.body, replace=replace) for document in documents]
    deadline = time.monotonic() + ANSWER_SECONDS
    return [wait_for_status(live, body, deadline) if body["kind"] == "Run" else body for body in bodies]


def dry_run(live: Live, documents: Sequence[Document], *, replace: bool) -> None:
    """Lets the server validate objects without saving them. Raises an error if it refuses one."""
    check_documents(documents)
    for document in documents:
        send(live, document.body, replace=replace, dry_run=True)


def check_documents(documents: Sequence[Document]) -> None:
    """Refuses invalid objects with clearer messages than the server's."""
    for document in documents:
        kind, _, _ = object_key(document)
        if kind not in RESOURCES:
            names = ", ".join(RESOURCES)
            rule = f"kind: {kind} is not allowed: must be one of {names}"
            raise ArgumentError(f"{document.where}: {rule}")
        if kind in ("Run", "Budget"):
            parse_object(document.body, document.where)


def send(live: Live, body: dict[str, Any], *, replace: bool, dry_run: bool = False) -> dict[str, Any]:
    resource = RESOURCES[body["kind"]]
    request = api_requests.create(resource, with_finalizer(body))
    with translated_errors():
        try:
            answer = live.client.ask(dry_run_request(request) if dry_run else request)
        except StatusError as refused:
            if not (refused.exists_already and replace):
                raise
            answer = replace_object(live, resource, body, dry_run=dry_run)
    return {"apiVersion": resource.api_version, "kind": resource.kind, **answer}


def with_finalizer(body: dict[str, Any]) -> dict[str, Any]:
    """Adds the finalizer that keeps a Run until its leases are closed, which saves the manager a write."""
    if body["kind"] != "Run" or body["spec"].get("stages"):
        return body
    others = [name for name in body["metadata"].get("finalizers") or () if name != FINALIZER]
    return {**body, "metadata": {**body["metadata"], "finalizers": [*others, FINALIZER]}}


def dry_run_request(request: api_requests.Request) -> api_requests.Request:
    separator = "&" if "?" in request.target else "?"
    return request._replace(target=f"{request.target}{separator}dryRun=All")


def replace_object(live: Live, resource: Resource, body: dict[str, Any], *, dry_run: bool) -> dict[str, Any]:
    """Replaces the spec of an existing object, and adds labels and annotations."""
    metadata = body["metadata"]
    existing = live.client.ask(api_requests.get(resource, metadata["name"], metadata.get("namespace", "")))
    existing["spec"] = body["spec"]
    for field in ("labels", "annotations"):
        if metadata.get(field):
            existing["metadata"][field] = {**existing["metadata"].get(field, {}), **metadata[field]}
    request = api_requests.replace(resource, existing)
    return live.client.ask(dry_run_request(request) if dry_run else request)


def wait_for_status(live: Live, body: dict[str, Any], deadline: float) -> dict[str, Any]:
    """Returns the Run with a status from the manager, or as it was created if the deadline passes first."""
    metadata, seconds = body["metadata"], int(deadline - time.monotonic())
    if has_word(body, metadata) or seconds < 1:
        return body
    selector = Selector(metadata["namespace"], fields=f"metadata.name={metadata['name']}")
    request = api_requests.watch(RUNS, selector, metadata["resourceVersion"], seconds, initial=False)
    with suppress(KubeError):  # the Run is created even if the watch fails, for example for lack of rights
        for line in live.client.lines(request):
            latest: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any]).get("object", {})
            if latest.get("kind") == "Run" and has_word(latest, metadata):
                return latest
    return body


def has_word(body: dict[str, Any], metadata: dict[str, Any]) -> bool:
    return bool(body.get("status", {}).get("observedGeneration", 0) >= metadata.get("generation", 1))


def find(live: Live, text: str) -> dict[str, Any]:
    """Returns the Run that an argument names, in its namespace or in the current one."""
    wanted = text.rpartition(".io/")[2] if ".io/" in text else text
    namespace, _, name = wanted.rpartition("/")
    with translated_errors():
        try:
            body = live.client.ask(api_requests.get(RUNS, name, namespace or live.namespace))
        except StatusError as refused:
            if refused.code != NOT_FOUND or not refused.reason:
                raise
            message = missing_run_message(live, namespace or live.namespace, name)
            raise NotFoundError(message, "Run", f"{namespace or live.namespace}/{name}") from None
    return {"apiVersion": RUNS.api_version, "kind": "Run"} | body


def missing_run_message(live: Live, namespace: str, name: str) -> str:
    """Returns the message for an unknown Run; names a Run of that name elsewhere if the user may list it."""
    elsewhere: list[str] = []
    with suppress(KubeError):
        namesakes = live.client.list(RUNS, Selector(fields=f"metadata.name={name}"))
        elsewhere = sorted(f"{body['metadata']['namespace']}/{name}" for body in namesakes)
    hint = f"did you mean {elsewhere[0]}?" if elsewhere else "'kubectl runs state --all' lists all Runs"
    return f"there is no Run {name} in namespace {namespace}: {hint}"


def tree_of(body: dict[str, Any]) -> str:
    """Returns the namespace and name of the tree that the Run is a stage of; empty if it is none."""
    metadata = body["metadata"]
    trees = [
        owner["name"]
        for owner in metadata.get("ownerReferences") or ()
        if owner.get("kind") == "Run" and owner.get("controller")
    ]
    return f"{metadata['namespace']}/{trees[0]}" if trees else ""


def delete(live: Live, bodies: Iterable[dict[str, Any]]) -> None:
    """Deletes Runs, if they are still those that were read."""
    for body in bodies:
        live.ask(api_requests.delete(RUNS, preconditions(body)))


def resize(live: Live, text: str, sign: int, by: int | None, width: int | None) -> Resized:
    """Sets the desired width of a Run: more or less by a number of GPUs, or to a width."""
    body = find(live, text)
    parsed = parse_object(deepcopy(body), "the cluster")
    assert isinstance(parsed, Run)
    status = body.get("status", {})
    allocated = status.get("width", {}).get("allocated", 0)
    wanted = width if width is not None else allocated + sign * (by or 0)
    name = f"{body['metadata']['namespace']}/{body['metadata']['name']}"
    refuse_width(name, gang_shape(parsed.spec), status.get("phase", "Pending"), allocated, sign, wanted)
    patch = {"spec": {"malleable": {"desiredTotalGPUs": wanted}}}
    patched = live.ask(api_requests.merge_patch(RUNS, preconditions(body), patch))
    return Resized({"apiVersion": RUNS.api_version, "kind": "Run"} | patched, name, allocated, wanted)


def preconditions(body: dict[str, Any]) -> Preconditions:
    metadata = body["metadata"]
    return Preconditions(metadata["name"], metadata["namespace"], metadata["uid"])


class ChangeSignal:
    """A store for a watch that records only whether anything changed."""

    def __init__(self) -> None:
        self.changed = False

    def restart(self) -> None:
        """Begins a list."""

    def finish(self) -> None:
        """Ends a list, which replaces the events that were missed before it."""
        self.changed = True

    def upsert(self, encoded: bytes | msgspec.Raw) -> str:
        return self._record(encoded)

    def delete(self, encoded: bytes | msgspec.Raw) -> str:
        return self._record(encoded)

    def _record(self, encoded: bytes | msgspec.Raw) -> str:
        self.changed = True
        version: str = msgspec.json.decode(encoded)["metadata"]["resourceVersion"]
        return version


def run_changes(live: Live, namespace: str, name: str) -> Iterator[None]:
    """Yields whenever the Run has changed, without an end.

    A server that has just started refuses all requests until it has read the access rules. The caller has
    read the Run before, so a refusal is raised only if it lasts.
    """
    signal, refused_at = ChangeSignal(), 0.0
    protocol = WatchProtocol(RUNS, signal, Selector(namespace, fields=f"metadata.name={name}"))
    with translated_errors():
        while True:
            try:
                for _ in follow_changes(live.transport, protocol):
                    refused_at = 0.0
                    if signal.changed:
                        signal.changed = False
                        yield
            except StatusError:
                refused_at = refused_at or time.monotonic()
                if time.monotonic() > refused_at + STARTUP_SECONDS:
                    raise
                time.sleep(1)
