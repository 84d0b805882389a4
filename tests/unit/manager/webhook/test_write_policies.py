"""The webhook's admission policies: who is exempt, and who is refused. Live tests try attacks."""

import asyncio

import pytest

from jobtree.kube.http.async_client import AsyncClient
from jobtree.manager.webhook.admission_review import UserInfo
from jobtree.manager.webhook.pod_policies import GpuClaimPolicy, GpuPodPolicy, PodPolicy
from jobtree.manager.webhook.webhook_server import Handler
from jobtree.manager.webhook.write_policies import CONTROLLERS, RecordPolicy, RunPolicy, spend_by
from tests.unit.manager.webhook.fake_server import FakeServer
from tests.unit.manager.webhook.reviews import JOBTREE, Document, admission_request, review, run_document

NAMESPACE = "jobtree-system"
BREAK_GLASS_GROUPS = ("jobtree:break-glass",)
RUN_OWNER = {
    "apiVersion": "rq.davidlangworthy.io/v1",
    "kind": "Run",
    "name": "r",
    "uid": "u",
    "controller": True,
}


async def allow_all(_: UserInfo, __: str) -> bool:
    return True


async def allow_none(_: UserInfo, __: str) -> bool:
    return False


def pod(containers: list[Document] | None = None, **metadata: object) -> Document:
    spec = {"containers": containers or [{"name": "main"}]}
    return {"metadata": {"name": "p", "namespace": "team", **metadata}, "spec": spec}


GPU_POD = pod([{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}])
CLAIM = {"metadata": {"name": "c", "namespace": "team"}, "spec": {"resourceClassName": "gpu.nvidia.com"}}


@pytest.mark.parametrize(
    ("handler", "change", "exempt"),
    [
        (RecordPolicy(NAMESPACE).review, ("UPDATE", "runs", run_document()), (True, True, True)),
        (RunPolicy(NAMESPACE, allow_none).review, ("CREATE", "runs", run_document()), (True, True, False)),
        (GpuPodPolicy(NAMESPACE).review, ("CREATE", "pods", GPU_POD), (True, False, True)),
        (GpuClaimPolicy().review, ("CREATE", "resourceclaims", CLAIM), (False, False, True)),
        (
            PodPolicy(NAMESPACE).review,
            ("CREATE", "pods", pod(ownerReferences=[RUN_OWNER])),
            (True, True, True),
        ),
    ],
    ids=["records", "runs", "gpu-pods", "gpu-claims", "pods"],
)
def test_policy_refuses_all_users_but_the_exempt(
    handler: Handler, change: tuple[str, str, Document], exempt: tuple[bool, ...]
) -> None:
    assert not review(handler, admission_request(*change)).allowed
    assert review(handler, admission_request(*change)).code == 403
    jobtree, controllers, glass = exempt
    assert review(handler, admission_request(*change, user=JOBTREE)).allowed == jobtree
    for controller in CONTROLLERS:
        assert review(handler, admission_request(*change, user=controller)).allowed == controllers
    assert review(handler, admission_request(*change, groups=BREAK_GLASS_GROUPS)).allowed == glass
    assert not review(
        handler, admission_request(*change, user=JOBTREE.replace("jobtree-system", "mine"))
    ).allowed


def test_spend_review_has_all_details_of_the_user() -> None:
    class Allowing(FakeServer):
        def _post(self, path: str, body: bytes | None) -> Document:
            assert path.endswith("/subjectaccessreviews")
            assert b'"extra":{"scope":["x"]}' in (body or b"")
            assert b'"name":"org:a"' in (body or b"")
            assert b'"groups":["g"]' in (body or b"")
            return {"status": {"allowed": True}}

    user = UserInfo(username="ann", groups=("g",), uid="7", extra={"scope": ["x"]})
    assert asyncio.run(spend_by(AsyncClient(Allowing()))(user, "org:a"))


def test_spend_is_checked_only_when_the_spec_changes() -> None:
    handler = RunPolicy(NAMESPACE, allow_none).review
    edited = run_document(spares=1)
    assert (
        "you may not charge o"
        in review(handler, admission_request("UPDATE", "runs", edited, run_document())).message
    )
    labelled = run_document()
    labelled["metadata"]["labels"] = {"a": "b"}
    assert review(handler, admission_request("UPDATE", "runs", labelled, run_document())).allowed
    assert review(handler, admission_request("DELETE", "runs", None, run_document())).allowed, (
        "a deletion charges nothing"
    )


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({}, True),
        ({"propagationPolicy": "Foreground"}, True),
        ({"propagationPolicy": "Orphan"}, False),
        ({"orphanDependents": True}, False),
        ({"orphanDependents": False}, True),
    ],
)
def test_deletion_that_orphans_pods_is_refused(options: Document, allowed: bool) -> None:
    handler = RunPolicy(NAMESPACE, allow_all).review
    response = review(handler, admission_request("DELETE", "runs", None, run_document(), options=options))
    assert response.allowed == allowed


def test_metadata_is_limited() -> None:
    handler = RunPolicy(NAMESPACE, allow_all).review
    for field, value in (("labels", {str(n): "" for n in range(65)}), ("finalizers", list("f" * 65))):
        forged = run_document()
        forged["metadata"][field] = value
        response = review(handler, admission_request("CREATE", "runs", forged))
        assert (response.code, f"metadata.{field}: 65 are too many" in response.message) == (422, True)
    forged = run_document("n" * 241)
    assert "at most 240 characters" in review(handler, admission_request("CREATE", "runs", forged)).message
    assert review(handler, admission_request("UPDATE", "runs", forged, forged)).allowed, (
        "an existing name is not checked"
    )


def test_only_jobtree_changes_its_marks_on_a_rank() -> None:
    handler = PodPolicy(NAMESPACE).review
    labels = {"rq.davidlangworthy.io/run": "r", "mine": "x"}
    annotations = {"rq.davidlangworthy.io/risk": "[]"}
    rank = pod(ownerReferences=[RUN_OWNER], labels=labels, annotations=annotations)

    def changed(**metadata: object) -> bool:
        after = {**rank, "metadata": {**rank["metadata"], **metadata}}
        return review(handler, admission_request("UPDATE", "pods", after, rank)).allowed

    assert changed(labels={**labels, "mine": "y"})
    assert not changed(labels={"mine": "x"})
    assert not changed(labels={**labels, "rq.davidlangworthy.io/run": "s"})
    assert not changed(annotations={})
    assert not changed(annotations={"rq.davidlangworthy.io/risk": "[1]"})
    assert not changed(ownerReferences=[])
    assert not changed(ownerReferences=[{**RUN_OWNER, "controller": False}])


def test_owner_of_another_api_group_is_ignored() -> None:
    handler = PodPolicy(NAMESPACE).review
    other = {**RUN_OWNER, "apiVersion": "tekton.example/v1"}
    assert review(handler, admission_request("CREATE", "pods", pod(ownerReferences=[other]))).allowed
