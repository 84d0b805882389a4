"""The rules of the policies in Python: who passes, and who is refused. The attacks are live tests."""

import asyncio
from typing import Any

import pytest

from jobtree.kube.http.async_client import AsyncClient
from jobtree.manager.webhook.admission_review import UserInfo
from jobtree.manager.webhook.pod_policies import GpuClaimPolicy, GpuPodPolicy, PodPolicy
from jobtree.manager.webhook.write_policies import CONTROLLERS, RecordPolicy, RunPolicy, spend_by
from tests.unit.manager.webhook.asking import JOBTREE, Document, ask, question, run_document
from tests.unit.manager.webhook.server import FakeServer

NAMESPACE = "jobtree-system"
GLASS = ("jobtree:break-glass",)
RUN_OWNER = {
    "apiVersion": "rq.davidlangworthy.io/v1",
    "kind": "Run",
    "name": "r",
    "uid": "u",
    "controller": True,
}


async def anybody(_: UserInfo, __: str) -> bool:
    return True


async def nobody(_: UserInfo, __: str) -> bool:
    return False


def pod(containers: list[Document] | None = None, **metadata: object) -> Document:
    spec = {"containers": containers or [{"name": "main"}]}
    return {"metadata": {"name": "p", "namespace": "team", **metadata}, "spec": spec}


GPU_POD = pod([{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}])
CLAIM = {"metadata": {"name": "c", "namespace": "team"}, "spec": {"resourceClassName": "gpu.nvidia.com"}}


@pytest.mark.parametrize(
    ("judge", "asked", "passes"),
    [
        (RecordPolicy(NAMESPACE).review, ("UPDATE", "runs", run_document()), (True, True, True)),
        (RunPolicy(NAMESPACE, nobody).review, ("CREATE", "runs", run_document()), (True, True, False)),
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
def test_who_passes(judge: Any, asked: tuple[str, str, Document], passes: tuple[bool, ...]) -> None:  # noqa: ANN401
    assert not ask(judge, question(*asked)).allowed
    assert ask(judge, question(*asked)).code == 403
    jobtree, controllers, glass = passes
    assert ask(judge, question(*asked, user=JOBTREE)).allowed == jobtree
    for controller in CONTROLLERS:
        assert ask(judge, question(*asked, user=controller)).allowed == controllers
    assert ask(judge, question(*asked, groups=GLASS)).allowed == glass
    assert not ask(judge, question(*asked, user=JOBTREE.replace("jobtree-system", "mine"))).allowed


def test_spending_is_asked_for_with_all_that_is_known_of_the_user() -> None:
    class Allowing(FakeServer):
        def _post(self, path: str, body: bytes | None) -> Document:
            assert path.endswith("/subjectaccessreviews")
            assert b'"extra":{"scope":["x"]}' in (body or b"")
            assert b'"name":"org:a"' in (body or b"")
            assert b'"groups":["g"]' in (body or b"")
            return {"status": {"allowed": True}}

    user = UserInfo(username="ann", groups=("g",), uid="7", extra={"scope": ["x"]})
    assert asyncio.run(spend_by(AsyncClient(Allowing()))(user, "org:a"))


def test_spending_is_asked_for_where_the_spec_changes() -> None:
    judge = RunPolicy(NAMESPACE, nobody).review
    edited = run_document(spares=1)
    assert "you may not charge o" in ask(judge, question("UPDATE", "runs", edited, run_document())).message
    labelled = run_document()
    labelled["metadata"]["labels"] = {"a": "b"}
    assert ask(judge, question("UPDATE", "runs", labelled, run_document())).allowed
    assert ask(judge, question("DELETE", "runs", None, run_document())).allowed, "cancelling asks for nothing"


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
def test_no_pod_is_orphaned(options: Document, allowed: bool) -> None:
    judge = RunPolicy(NAMESPACE, anybody).review
    said = ask(judge, question("DELETE", "runs", None, run_document(), options=options))
    assert said.allowed == allowed


def test_metadata_has_its_bounds() -> None:
    judge = RunPolicy(NAMESPACE, anybody).review
    for field, value in (("labels", {str(n): "" for n in range(65)}), ("finalizers", list("f" * 65))):
        forged = run_document()
        forged["metadata"][field] = value
        said = ask(judge, question("CREATE", "runs", forged))
        assert (said.code, f"metadata.{field}: 65 are too many" in said.message) == (422, True)
    forged = run_document("n" * 241)
    assert "at most 240 characters" in ask(judge, question("CREATE", "runs", forged)).message
    assert ask(judge, question("UPDATE", "runs", forged, forged)).allowed, "what has its name keeps it"


def test_a_rank_keeps_what_jobtree_wrote_on_it() -> None:
    judge = PodPolicy(NAMESPACE).review
    labels = {"rq.davidlangworthy.io/run": "r", "mine": "x"}
    annotations = {"rq.davidlangworthy.io/risk": "[]"}
    rank = pod(ownerReferences=[RUN_OWNER], labels=labels, annotations=annotations)

    def changed(**metadata: object) -> bool:
        after = {**rank, "metadata": {**rank["metadata"], **metadata}}
        return ask(judge, question("UPDATE", "pods", after, rank)).allowed

    assert changed(labels={**labels, "mine": "y"})
    assert not changed(labels={"mine": "x"})
    assert not changed(labels={**labels, "rq.davidlangworthy.io/run": "s"})
    assert not changed(annotations={})
    assert not changed(annotations={"rq.davidlangworthy.io/risk": "[1]"})
    assert not changed(ownerReferences=[])
    assert not changed(ownerReferences=[{**RUN_OWNER, "controller": False}])


def test_a_run_of_another_kind_of_run_is_nobodys_business() -> None:
    judge = PodPolicy(NAMESPACE).review
    other = {**RUN_OWNER, "apiVersion": "tekton.example/v1"}
    assert ask(judge, question("CREATE", "pods", pod(ownerReferences=[other]))).allowed
