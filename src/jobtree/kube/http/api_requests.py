"""Builds every request that Jobtree sends, as a value that any transport can send.

A request that changes an object names the version that the caller read. ``uid`` and ``resource_version`` are
preconditions: the server refuses the request (409) if the object has changed, or was deleted and created
again under the same name.
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
    """A request. ``target`` is the path with its query; ``guard`` is called before the first byte is sent.

    A guard that raises prevents the request: a process may have been paused for any time between the decision
    to write and the write.
    """

    method: str
    target: str
    body: bytes | None = None
    content_type: str = JSON
    guard: Callable[[], None] | None = None

    @property
    def writes(self) -> bool:
        return self.method != "GET"

    @property
    def flow(self) -> str:
        """The namespace and the kind of the object; empty for objects without a namespace."""
        return "/".join(self.target.partition("/namespaces/")[2].split("/")[:2])


class Selector(NamedTuple):
    """Selects objects of a collection; by default all in all namespaces."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""


EVERYTHING = Selector()


def get(resource: Resource, name: str, namespace: str = "") -> Request:
    return Request("GET", resource.path(namespace, name))


def list_page(resource: Resource, selector: Selector, limit: int, token: str = "") -> Request:
    """Requests one page of a list; ``token`` comes from the page before. Limit 0 requests all objects."""
    query = {"limit": limit or "", "continue": token}
    return _collection(resource, selector, query)


def watch(
    resource: Resource, selector: Selector, resource_version: str, timeout_seconds: int, *, initial: bool
) -> Request:
    """Requests all changes since a version; with ``initial``, first all existing objects."""
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
    """Replaces the whole object, or its status. Its metadata has the uid and resourceVersion read last."""
    path = resource.path(_namespace(document), document["metadata"]["name"], subresource)
    return _send("PUT", path, document)


class Preconditions(NamedTuple):
    """The object to change, and the version of it that the caller read. An empty field is not checked."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    def preconditions(self) -> dict[str, str]:
        values = {"uid": self.uid, "resourceVersion": self.resource_version}
        return {key: value for key, value in values.items() if value}


def merge_patch(resource: Resource, seen: Preconditions, patch: ObjectBody, subresource: str = "") -> Request:
    """Changes the fields in ``patch``; ``None`` removes a field."""
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
    """Requests a path of a Service in the cluster through the API server; ``service`` is NAME:PORT."""
    return Request("GET", f"{SERVICES.path(namespace, service, 'proxy')}/{path}")


def _collection(resource: Resource, selector: Selector, query: Mapping[str, object]) -> Request:
    selected = {**query, "labelSelector": selector.labels, "fieldSelector": selector.fields}
    return Request("GET", _with_query(resource.path(selector.namespace), selected))


def _with_query(path: str, query: Mapping[str, object]) -> str:
    parameters = {key: value for key, value in query.items() if value != ""}
    return f"{path}?{urlencode(parameters)}" if parameters else path


def _send(method: str, target: str, body: object, content_type: str = JSON) -> Request:
    return Request(method, target, msgspec.json.encode(body), content_type)


def _namespace(document: ObjectBody) -> str:
    namespace: str = document["metadata"].get("namespace", "")
    return namespace
