import pytest

from jobtree.kube.http.api_errors import StatusError, UnreachableError
from jobtree.kube.http.api_resources import NODES
from jobtree.kube.http.blocking_client import Client
from jobtree.kube.http.blocking_transport import PlainTransport
from jobtree.kube.http.list_pages import PAGED_ATTEMPTS
from tests.unit.kube.server import FakeServer, ReceivedRequest, Reply, refusal, serving, thing


def page(*names: str, more: str = "") -> Reply:
    metadata = {"resourceVersion": "9", **({"continue": more} if more else {})}
    return Reply(document={"metadata": metadata, "items": [thing(name, 1) for name in names]})


def names(server: FakeServer) -> list[str]:
    transport = PlainTransport(server.access())
    try:
        return [node["metadata"]["name"] for node in Client(transport).list(NODES)]
    finally:
        transport.close()


def test_list_contains_the_items_of_all_pages() -> None:
    def respond(request: ReceivedRequest) -> Reply:
        return page("c") if request.query.get("continue") == "t" else page("a", "b", more="t")

    with serving(respond) as server:
        assert names(server) == ["a", "b", "c"]
        assert [request.query["limit"] for request in server.requests] == ["500", "500"]


def test_items_get_the_api_version_and_kind_that_servers_omit() -> None:
    with serving(lambda _: page("a")) as server:
        transport = PlainTransport(server.access())
        (node,) = Client(transport).list(NODES)
        transport.close()
    assert (node["apiVersion"], node["kind"]) == ("v1", "Node")


def test_list_with_null_items_is_empty() -> None:
    with serving(lambda _: Reply(document={"metadata": {"resourceVersion": "1"}, "items": None})) as server:
        assert names(server) == []


def test_list_begins_again_and_at_last_without_pages_when_the_server_forgets_it() -> None:
    def respond(request: ReceivedRequest) -> Reply:
        if "continue" in request.query:
            return refusal(410, "Expired")
        return page("a", more="t") if "limit" in request.query else page("a", "b")

    with serving(respond) as server:
        assert names(server) == ["a", "b"], "nothing of the broken lists is left"
        assert len(server.requests) == 2 * PAGED_ATTEMPTS + 1


def test_other_errors_are_raised() -> None:
    with serving(lambda _: refusal(403, "Forbidden")) as server, pytest.raises(StatusError, match="no"):
        names(server)
    with serving(lambda _: Reply(document=[])) as server, pytest.raises(UnreachableError):
        names(server)
