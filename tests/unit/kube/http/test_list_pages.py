import pytest

from jobtree.kube.http.api_errors import StatusError, UnreachableError
from jobtree.kube.http.api_resources import NODES
from jobtree.kube.http.blocking_client import Client
from jobtree.kube.http.blocking_transport import PlainTransport
from jobtree.kube.http.list_pages import PAGED_ATTEMPTS
from tests.unit.kube.server import Asked, FakeServer, Reply, refusal, serving, thing


def page(*names: str, more: str = "") -> Reply:
    metadata = {"resourceVersion": "9", **({"continue": more} if more else {})}
    return Reply(document={"metadata": metadata, "items": [thing(name, 1) for name in names]})


def names(server: FakeServer) -> list[str]:
    transport = PlainTransport(server.access())
    try:
        return [node["metadata"]["name"] for node in Client(transport).list(NODES)]
    finally:
        transport.close()


def test_pages_are_put_together() -> None:
    def answers(asked: Asked) -> Reply:
        return page("c") if asked.query.get("continue") == "t" else page("a", "b", more="t")

    with serving(answers) as server:
        assert names(server) == ["a", "b", "c"]
        assert [asked.query["limit"] for asked in server.asked] == ["500", "500"]


def test_items_get_back_what_servers_leave_out() -> None:
    with serving(lambda _: page("a")) as server:
        transport = PlainTransport(server.access())
        (node,) = Client(transport).list(NODES)
        transport.close()
    assert (node["apiVersion"], node["kind"]) == ("v1", "Node")


def test_a_list_without_items_is_empty() -> None:
    with serving(lambda _: Reply(document={"metadata": {"resourceVersion": "1"}, "items": None})) as server:
        assert names(server) == []


def test_a_list_that_the_server_forgot_half_way_begins_anew_and_at_last_is_asked_for_whole() -> None:
    def answers(asked: Asked) -> Reply:
        if "continue" in asked.query:
            return refusal(410, "Expired")
        return page("a", more="t") if "limit" in asked.query else page("a", "b")

    with serving(answers) as server:
        assert names(server) == ["a", "b"], "nothing of the broken lists is left"
        assert len(server.asked) == 2 * PAGED_ATTEMPTS + 1


def test_other_refusals_are_for_the_caller() -> None:
    with serving(lambda _: refusal(403, "Forbidden")) as server, pytest.raises(StatusError, match="no"):
        names(server)
    with serving(lambda _: Reply(document=[])) as server, pytest.raises(UnreachableError):
        names(server)
