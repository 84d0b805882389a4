"""Writing verbs on a live cluster: requests with the user's own rights; the manager does the rest."""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any

import click
import msgspec

from jobtree.api.documents.document_stream import Document
from jobtree.api.kinds.run import Run
from jobtree.api.validation.object_parser import parse_object
from jobtree.cli.shell.command_errors import CommandError, Exit
from jobtree.cli.shell.object_output import print_objects
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.source.live_cluster import Live
from jobtree.cli.source.server_refusals import YOUNG_SECONDS, translated_errors
from jobtree.cli.tasks.width_rules import refuse_width
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
ANSWER_SECONDS = 10  # how long submit waits for the manager's word
SILENT = (
    "; the manager has not answered yet\n  'kubectl runs watch {name}' follows it. If nothing comes, an "
    "administrator can see why: 'kubectl -n jobtree-system get deploy,pods'"
)


def submit(settings: CommandOptions, documents: Sequence[Document], *, replace: bool) -> None:
    """Create objects, or put them in place of others; say what the manager made of each Run."""
    live = Live(settings)
    if len(documents) > 1:  # all of them or none, as far as can be known
        dry_run(live, documents, replace=replace)
    else:
        check_documents(documents)
    bodies = [send(live, document.body, replace=replace) for document in documents]
    patience = time.monotonic() + ANSWER_SECONDS
    bodies = [wait_for_status(live, body, patience) if body["kind"] == "Run" else body for body in bodies]
    if not settings.human:
        print_objects(settings, bodies, many=len(bodies) > 1)
        return
    for body in bodies:
        click.echo(status_line(body))


def dry_run(live: Live, documents: Sequence[Document], *, replace: bool) -> None:
    """The server's word on objects that are not to be saved yet: raises CommandError if it is no."""
    check_documents(documents)
    for document in documents:
        send(live, document.body, replace=replace, dry_run=True)


def check_documents(documents: Sequence[Document]) -> None:
    """Refuse here what the server would refuse less kindly."""
    for document in documents:
        kind, _, _ = object_key(document)
        if kind not in RESOURCES:
            names = ", ".join(RESOURCES)
            rule = f"kind: {kind} is not allowed: must be one of {names}"
            raise CommandError(Exit.USAGE, f"{document.where}: {rule}")
        if kind in ("Run", "Budget"):
            parse_object(document.body, document.where)


def send(live: Live, body: dict[str, Any], *, replace: bool, dry_run: bool = False) -> dict[str, Any]:
    resource = RESOURCES[body["kind"]]
    request = api_requests.create(resource, kept(body))
    with translated_errors():
        try:
            answer = live.client.ask(rehearsed(request) if dry_run else request)
        except StatusError as refused:
            if not (refused.exists_already and replace):
                raise
            answer = put(live, resource, body, dry_run=dry_run)
    return {"apiVersion": resource.api_version, "kind": resource.kind, **answer}


def kept(body: dict[str, Any]) -> dict[str, Any]:
    """A Run goes after its leases: said here, the manager need not write that when it starts the Run."""
    if body["kind"] != "Run" or body["spec"].get("stages"):
        return body
    others = [name for name in body["metadata"].get("finalizers") or () if name != FINALIZER]
    return {**body, "metadata": {**body["metadata"], "finalizers": [*others, FINALIZER]}}


def rehearsed(request: api_requests.Request) -> api_requests.Request:
    joint = "&" if "?" in request.target else "?"
    return request._replace(target=f"{request.target}{joint}dryRun=All")


def put(live: Live, resource: Resource, body: dict[str, Any], *, dry_run: bool) -> dict[str, Any]:
    """Another version of an object that is there: its spec, as it stands now."""
    metadata = body["metadata"]
    known = live.client.ask(api_requests.get(resource, metadata["name"], metadata.get("namespace", "")))
    known["spec"] = body["spec"]
    for field in ("labels", "annotations"):
        if metadata.get(field):
            known["metadata"][field] = {**known["metadata"].get(field, {}), **metadata[field]}
    request = api_requests.replace(resource, known)
    return live.client.ask(rehearsed(request) if dry_run else request)


def wait_for_status(live: Live, body: dict[str, Any], patience: float) -> dict[str, Any]:
    """The Run once the manager has said something of it, or as it was when patience ends."""
    metadata, seconds = body["metadata"], int(patience - time.monotonic())
    if has_word(body, metadata) or seconds < 1:
        return body
    selector = Selector(metadata["namespace"], fields=f"metadata.name={metadata['name']}")
    request = api_requests.watch(RUNS, selector, metadata["resourceVersion"], seconds, initial=False)
    with suppress(KubeError):  # it is created, whatever becomes of the question; perhaps we may not watch
        for line in live.client.lines(request):
            latest: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any]).get("object", {})
            if latest.get("kind") == "Run" and has_word(latest, metadata):
                return latest
    return body


def has_word(body: dict[str, Any], metadata: dict[str, Any]) -> bool:
    return bool(body.get("status", {}).get("observedGeneration", 0) >= metadata.get("generation", 1))


