import json
from typing import Any

import pytest

from jobtree.kube.http import api_requests
from jobtree.kube.http.api_requests import EVERYTHING, Preconditions, Request, Selector
from jobtree.kube.http.api_resources import ELECTIONS, LEASES, NODES, PODS, RUNS, Resource

SEEN = Preconditions("x", "team", "uid-x", "7")


def body(request: Request) -> Any:  # noqa: ANN401  any JSON value
    assert request.body is not None
    return json.loads(request.body)


@pytest.mark.parametrize(
    ("resource", "arguments", "path"),
    [
        (PODS, ("team", "x"), "/api/v1/namespaces/team/pods/x"),
        (PODS, ("", ""), "/api/v1/pods"),
        (PODS, ("team", "x", "log"), "/api/v1/namespaces/team/pods/x/log"),
        (NODES, ("ignored", "n"), "/api/v1/nodes/n"),
        (RUNS, ("team", "x", "status"), "/apis/rq.davidlangworthy.io/v1/namespaces/team/runs/x/status"),
        (LEASES, ("", "x"), "/apis/rq.davidlangworthy.io/v1/gpuleases/x"),
        (ELECTIONS, ("sys", "x"), "/apis/coordination.k8s.io/v1/namespaces/sys/leases/x"),
        (PODS, ("../secrets", "a/b"), "/api/v1/namespaces/..%2Fsecrets/pods/a%2Fb"),
    ],
)
def test_path_of_a_resource_is_quoted_and_namespaced(
    resource: Resource, arguments: tuple[str, ...], path: str
) -> None:
    assert resource.path(*arguments) == path


def test_list_page_has_limit_token_and_selectors() -> None:
    assert api_requests.list_page(NODES, EVERYTHING, 500).target == "/api/v1/nodes?limit=500"
    assert api_requests.list_page(NODES, EVERYTHING, 0).target == "/api/v1/nodes"
    selector = Selector("team", "a=b,c", "spec.nodeName=n")
    assert api_requests.list_page(PODS, selector, 5, "t&=").target == (
        "/api/v1/namespaces/team/pods?limit=5&continue=t%26%3D&labelSelector=a%3Db%2Cc&fieldSelector=spec.nodeName%3Dn"
    )


def test_watch_asks_for_bookmarks_and_at_first_for_all_objects() -> None:
    first = api_requests.watch(NODES, EVERYTHING, "", 600, initial=True).target
    assert "sendInitialEvents=true&resourceVersionMatch=NotOlderThan" in first
    assert "resourceVersion=&" not in first
    later = api_requests.watch(NODES, EVERYTHING, "42", 60, initial=False).target
    assert later == "/api/v1/nodes?watch=true&allowWatchBookmarks=true&timeoutSeconds=60&resourceVersion=42"


def test_merge_patch_has_the_preconditions() -> None:
    request = api_requests.merge_patch(
        RUNS, SEEN, {"metadata": {"labels": {"a": "b"}}, "status": {"x": 1}}, "status"
    )
    assert (request.method, request.content_type) == ("PATCH", "application/merge-patch+json")
    assert request.target.endswith("/runs/x/status")
    assert body(request) == {
        "metadata": {"labels": {"a": "b"}, "uid": "uid-x", "resourceVersion": "7"},
        "status": {"x": 1},
    }
    assert body(api_requests.merge_patch(RUNS, Preconditions("x", "team"), {"spec": None})) == {"spec": None}


def test_delete_has_preconditions_and_grace_period() -> None:
    options = body(api_requests.delete(PODS, SEEN, 0))
    assert options["preconditions"] == {"uid": "uid-x", "resourceVersion": "7"}
    assert options["gracePeriodSeconds"] == 0
    plain = body(api_requests.delete(PODS, Preconditions("x", "team")))
    assert "preconditions" not in plain
    assert "gracePeriodSeconds" not in plain


def test_create_and_replace_use_the_path_of_the_document() -> None:
    document = {"metadata": {"name": "x", "namespace": "team"}}
    assert api_requests.create(RUNS, document).target.endswith("/namespaces/team/runs")
    assert api_requests.replace(RUNS, document, "status").target.endswith("/namespaces/team/runs/x/status")
    assert api_requests.create(RUNS, document).writes
    assert not api_requests.get(RUNS, "x", "team").writes


def test_pod_log_may_name_a_container() -> None:
    seen = Preconditions("x", "team")
    assert api_requests.pod_log(seen).target.endswith("/pods/x/log")
    assert api_requests.pod_log(seen, "main", follow=True).target.endswith("/log?container=main&follow=true")
