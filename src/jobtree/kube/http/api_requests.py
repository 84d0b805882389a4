"""Every request that Jobtree makes, as a value: built here, sent by any transport.

Whoever changes an object says which one it saw. ``uid`` and ``resource_version`` are preconditions: the
server refuses the request (409) if the object is another one by now, or has changed. An object that was
deleted and made again under the same name is another one.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec

from jobtree.kube.http.api_resources import PODS, SERVICES, Resource

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"

ObjectBody = Mapping[str, Any]


class Request(NamedTuple):
    """``target`` is the path with its query. ``guard`` is called right before the first byte leaves.

    A guard that raises keeps the request from being sent: between the decision to write and the write, a
    process may have been paused for any time.
    """

    method: str
    target: str
    body: bytes | None = None
    content_type: str = JSON
    guard: Callable[[], None] | None = None

    @property
    def writes(self) -> bool:
        return self.method != "GET"


class Selector(NamedTuple):
    """Which objects of a collection are meant; by default all in all namespaces."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""


EVERYTHING = Selector()


def get(resource: Resource, name: str, namespace: str = "") -> Request:
    return Request("GET", resource.path(namespace, name))


def list_page(resource: Resource, selector: Selector, limit: int, token: str = "") -> Request:
    """One page of a list; ``token`` is what the page before gave. Limit 0 asks for all at once."""
    query = {"limit": limit or "", "continue": token}
    return _collection(resource, selector, query)


def watch(
    resource: Resource, selector: Selector, resource_version: str, timeout_seconds: int, *, initial: bool
) -> Request:
    """Changes since a version; with ``initial``, all that there is and then the changes."""
    query: dict[str, object] = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": timeout_seconds,
        "resourceVersion": resource_version,
    }
    if initial:
        query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    return _collection(resource, selector, query)


def create(resource: Resource, document: ObjectBody) -> Request:
    return _send("POST", resource.path(_namespace(document)), document)


def replace(resource: Resource, document: ObjectBody, subresource: str = "") -> Request:
    """The whole object (or its status) anew. Its metadata holds the uid and resourceVersion last seen."""
    path = resource.path(_namespace(document), document["metadata"]["name"], subresource)
    return _send("PUT", path, document)


class Preconditions(NamedTuple):
    """The object that a change is meant for, as it was seen. What is empty is not insisted on."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    def preconditions(self) -> dict[str, str]:
        given = {"uid": self.uid, "resourceVersion": self.resource_version}
        return {key: value for key, value in given.items() if value}


def merge_patch(resource: Resource, seen: Preconditions, patch: ObjectBody, subresource: str = "") -> Request:
    """What is given changes, ``None`` removes."""
    metadata = {**patch.get("metadata", {}), **seen.preconditions()}
    body = {**patch, "metadata": metadata} if metadata else patch
    return _send("PATCH", resource.path(seen.namespace, seen.name, subresource), body, MERGE_PATCH)


def delete(resource: Resource, seen: Preconditions, grace_seconds: int | None = None) -> Request:
    options: dict[str, object] = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
    }
    if seen.preconditions():
        options["preconditions"] = seen.preconditions()
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    return _send("DELETE", resource.path(seen.namespace, seen.name), options)


def pod_log(seen: Preconditions, container: str = "", *, follow: bool = False) -> Request:
    query = {"container": container, "follow": "true" if follow else ""}
    return Request("GET", _with_query(PODS.path(seen.namespace, seen.name, "log"), query))


def service_proxy(namespace: str, service: str, path: str) -> Request:
    """What a Service in the cluster answers, asked through the API server; ``service`` is NAME:PORT."""
    return Request("GET", f"{SERVICES.path(namespace, service, 'proxy')}/{path}")


def _collection(resource: Resource, selector: Selector, query: Mapping[str, object]) -> Request:
    chosen = {**query, "labelSelector": selector.labels, "fieldSelector": selector.fields}
    return Request("GET", _with_query(resource.path(selector.namespace), chosen))


def _with_query(path: str, query: Mapping[str, object]) -> str:
    given = {key: value for key, value in query.items() if value != ""}
    return f"{path}?{urlencode(given)}" if given else path


def _send(method: str, target: str, body: object, content_type: str = JSON) -> Request:
    return Request(method, target, msgspec.json.encode(body), content_type)


def _namespace(document: ObjectBody) -> str:
    namespace: str = document["metadata"].get("namespace", "")
    return namespace