def status_line(body: dict[str, Any]) -> str:
    """``default/train is Running: Admitted: 8 GPUs, paid by west/h100``."""
    metadata, status = body["metadata"], body.get("status", {})
    name = "/".join(part for part in (metadata.get("namespace", ""), metadata["name"]) if part)
    if body["kind"] != "Run":
        return f"{body['kind']} {name} is in place"
    phase = status.get("phase")
    if not has_word(body, metadata):
        return f"{name} is {'changed' if phase else 'created'}{SILENT.format(name=name)}"
    said = f": {status['message']}" if status.get("message") else ""
    start = f"; it starts at {status['earliestStart']} at the latest" if "earliestStart" in status else ""
    return f"{name} is {phase}{said}{start}"


def cancel(settings: CommandOptions, runs: Sequence[str]) -> None:
    live = Live(settings)
    found = [find(live, run) for run in runs]
    bodies = list({body["metadata"]["uid"]: body for body in found}.values())
    for body in bodies:
        metadata = body["metadata"]
        seen = Preconditions(metadata["name"], metadata["namespace"], metadata["uid"])
        live.ask(api_requests.delete(RUNS, seen))
    if not settings.human:
        print_objects(settings, bodies, many=len(bodies) > 1)
        return
    for body in bodies:
        click.echo(
            f"{body['metadata']['namespace']}/{body['metadata']['name']} is going: its leases close first"
        )


def find(live: Live, text: str) -> dict[str, Any]:
    """The Run that an argument names, in its namespace or in the current one."""
    wanted = text.rpartition(".io/")[2] if ".io/" in text else text
    namespace, _, name = wanted.rpartition("/")
    with translated_errors():
        try:
            body = live.client.ask(api_requests.get(RUNS, name, namespace or live.namespace))
        except StatusError as refused:
            if refused.code != NOT_FOUND or not refused.reason:
                raise
            raise CommandError(Exit.NOT_FOUND, missing(live, namespace or live.namespace, name)) from None
    return {"apiVersion": RUNS.api_version, "kind": "Run"} | body


def missing(live: Live, namespace: str, name: str) -> str:
    """Where a Run of that name is, if the user may know it."""
    elsewhere: list[str] = []
    with suppress(KubeError):
        found = live.client.list(RUNS, Selector(fields=f"metadata.name={name}"))
        elsewhere = sorted(f"{body['metadata']['namespace']}/{name}" for body in found)
    hint = f"did you mean {elsewhere[0]}?" if elsewhere else "'kubectl runs state --all' lists all Runs"
    return f"there is no Run {name} in namespace {namespace}: {hint}"


def resize_live(settings: CommandOptions, run: str, sign: int, by: int | None, width: int | None) -> None:
    """Set the width that a Run wants."""
    live = Live(settings)
    body = find(live, run)
    parsed = parse_object(deepcopy(body), "the cluster")
    allocated = body.get("status", {}).get("width", {}).get("allocated", 0)
    wanted = width if width is not None else allocated + sign * (by or 0)
    name = f"{body['metadata']['namespace']}/{body['metadata']['name']}"
    phase = body.get("status", {}).get("phase", "Pending")
    assert isinstance(parsed, Run)
    refuse_width(name, gang_shape(parsed.spec), phase, allocated, sign, wanted)
    seen = Preconditions(body["metadata"]["name"], body["metadata"]["namespace"], body["metadata"]["uid"])
    patched = live.ask(
        api_requests.merge_patch(RUNS, seen, {"spec": {"malleable": {"desiredTotalGPUs": wanted}}})
    )
    if not settings.human:
        print_objects(settings, [{"apiVersion": RUNS.api_version, "kind": "Run"} | patched], many=False)
        return
    click.echo(f"{name} wants {wanted} GPUs and has {allocated}: 'kubectl runs watch {name}' follows it")


class ChangeSignal:
    """Rings when something happened, and remembers nothing more: who hears it looks for itself."""

    def __init__(self) -> None:
        self.rung = False

    def restart(self) -> None:
        """A listing begins."""

    def finish(self) -> None:
        """A listing is done: what was missed before it is not told one by one."""
        self.rung = True

    def upsert(self, encoded: bytes | msgspec.Raw) -> str:
        return self._ring(encoded)

    def delete(self, encoded: bytes | msgspec.Raw) -> str:
        return self._ring(encoded)

    def _ring(self, encoded: bytes | msgspec.Raw) -> str:
        self.rung = True
        version: str = msgspec.json.decode(encoded)["metadata"]["resourceVersion"]
        return version


def run_changes(live: Live, namespace: str, name: str) -> Iterator[None]:
    """Comes back whenever the Run has changed, for as long as anybody asks.

    A server that has just started refuses everybody until it has read who may do what. Whoever asks has seen
    the Run before: a refusal counts only if it stays.
    """
    bell, refused_at = ChangeSignal(), 0.0
    follow = WatchProtocol(RUNS, bell, Selector(namespace, fields=f"metadata.name={name}"))
    with translated_errors():
        while True:
            try:
                for _ in follow_changes(live.transport, follow):
                    refused_at = 0.0
                    if bell.rung:
                        bell.rung = False
                        yield
            except StatusError:
                refused_at = refused_at or time.monotonic()
                if time.monotonic() > refused_at + YOUNG_SECONDS:
                    raise
                time.sleep(1)
