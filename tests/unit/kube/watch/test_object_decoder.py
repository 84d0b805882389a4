import json
from typing import Any

import pytest

from jobtree.api.schema.problems import InputError
from jobtree.kube.watch.object_decoder import (
    goes_well,
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
    named = {"name": "x", "namespace": "team", "uid": "u", "resourceVersion": "7"}
    return json.dumps({"metadata": {**named, **metadata, "managedFields": [{}]}, **fields}).encode()


def pod(owner: dict[str, Any] | None = None, **fields: object) -> bytes:
    owners = {"ownerReferences": [owner]} if owner else {}
    resources = {"requests": {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "8"}}
    spec = {"nodeName": "n", "containers": [{"name": "main", "resources": resources}]}
    return encode({"labels": {"a": "b"}, **owners}, spec=spec, **fields)


def test_a_pod_is_what_it_asks_for_and_how_it_fares() -> None:
    held = read_live_pod(pod(RUN, status={"phase": "Failed", "reason": "Evicted"}))
    assert (held.uid, held.name, held.namespace, held.resource_version) == ("u", "x", "team", "7")
    live = held.value
    assert (live.pod.node, live.pod.gpus, live.pod.cpu_milli, live.pod.memory_bytes) == ("n", 8, 500, 2**30)
    assert (live.phase, live.reason, live.run_uid, live.deleted) == ("Failed", "Evicted", "run-uid", None)
    assert live.labels == {"a": "b"}


def test_only_a_run_that_controls_it_owns_a_pod() -> None:
    assert read_live_pod(pod()).value.run_uid == ""
    assert read_live_pod(pod({**RUN, "controller": False})).value.run_uid == ""
    assert read_live_pod(pod({**RUN, "kind": "Job"})).value.run_uid == ""


def test_a_pod_that_is_going_says_since_when() -> None:
    going = encode({"deletionTimestamp": "2026-01-01T00:00:00Z"}, spec={"containers": None}, status=None)
    assert read_live_pod(going).value.deleted == "2026-01-01T00:00:00Z"


def test_a_pod_goes_well_while_nothing_has_to_be_done_about_it() -> None:
    def seen(owner: dict[str, Any] | None = RUN, **status: object) -> Any:  # noqa: ANN401
        return read_live_pod(pod(owner, status=status))

    waits = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    placed, elsewhere = seen(phase="Pending"), read_live_pod(encode({"ownerReferences": [RUN]}))
    assert goes_well(Change(None, placed))
    assert goes_well(Change(placed, seen(phase="Running")))
    assert not goes_well(Change(placed, seen(phase="Succeeded")))
    assert not goes_well(Change(placed, seen(phase="Failed")))
    assert not goes_well(Change(placed, None))
    assert not goes_well(Change(elsewhere, placed)), "the scheduler has given it a node"
    assert not goes_well(Change(None, seen(None, phase="Pending"))), "a stranger takes GPUs"
    assert not goes_well(Change(placed, seen(phase="Pending", containerStatuses=[waits])))
    going = {"ownerReferences": [RUN], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert not goes_well(Change(elsewhere, read_live_pod(encode(going))))


def test_a_pod_with_a_quantity_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="containers"):
        read_live_pod(encode({}, spec={"containers": [{"resources": {"requests": {"cpu": "many"}}}]}))


def test_a_node_keeps_its_annotations() -> None:
    held = read_live_node(
        encode(
            {"namespace": "", "annotations": {"why": "broken"}},
            status={"allocatable": {"nvidia.com/gpu": "8"}},
        )
    )
    assert (held.name, held.namespace, held.resource_version) == ("x", "", "7")
    assert held.value.node.gpus == 8
    assert held.value.annotations == {"why": "broken"}


def test_a_node_with_nulls_is_read_without_them() -> None:
    assert read_live_node(encode({"labels": None}, spec={"taints": None})).value.node.taints == ()


def test_the_four_kinds_are_read_with_their_rules() -> None:
    budget = encode({"namespace": ""}, spec={"owner": "org:ai", "envelopes": []})
    assert read_budget(budget).value.spec.owner == "org:ai"
    with pytest.raises(InputError, match="Run team/x"):
        read_run(encode({}, spec={"owner": "org:ai", "colour": "red"}))
    with pytest.raises(InputError, match=r"spec\.runRef"):
        read_lease(encode({"namespace": ""}, spec={}))


def test_a_run_with_nulls_is_read_without_them() -> None:
    spec = {"owner": "org:ai", "resources": {"gpuType": "H100-80GB", "totalGPUs": 8}}
    typed = {"apiVersion": "rq.davidlangworthy.io/v1", "kind": "Run"}
    plain = read_run(encode({}, spec=spec, **typed))
    assert plain.value.spec.resources is not None
    assert plain.value.spec.resources.total_gpus == 8
    assert read_run(encode({}, spec={**spec, "locality": None}, **typed)) == plain


def test_a_run_that_breaks_a_rule_is_refused_with_its_name() -> None:
    spec = {"owner": "org:ai", "resources": {"totalGPUs": 8}}
    with pytest.raises(InputError, match=r"Run team/x.*gpuType"):
        read_run(encode({}, spec=spec))
