"""Manifests of Runs with one gang (specification, section 2; the rules of 4 and 8 for one object)."""

from typing import Any

from tests.live.crds.cases.case_types import Accepted, Refused, RefusedByValidator
from tests.live.crds.manifests import elastic, gang, run


def container(**fields: object) -> dict[str, Any]:
    return {"name": "main", "image": "example.com/train:1", **fields}


def template(metadata: object = None, **spec: object) -> dict[str, Any]:
    return {"metadata": metadata or {}, "spec": {"containers": [container()], **spec}}


ACCEPTED = [
    Accepted("no GPUs, but pods", run(resources={"totalGPUs": 0, "pods": 3})),
    Accepted("pods of one size", run(resources=gang(32, gpusPerPod=8))),
    Accepted("the last group may be smaller", run(resources=gang(40), locality={"groupGPUs": 16})),
    Accepted(
        "groups may be kept together",
        run(resources=gang(32), locality={"groupGPUs": 16, "allowCrossGroupSpread": False}),
    ),
    Accepted("a malleable run", run(resources=gang(128), malleable=elastic(96, 160, 32))),
    Accepted(
        "a malleable run in groups",
        run(
            resources=gang(128),
            locality={"groupGPUs": 32},
            malleable=elastic(96, 160, 32, desiredTotalGPUs=128),
        ),
    ),
    Accepted("the width may be the largest", run(resources=gang(16), malleable=elastic(8, 16, 8))),
    Accepted(
        "the least and the largest width may be equal", run(resources=gang(8), malleable=elastic(8, 8, 8))
    ),
    Accepted("the largest width need not be a whole number of steps", run(malleable=elastic(8, 20, 8))),
    Accepted("a gang of 16,384 GPUs in groups of 8", run(resources=gang(16_384), locality={"groupGPUs": 8})),
    Accepted("as many widths as a run may have", run(resources=gang(4096), malleable=elastic(1, 4096, 1))),
    Accepted("as many pods as a run may have", run(resources=gang(8192, gpusPerPod=1))),
    Accepted("spares", run(spares=1)),
    Accepted("spares as sparesPerGroup", run(sparesPerGroup=1)),
    Accepted("spares under both names with one value", run(spares=1, sparesPerGroup=1)),
    Accepted(
        "all fields of runtime",
        run(
            runtime={
                "checkpoint": "1h30m",
                "onNotice": "Checkpoint",
                "maxDuration": "7d",
                "maxRestarts": 0,
                "requeue": False,
                "onResize": "Rendezvous",
            }
        ),
    ),
    Accepted(
        "all fields of funding",
        run(
            funding={
                "allowBorrow": True,
                "maxBorrowGPUs": 0,
                "sponsors": ["org:vision", "org:speech"],
                "allowOpportunistic": True,
            }
        ),
    ),
    Accepted("a run that follows another", run(follow={"after": ["prepare"], "onUpstreamFailure": "fail"})),
    Accepted(
        "a template with several containers",
        run(
            template=template(
                containers=[
                    container(name=f"c{n}", resources={"requests": {"cpu": 1, "memory": "1Gi"}})
                    for n in range(16)
                ]
            )
        ),
    ),
    Accepted(
        "a template with fields of a pod", run(template=template({"labels": {"a": "b"}}, hostNetwork=True))
    ),
]

