import json
from typing import Any

import pytest

from jobtree.api.schema.problems import InputError
from jobtree.kube.watch.object_decoder import (
    needs_no_action,
    read_budget,
    read_lease,
    read_live_node,
    read_live_pod,
    read_run,
)
from jobtree.kube.watch.object_store import Change

RUN = {
    "apiVersion": "rq.davidlangworthy.io/v1",
    "kind": "Run",
    "name": "r",
    "uid": "run-uid",
    "controller": True,
}


def encode(metadata: dict[str, Any], **fields: object) -> bytes:
    defaults = {"name": "x", "namespace": "team", "uid": "u", "resourceVersion": "7"}
    return json.dumps({"metadata": {**defaults, **metadata, "managedFields": [{}]}, **fields}).encode()


def pod(owner: dict[str, Any] | None = None, **fields: object) -> bytes:
    owners = {"ownerReferences": [owner]} if owner else {}
    resources = {"requests": {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "8"}}
    spec = {"nodeName": "n", "containers": [{"name": "main", "resources": resources}]}
    return encode({"labels": {"a": "b"}, **owners}, spec=spec, **fields)


def test_pod_is_read_with_its_requests_and_status() -> None:
    stored = read_live_pod(pod(RUN, status={"phase": "Failed", "reason": "Evicted"}))
    assert (stored.uid, stored.name, stored.namespace, stored.resource_version) == ("u", "x", "team", "7")
    live = stored.value
    assert (live.pod.node, live.pod.gpus, live.pod.cpu_milli, live.pod.memory_bytes) == ("n", 8, 500, 2**30)
    assert (live.phase, live.reason, live.run_uid, live.deleted) == ("Failed", "Evicted", "run-uid", None)
    assert live.labels == {"a": "b"}


def test_pod_has_a_run_only_when_the_run_controls_it() -> None:
    assert read_live_pod(pod()).value.run_uid == ""
    assert read_live_pod(pod({**RUN, "controller": False})).value.run_uid == ""
    assert read_live_pod(pod({**RUN, "kind": "Job"})).value.run_uid == ""


def test_pod_has_its_deletion_timestamp() -> None:
    deleted = encode({"deletionTimestamp": "2026-01-01T00:00:00Z"}, spec={"containers": None}, status=None)
    assert read_live_pod(deleted).value.deleted == "2026-01-01T00:00:00Z"


def test_pod_needs_no_action_while_it_starts_and_runs() -> None:
    def live(owner: dict[str, Any] | None = RUN, **status: object) -> Any:  # noqa: ANN401
        return read_live_pod(pod(owner, status=status))

    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    placed, without_node = live(phase="Pending"), read_live_pod(encode({"ownerReferences": [RUN]}))
    assert needs_no_action(Change(None, placed))
    assert needs_no_action(Change(placed, live(phase="Running")))
    assert not needs_no_action(Change(placed, live(phase="Succeeded")))
    assert not needs_no_action(Change(placed, live(phase="Failed")))
    assert not needs_no_action(Change(placed, None))
    assert not needs_no_action(Change(without_node, placed)), "the scheduler has given it a node"
    assert not needs_no_action(Change(None, live(None, phase="Pending"))), "a foreign pod takes GPUs"
    assert not needs_no_action(Change(placed, live(phase="Pending", containerStatuses=[waiting])))
    deleted = {"ownerReferences": [RUN], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert not needs_no_action(Change(without_node, read_live_pod(encode(deleted))))


def test_pod_with_an_invalid_quantity_is_refused() -> None:
    with pytest.raises(InputError, match="containers"):
        read_live_pod(encode({}, spec={"containers": [{"resources": {"requests": {"cpu": "many"}}}]}))


def test_node_keeps_its_annotations() -> None:
    stored = read_live_node(
        encode(
            {"namespace": "", "annotations": {"why": "broken"}},
            status={"allocatable": {"nvidia.com/gpu": "8"}},
        )
    )
    assert (stored.name, stored.namespace, stored.resource_version) == ("x", "", "7")
    assert stored.value.node.gpus == 8
    assert stored.value.annotations == {"why": "broken"}


def test_nulls_of_a_node_count_as_absent() -> None:
    assert read_live_node(encode({"labels": None}, spec={"taints": None})).value.node.taints == ()


def test_object_that_breaks_its_schema_is_refused() -> None:
    budget = encode({"namespace": ""}, spec={"owner": "org:ai", "envelopes": []})
    assert read_budget(budget).value.spec.owner == "org:ai"
    with pytest.raises(InputError, match="Run team/x"):
        read_run(encode({}, spec={"owner": "org:ai", "colour": "red"}))
    with pytest.raises(InputError, match=r"spec\.runRef"):
        read_lease(encode({"namespace": ""}, spec={}))


def test_nulls_of_a_run_count_as_absent() -> None:
    spec = {"owner": "org:ai", "resources": {"gpuType": "H100-80GB", "totalGPUs": 8}}
    typed = {"apiVersion": "rq.davidlangworthy.io/v1", "kind": "Run"}
    plain = read_run(encode({}, spec=spec, **typed))
    assert plain.value.spec.resources is not None
    assert plain.value.spec.resources.total_gpus == 8
    assert read_run(encode({}, spec={**spec, "locality": None}, **typed)) == plain


def test_refusal_of_a_run_names_it_and_the_field() -> None:
    spec = {"owner": "org:ai", "resources": {"totalGPUs": 8}}
    with pytest.raises(InputError, match=r"Run team/x.*gpuType"):
        read_run(encode({}, spec=spec))
