"""Manifests of job trees: the rules that need one object alone (specification, section 9)."""

from tests.live.crds.cases.case_types import Accepted, Refused, RefusedByValidator
from tests.live.crds.manifests import Manifest, elastic, gang, run, stage, tree


def nested(*stages: Manifest) -> Manifest:
    return stage("all", resources=None, stages=list(stages))


ACCEPTED = [
    Accepted(
        "three stages in order",
        tree(
            stage("prepare", resources={"totalGPUs": 0, "pods": 4}),
            stage("train", after=["prepare"], malleable=elastic(8, 16, 8)),
            stage("evaluate", after=["train"]),
        ),
    ),
    Accepted("two stages in one gang", tree(stage("actor", **{"with": ["learner"]}), stage("learner"))),
    Accepted(
        "a tree in a tree",
        tree(nested(stage("one"), stage("two", after=["one"]))),
    ),
    Accepted("stages within the quota", tree(stage("one"), quota={"maxGPUs": 8, "maxGPUHours": 100})),
    Accepted(
        "64 stages, each after all earlier ones",
        tree(*(stage(f"s{n}", after=[f"s{m}" for m in range(n)]) for n in range(64)), quota={"maxGPUs": 8}),
    ),
    Accepted(
        "64 stages in one gang",
        tree(*(stage(f"s{n}", **{"with": [f"s{m}" for m in range(64) if m != n]}) for n in range(64))),
    ),
    Accepted(
        "64 stages with 64 stages each",
        tree(
            *(
                stage(
                    f"s{n}",
                    resources=None,
                    stages=[stage(f"t{m}", runtime={"checkpoint": "10m"}) for m in range(64)],
                )
                for n in range(64)
            )
        ),
    ),
    Accepted("names may repeat on another level", tree(stage("one", resources=None, stages=[stage("one")]))),
]

REFUSED = [
    Refused(
        "a run has not both resources and stages", run(stages=[stage("one")]), "spec", "resources.*stages"
    ),
    Refused("the list of stages is not empty", tree(), "spec", "stages"),
    Refused("at most 64 stages", tree(*(stage(f"s{n}") for n in range(65))), "spec.stages", "64"),
    Refused(
        "a stage has a name", tree(stage("one") | {"name": ""}), "spec.stages[0].name", "at least 1|match"
    ),
    Refused(
        "names of stages are unique", tree(stage("one"), stage("one")), "spec.stages", "[Dd]uplicate|unique"
    ),
    Refused(
        "a stage has resources or stages",
        tree(stage("one", resources=None)),
        "spec.stages[0]",
        "resources.*stages",
    ),
    Refused(
        "a stage has not both resources and stages",
        tree(stage("one", stages=[stage("two")])),
        "spec.stages[0]",
        "resources.*stages",
    ),
    Refused("after names an existing stage", tree(stage("one", after=["two"])), "spec", "after.*stage"),
    Refused("with names an existing stage", tree(stage("one", **{"with": ["two"]})), "spec", "with.*stage"),
    Refused("a stage is not after itself", tree(stage("one", after=["one"])), "spec", "itself|cycle"),
    Refused(
        "a stage is not after one it starts with",
        tree(stage("one"), stage("two", after=["one"], **{"with": ["one"]})),
        "spec",
        "cycle|cannot wait for a stage that it starts with",
    ),
    Refused(
        "names of stages are unique on the second level",
        tree(nested(stage("one"), stage("one"))),
        "spec.stages[0].stages",
        "[Dd]uplicate|unique",
    ),
    Refused(
        "at most two levels of stages",
        tree(stage("a", resources=None, stages=[stage("b", resources=None, stages=[stage("c")])])),
        "spec.stages[0].stages[0].stages",
        "unknown field",
    ),
    Refused(
        "a stage has no owner", tree(stage("one", owner="org:ai")), "spec.stages[0].owner", "unknown field"
    ),
    Refused(
        "a stage has no namespace",
        tree(stage("one", namespace="x")),
        "spec.stages[0].namespace",
        "unknown field",
    ),
    Refused(
        "a stage has no sponsors",
        tree(stage("one", funding={"sponsors": ["org:ai"]})),
        "spec.stages[0].funding.sponsors",
        "unknown field",
    ),
    Refused("a stage fits the quota", tree(stage("one"), quota={"maxGPUs": 4}), "spec", "quota|maxGPUs"),
    Refused(
        "a stage obeys the rules of a gang",
        tree(stage("one", resources=gang(100), malleable=elastic(96, 160, 32))),
        "spec.stages[0]",
        "step",
    ),
    Refused(
        "a stage on the second level obeys the rules of a gang",
        tree(stage("a", resources=None, stages=[stage("b", resources=gang(8, pods=2))])),
        "spec.stages[0].stages[0].resources",
        "pods.*totalGPUs",
    ),
]

REFUSED_BY_VALIDATOR = [
    RefusedByValidator(
        "no cycle of two stages",
        tree(stage("one", after=["two"]), stage("two", after=["one"])),
        "spec.stages",
        "cycle",
    ),
    RefusedByValidator(
        "no cycle of three stages",
        tree(stage("a", after=["c"]), stage("b", after=["a"]), stage("c", after=["b"])),
        "spec.stages",
        "cycle",
    ),
    RefusedByValidator(
        "after names an existing stage on the second level",
        tree(nested(stage("one", after=["two"]))),
        "spec.stages[0].stages[0].after[0]",
        "same level",
    ),
    RefusedByValidator(
        "with names an existing stage on the second level",
        tree(nested(stage("one", **{"with": ["two"]}))),
        "spec.stages[0].stages[0].with[0]",
        "same level",
    ),
    RefusedByValidator(
        "a stage on the second level fits the quota of the tree",
        tree(nested(stage("one")), quota={"maxGPUs": 4}),
        "spec.quota.maxGPUs",
        "needs 8 GPUs",
    ),
    RefusedByValidator(
        "the hours of a stage fit the quota",
        tree(stage("one", runtime={"maxDuration": "2h"}), quota={"maxGPUHours": 15}),
        "spec.quota.maxGPUHours",
        "8 GPUs × 2h",
    ),
]
