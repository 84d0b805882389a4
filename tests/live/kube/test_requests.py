"""Requests to a real API server: preconditions, patches, status, selectors, lost answers."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from jobtree.kube.auth.cluster_access import find_access
from jobtree.kube.http import api_requests
from jobtree.kube.http.api_errors import StatusError, UnreachableError
from jobtree.kube.http.api_requests import Preconditions, Request, Selector
from jobtree.kube.http.api_resources import BUDGETS, CONFIG_MAPS, RUNS
from jobtree.kube.http.async_transport import PooledTransport
from jobtree.kube.http.blocking_client import Client
from jobtree.kube.http.blocking_transport import PlainTransport
from jobtree.kube.write.object_writer import Writer
from jobtree.kube.write.write_gate import Gate
from tests.live.cluster.control_plane import ControlPlane

ANOTHER_UID = "5f0c7a3e-0000-4000-8000-000000000001"


@pytest.fixture(name="client")
def _client(control_plane: ControlPlane) -> Iterator[Client]:
    transport = PlainTransport(find_access(kubeconfig=str(control_plane.admin_kubeconfig)))
    yield Client(transport)
    transport.close()


def config_map(name: str, **data: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "labels": {"test": "kube-requests"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


@pytest.fixture(name="stored")
def _stored(client: Client) -> Iterator[dict[str, Any]]:
    stored = client.ask(api_requests.create(CONFIG_MAPS, config_map("kube-requests", a="1")))
    yield stored
    with suppress(StatusError):
        client.ask(api_requests.delete(CONFIG_MAPS, Preconditions("kube-requests", "default")))


def preconditions(stored: dict[str, Any], **other: str) -> Preconditions:
    metadata = stored["metadata"]
    exact = Preconditions(
        metadata["name"], metadata["namespace"], metadata["uid"], metadata["resourceVersion"]
    )
    return exact._replace(**other)


def merge(stored: dict[str, Any], **other: str) -> Request:
    return api_requests.merge_patch(CONFIG_MAPS, preconditions(stored, **other), {"data": {"a": "2"}})


def put(stored: dict[str, Any], **other: str) -> Request:
    api_names = {{"resource_version": "resourceVersion"}.get(key, key): value for key, value in other.items()}
    return api_requests.replace(
        CONFIG_MAPS, {**stored, "metadata": {**stored["metadata"], **api_names}, "data": {"a": "2"}}
    )


@pytest.mark.parametrize("change", [merge, put])
def test_write_fails_when_uid_or_version_differs(
    client: Client, stored: dict[str, Any], change: Callable[..., Request]
) -> None:
    for other in ({"uid": ANOTHER_UID}, {"resource_version": "1"}):
        with pytest.raises(StatusError) as error:
            client.ask(change(stored, **other))
        assert error.value.is_conflict, error.value
        assert not error.value.exists_already
    assert client.ask(change(stored))["data"] == {"a": "2"}
    with pytest.raises(StatusError) as error:
        client.ask(change(stored))
    assert error.value.is_conflict, "the version must be out of date"


def test_deletion_fails_when_uid_or_version_differs(client: Client, stored: dict[str, Any]) -> None:
    for other in ({"uid": ANOTHER_UID}, {"resource_version": "1"}):
        with pytest.raises(StatusError) as error:
            client.ask(api_requests.delete(CONFIG_MAPS, preconditions(stored, **other)))
        assert error.value.is_conflict
    client.ask(api_requests.delete(CONFIG_MAPS, preconditions(stored), grace_seconds=0))
    with pytest.raises(StatusError) as error:
        client.ask(api_requests.get(CONFIG_MAPS, "kube-requests", "default"))
    assert error.value.code == 404


def test_status_error_names_field_and_reason(client: Client) -> None:
    with pytest.raises(StatusError) as error:
        client.ask(api_requests.create(CONFIG_MAPS, config_map("Not_A_Name")))
    assert (error.value.code, error.value.reason) == (422, "Invalid")
    assert [cause.field for cause in error.value.causes] == ["metadata.name"]
    assert not error.value.is_conflict


@pytest.mark.usefixtures("jobtree_cluster")
def test_status_patch_leaves_the_spec_alone(client: Client) -> None:
    budget = {
        "apiVersion": BUDGETS.api_version,
        "kind": "Budget",
        "metadata": {"name": "kube-requests"},
        "spec": {"owner": "org:kube", "envelopes": []},
    }
    stored = client.ask(api_requests.create(BUDGETS, budget))
    at = Preconditions("kube-requests", "", stored["metadata"]["uid"], stored["metadata"]["resourceVersion"])
    condition = {"type": "Ready", "status": "True", "reason": "Tested"}
    patch = {"spec": {"owner": "org:other"}, "status": {"conditions": [condition]}}
    after = client.ask(api_requests.merge_patch(BUDGETS, at, patch, "status"))
    assert after["spec"]["owner"] == "org:kube"
    assert after["status"]["conditions"][0]["reason"] == "Tested"
    client.ask(api_requests.delete(BUDGETS, Preconditions("kube-requests")))


def test_unknown_kind_is_not_found(client: Client) -> None:
    with pytest.raises(StatusError) as error:
        client.list(RUNS._replace(plural="unicorns"))
    assert error.value.code == 404


def test_selectors_limit_lists(client: Client, stored: dict[str, Any]) -> None:
    def names(**selector: str) -> list[str]:
        return [item["metadata"]["name"] for item in client.list(CONFIG_MAPS, Selector(**selector))]

    assert names(labels="test=kube-requests") == ["kube-requests"]
    assert names(namespace="default", fields="metadata.name=kube-requests") == ["kube-requests"]
    assert names(namespace="kube-system", labels="test=kube-requests") == []
    assert stored["metadata"]["name"] in names()


class LossyTransport:
    """Forwards requests and loses the first answer to each write, which took effect."""

    def __init__(self, inner: PooledTransport) -> None:
        self._inner = inner
        self._lost: set[Request] = set()
        self.stream = inner.stream
        self.close = inner.close

    async def send(self, request: Request) -> bytes:
        body = await self._inner.send(request)
        if request.writes and request not in self._lost:
            self._lost.add(request)
            raise UnreachableError("the answer was lost", may_have_happened=True)
        return body


def test_write_takes_effect_once_when_its_answer_is_lost(control_plane: ControlPlane) -> None:
    async def main() -> None:
        inner = PooledTransport(find_access(kubeconfig=str(control_plane.admin_kubeconfig)))
        writer, plain = Writer(LossyTransport(inner), Gate()), Writer(inner, Gate())
        document = config_map("kube-lossy", a="1")
        stored = msgspec.json.decode(await writer.create(CONFIG_MAPS, document))
        assert stored["data"] == {"a": "1"}
        with pytest.raises(StatusError) as error:
            await plain.create(CONFIG_MAPS, {**document, "data": {"a": "another"}})
        assert error.value.exists_already
        await writer.delete(CONFIG_MAPS, preconditions(stored, resource_version=""))
        recreated = msgspec.json.decode(await plain.create(CONFIG_MAPS, document))
        await plain.delete(CONFIG_MAPS, preconditions(stored, resource_version=""))
        there = msgspec.json.decode(await inner.send(api_requests.get(CONFIG_MAPS, "kube-lossy", "default")))
        assert there["metadata"]["uid"] == recreated["metadata"]["uid"], (
            "an object with another UID must not be deleted"
        )
        await plain.delete(CONFIG_MAPS, preconditions(recreated))
        await inner.close()

    asyncio.run(main())


def test_rewrite_is_repeated_on_conflicts(control_plane: ControlPlane) -> None:
    """Twelve writers add 1 to a number in one object; none is lost."""

    async def main() -> None:
        transport = PooledTransport(find_access(kubeconfig=str(control_plane.admin_kubeconfig)))
        gate = Gate()
        writer = Writer(transport, gate)
        await writer.create(CONFIG_MAPS, config_map("kube-count", n="0"))

        async def count() -> Request | None:
            there = msgspec.json.decode(
                await transport.send(api_requests.get(CONFIG_MAPS, "kube-count", "default"))
            )
            return api_requests.merge_patch(
                CONFIG_MAPS, preconditions(there), {"data": {"n": str(int(there["data"]["n"]) + 1)}}
            )

        for _ in range(4):
            await asyncio.gather(*(writer.rewrite(count) for _ in range(3)))
        there = msgspec.json.decode(
            await transport.send(api_requests.get(CONFIG_MAPS, "kube-count", "default"))
        )
        assert there["data"]["n"] == "12"
        assert gate.writes == 13
        await writer.delete(CONFIG_MAPS, Preconditions("kube-count", "default"))
        await transport.close()

    asyncio.run(main())
