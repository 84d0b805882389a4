"""What a real API server makes of our requests: preconditions, patches, status, selectors, lost answers."""

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
from tests.live.control_plane import ControlPlane

ANOTHER_UID = "5f0c7a3e-0000-4000-8000-000000000001"


@pytest.fixture(name="client")
def _client(control_plane: ControlPlane) -> Iterator[Client]:
    transport = PlainTransport(find_access(kubeconfig=str(control_plane.admin_kubeconfig)))
    yield Client(transport)
    transport.close()


def config_map(name: str, **data: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "labels": {"test": "kube-requests"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


@pytest.fixture(name="made")
def _made(client: Client) -> Iterator[dict[str, Any]]:
    made = client.ask(api_requests.create(CONFIG_MAPS, config_map("kube-requests", a="1")))
    yield made
    with suppress(StatusError):
        client.ask(api_requests.delete(CONFIG_MAPS, Preconditions("kube-requests", "default")))


def seen(made: dict[str, Any], **other: str) -> Preconditions:
    metadata = made["metadata"]
    whole = Preconditions(
        metadata["name"], metadata["namespace"], metadata["uid"], metadata["resourceVersion"]
    )
    return whole._replace(**other)


def merge(made: dict[str, Any], **other: str) -> Request:
    return api_requests.merge_patch(CONFIG_MAPS, seen(made, **other), {"data": {"a": "2"}})


def put(made: dict[str, Any], **other: str) -> Request:
    spelled = {{"resource_version": "resourceVersion"}.get(key, key): value for key, value in other.items()}
    return api_requests.replace(
        CONFIG_MAPS, {**made, "metadata": {**made["metadata"], **spelled}, "data": {"a": "2"}}
    )


@pytest.mark.parametrize("change", [merge, put])
def test_a_change_is_for_the_object_that_was_seen_and_no_other(
    client: Client, made: dict[str, Any], change: Callable[..., Request]
) -> None:
    for other in ({"uid": ANOTHER_UID}, {"resource_version": "1"}):
        with pytest.raises(StatusError) as error:
            client.ask(change(made, **other))
        assert error.value.is_conflict, error.value
        assert not error.value.exists_already
    assert client.ask(change(made))["data"] == {"a": "2"}
    with pytest.raises(StatusError) as error:
        client.ask(change(made))
    assert error.value.is_conflict, "what was seen is old by now"


def test_a_deletion_is_for_the_object_that_was_seen_and_no_other(
    client: Client, made: dict[str, Any]
) -> None:
    for other in ({"uid": ANOTHER_UID}, {"resource_version": "1"}):
        with pytest.raises(StatusError) as error:
            client.ask(api_requests.delete(CONFIG_MAPS, seen(made, **other)))
        assert error.value.is_conflict
    client.ask(api_requests.delete(CONFIG_MAPS, seen(made), grace_seconds=0))
    with pytest.raises(StatusError) as error:
        client.ask(api_requests.get(CONFIG_MAPS, "kube-requests", "default"))
    assert error.value.code == 404


def test_a_refusal_says_which_field_and_why(client: Client) -> None:
    with pytest.raises(StatusError) as error:
        client.ask(api_requests.create(CONFIG_MAPS, config_map("Not_A_Name")))
    assert (error.value.code, error.value.reason) == (422, "Invalid")
    assert [cause.field for cause in error.value.causes] == ["metadata.name"]
    assert not error.value.is_conflict


@pytest.mark.usefixtures("jobtree_cluster")
def test_a_status_is_written_by_itself(client: Client) -> None:
    budget = {
        "apiVersion": BUDGETS.api_version,
        "kind": "Budget",
        "metadata": {"name": "kube-requests"},
        "spec": {"owner": "org:kube", "envelopes": []},
    }
    made = client.ask(api_requests.create(BUDGETS, budget))
    at = Preconditions("kube-requests", "", made["metadata"]["uid"], made["metadata"]["resourceVersion"])
    condition = {"type": "Ready", "status": "True", "reason": "Tested"}
    patch = {"spec": {"owner": "org:other"}, "status": {"conditions": [condition]}}
    after = client.ask(api_requests.merge_patch(BUDGETS, at, patch, "status"))
    assert after["spec"]["owner"] == "org:kube"
    assert after["status"]["conditions"][0]["reason"] == "Tested"
    client.ask(api_requests.delete(BUDGETS, Preconditions("kube-requests")))


def test_a_kind_that_is_not_defined_is_not_found(client: Client) -> None:
    with pytest.raises(StatusError) as error:
        client.list(RUNS._replace(plural="unicorns"))
    assert error.value.code == 404


def test_selectors_choose(client: Client, made: dict[str, Any]) -> None:
    def names(**chosen: str) -> list[str]:
        return [one["metadata"]["name"] for one in client.list(CONFIG_MAPS, Selector(**chosen))]

    assert names(labels="test=kube-requests") == ["kube-requests"]
    assert names(namespace="default", fields="metadata.name=kube-requests") == ["kube-requests"]
    assert names(namespace="kube-system", labels="test=kube-requests") == []
    assert made["metadata"]["name"] in names()


class Lossy:
    """Passes requests on and loses the first answer to each write: it took effect, and nobody knows."""

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


def test_writes_whose_answers_are_lost_happen_once(control_plane: ControlPlane) -> None:
    async def main() -> None:
        inner = PooledTransport(find_access(kubeconfig=str(control_plane.admin_kubeconfig)))
        writer, plain = Writer(Lossy(inner), Gate()), Writer(inner, Gate())
        document = config_map("kube-lossy", a="1")
        made = msgspec.json.decode(await writer.create(CONFIG_MAPS, document))
        assert made["data"] == {"a": "1"}
        with pytest.raises(StatusError) as error:
            await plain.create(CONFIG_MAPS, {**document, "data": {"a": "another"}})
        assert error.value.exists_already
        await writer.delete(CONFIG_MAPS, seen(made, resource_version=""))
        remade = msgspec.json.decode(await plain.create(CONFIG_MAPS, document))
        await plain.delete(CONFIG_MAPS, seen(made, resource_version=""))
        there = msgspec.json.decode(await inner.send(api_requests.get(CONFIG_MAPS, "kube-lossy", "default")))
        assert there["metadata"]["uid"] == remade["metadata"]["uid"], "another object under the name is left"
        await plain.delete(CONFIG_MAPS, seen(remade))
        await inner.close()

    asyncio.run(main())


def test_a_rewrite_reads_again_until_it_fits(control_plane: ControlPlane) -> None:
    """Twelve writers count in one object; none is lost."""

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
                CONFIG_MAPS, seen(there), {"data": {"n": str(int(there["data"]["n"]) + 1)}}
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