REFUSED = [
    Refused("owner is required", run(owner=None), "spec.owner", "[Rr]equired"),
    Refused("owner is a path", run(owner="org:"), "spec.owner", "should match"),
    Refused("a run has resources or stages", run(resources=None), "spec", "resources.*stages"),
    Refused(
        "GPUs are required",
        run(resources={"gpuType": "H100-80GB"}),
        "spec.resources.totalGPUs",
        "[Rr]equired",
    ),
    Refused("gpuType is required", run(resources={"totalGPUs": 8}), "spec.resources", "gpuType"),
    Refused("GPUs are not negative", run(resources=gang(-8)), "spec.resources.totalGPUs", "greater than.* 0"),
    Refused(
        "GPUs are an integer",
        run(resources=gang(8) | {"totalGPUs": 0.5}),
        "spec.resources.totalGPUs",
        "integer",
    ),
    Refused(
        "pods are only for runs without GPUs",
        run(resources=gang(8, pods=2)),
        "spec.resources",
        "pods.*totalGPUs",
    ),
    Refused(
        "a pod has at least one GPU",
        run(resources=gang(8, gpusPerPod=0)),
        "spec.resources.gpusPerPod",
        "greater than.* 1",
    ),
    Refused("the pod size divides the gang", run(resources=gang(12, gpusPerPod=8)), "spec", "gpusPerPod"),
    Refused(
        "the pod size divides the group",
        run(resources=gang(24, gpusPerPod=8), locality={"groupGPUs": 12}),
        "spec",
        "gpusPerPod",
    ),
    Refused(
        "the pod size divides the least width",
        run(resources=gang(24, gpusPerPod=8), malleable=elastic(12, 24, 12)),
        "spec",
        "gpusPerPod",
    ),
    Refused(
        "a group has at least one GPU",
        run(locality={"groupGPUs": 0}),
        "spec.locality.groupGPUs",
        "greater than.* 1",
    ),
    Refused(
        "the width is at least the least",
        run(resources=gang(64), malleable=elastic(96, 160, 32)),
        "spec",
        "min.*total",
    ),
    Refused(
        "the width is at most the largest",
        run(resources=gang(192), malleable=elastic(96, 160, 32)),
        "spec",
        "max|total",
    ),
    Refused(
        "the least width is not above the largest",
        run(resources=gang(32), malleable=elastic(32, 16, 8)),
        "spec",
        "min|max",
    ),
    Refused(
        "the width is a number of steps above the least",
        run(resources=gang(100), malleable=elastic(96, 160, 32)),
        "spec",
        "step",
    ),
    Refused(
        "the desired width is a number of steps above the least",
        run(resources=gang(128), malleable=elastic(96, 160, 32, desiredTotalGPUs=100)),
        "spec.malleable",
        "desired.*step|step.*desired",
    ),
    Refused(
        "the desired width is at least the least",
        run(resources=gang(128), malleable=elastic(96, 160, 32, desiredTotalGPUs=64)),
        "spec.malleable",
        "desired",
    ),
    Refused(
        "the desired width is at most the largest",
        run(resources=gang(128), malleable=elastic(96, 160, 32, desiredTotalGPUs=192)),
        "spec.malleable",
        "desired",
    ),
    Refused(
        "a step is at least 1 GPU",
        run(malleable=elastic(8, 8, 0)),
        "spec.malleable.stepGPUs",
        "greater than.* 1",
    ),
    Refused(
        "the least width is a number of whole groups",
        run(resources=gang(32), locality={"groupGPUs": 16}, malleable=elastic(8, 40, 8)),
        "spec",
        "groupGPUs",
    ),
    Refused(
        "a step is a number of whole groups",
        run(resources=gang(48), locality={"groupGPUs": 16}, malleable=elastic(16, 48, 8)),
        "spec",
        "groupGPUs",
    ),
    Refused(
        "widths are limited",
        run(resources=gang(8), malleable=elastic(1, 4097, 1)),
        "spec.malleable",
        "at most 4096 widths",
    ),
    Refused("pods are limited", run(resources=gang(8193, gpusPerPod=1)), "spec", "at most 8192 pods"),
    Refused(
        "pods at the largest width are limited",
        run(resources=gang(8), malleable=elastic(8, 20_000, 8), locality={"groupGPUs": 2}),
        "spec",
        "at most 8192 pods.*groupGPUs",
    ),
    Refused(
        "groups and their spares are limited",
        run(resources=gang(16_384), locality={"groupGPUs": 8}, spares=4),
        "spec",
        "at most 8192 pods, spares included",
    ),
    Refused("spares are limited", run(spares=65), "spec.spares", "64"),
    Refused("spares are not negative", run(spares=-1), "spec.spares", "greater than.* 0"),
    Refused("two names of spares must not differ", run(spares=1, sparesPerGroup=2), "spec", "spares"),
    Refused(
        "durations have units", run(runtime={"checkpoint": "10"}), "spec.runtime.checkpoint", "should match"
    ),
    Refused(
        "durations are positive",
        run(runtime={"maxDuration": "0s"}),
        "spec.runtime",
        "maxDuration|positive|zero",
    ),
    Refused(
        "units of a duration are in order",
        run(runtime={"maxDuration": "5m1h"}),
        "spec.runtime.maxDuration",
        "match",
    ),
    Refused(
        "onNotice is Ignore or Checkpoint",
        run(runtime={"onNotice": "Panic"}),
        "spec.runtime.onNotice",
        "Ignore.*Checkpoint",
    ),
    Refused(
        "onResize is Restart or Rendezvous",
        run(runtime={"onResize": "Panic"}),
        "spec.runtime.onResize",
        "Restart.*Rendezvous",
    ),
    Refused(
        "restarts are not negative", run(runtime={"maxRestarts": -1}), "spec.runtime.maxRestarts", "than.* 0"
    ),
    Refused(
        "sponsors are owners", run(funding={"sponsors": ["*"]}), "spec.funding.sponsors[0]", "should match"
    ),
    Refused("following no run", run(follow={"after": []}), "spec.follow.after", "1"),
    Refused("following itself", run(follow={"after": ["train"]}), "", "itself|cycle"),
    Refused(
        "onUpstreamFailure is wait or fail",
        run(follow={"after": ["a"], "onUpstreamFailure": "cry"}),
        "spec.follow.onUpstreamFailure",
        "wait.*fail",
    ),
    Refused(
        "a template has no finalizers",
        run(template=template({"finalizers": ["a.b/c"]})),
        "spec.template",
        "finalizers",
    ),
    Refused(
        "a template's metadata is a mapping", run(template=template("x")), "spec.template.metadata", "object"
    ),
    Refused(
        "a template names no node",
        run(template=template(nodeName="gpu-a-01")),
        "spec.template.spec",
        "nodeName",
    ),
    Refused(
        "a template has containers", run(template=template(containers=[])), "spec.template.spec", "container"
    ),
    *(
        Refused(
            f"GPUs of a pod as {kind} of {resource}",
            run(template=template(containers=[container(resources={kind: {resource: 8}})])),
            "spec.template.spec.containers[0].resources",
            "gpusPerPod",
        )
        for kind in ("requests", "limits")
        for resource in ("nvidia.com/gpu", "amd.com/gpu", "deviceclass.resource.kubernetes.io/gpu.nvidia.com")
    ),
    Refused("a run with one gang has no quota", run(quota={"maxGPUs": 8}), "spec", "quota"),
    Refused("a run has no unknown fields", run(priority=3), "spec.priority", "unknown field"),
    Refused(
        "resources have no unknown fields",
        run(resources=gang(8, gpus=8)),
        "spec.resources.gpus",
        "unknown field",
    ),
    Refused("runtime has no unknown fields", run(runtime={"ttl": "1h"}), "spec.runtime.ttl", "unknown field"),
]

REFUSED_BY_VALIDATOR = [
    RefusedByValidator(
        "containers have names", run(template=template(containers=[{"name": 8}])), "spec.template", "string"
    ),
]
