"""Runs of stages: SPEC section 9, as far as one object shows."""

from tests.live.cases.table import Accepted, Refused, RefusedByValidator
from tests.live.manifests import Manifest, elastic, gang, run, stage, tree


def nested(*stages: Manifest) -> Manifest:
    return stage("all", resources=None, stages=list(stages))


ACCEPTED = [
    Accepted(
        "prepare, train, evaluate",
        tree(
            stage("prepare", resources={"totalGPUs": 0, "pods": 4}),
            stage("train", after=["prepare"], malleable=elastic(8, 16, 8)),
            stage("evaluate", after=["train"]),
        ),
    ),
    Accepted("two stages are one gang", tree(stage("actor", **{"with": ["learner"]}), stage("learner"))),
    Accepted(
        "a tree of trees",
        tree(nested(stage("one"), stage("two", after=["one"]))),
    ),
    Accepted("what fits the quota", tree(stage("one"), quota={"maxGPUs": 8, "maxGPUHours": 100})),
    Accepted(
        "64 stages, each after all before it",
        tree(*(stage(f"s{n}", after=[f"s{m}" for m in range(n)]) for n in range(64)), quota={"maxGPUs": 8}),
    ),
    Accepted(
        "64 stages that are one gang",
        tree(*(stage(f"s{n}", **{"with": [f"s{m}" for m in range(64) if m != n]}) for n in range(64))),
    ),
    Accepted(
        "64 stages of 64 stages",
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
    Accepted("names repeat on other levels", tree(stage("one", resources=None, stages=[stage("one")]))),
]

REFUSED = [
    Refused("a gang or a tree, not both", run(stages=[stage("one")]), "spec", "resources.*stages"),
    Refused("a tree has stages", tree(), "spec", "stages"),
    Refused("65 stages", tree(*(stage(f"s{n}") for n in range(65))), "spec.stages", "64"),
    Refused(
        "stages have names", tree(stage("one") | {"name": ""}), "spec.stages[0].name", "at least 1|match"
    ),
    Refused("names are unique", tree(stage("one"), stage("one")), "spec.stages", "[Dd]uplicate|unique"),
    Refused(
        "a stage is a gang or a tree",
        tree(stage("one", resources=None)),
        "spec.stages[0]",
        "resources.*stages",
    ),
    Refused(
        "a stage is not both",
        tree(stage("one", stages=[stage("two")])),
        "spec.stages[0]",
        "resources.*stages",
    ),
    Refused("after a stage that exists", tree(stage("one", after=["two"])), "spec", "after.*stage"),
    Refused("with a stage that exists", tree(stage("one", **{"with": ["two"]})), "spec", "with.*stage"),
    Refused("not after itself", tree(stage("one", after=["one"])), "spec", "itself|cycle"),
    Refused(
        "not after one it starts with",
        tree(stage("one"), stage("two", after=["one"], **{"with": ["one"]})),
        "spec",
        "cycle|after.*with|with.*after",
    ),
    Refused(
        "names are unique below",
        tree(nested(stage("one"), stage("one"))),
        "spec.stages[0].stages",
        "[Dd]uplicate|unique",
    ),
    Refused(
        "three levels",
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
    Refused(
        "what can never fit the quota", tree(stage("one"), quota={"maxGPUs": 4}), "spec", "quota|maxGPUs"
    ),
    Refused(
        "the rules of a gang hold for a stage",
        tree(stage("one", resources=gang(100), malleable=elastic(96, 160, 32))),
        "spec.stages[0]",
        "step",
    ),
    Refused(
        "and for a stage of a stage",
        tree(stage("a", resources=None, stages=[stage("b", resources=gang(8, pods=2))])),
        "spec.stages[0].stages[0].resources",
        "pods.*totalGPUs",
    ),
]

REFUSED_BY_VALIDATOR = [
    RefusedByValidator(
        "no cycle",
        tree(stage("one", after=["two"]), stage("two", after=["one"])),
        "spec.stages",
        "cycle",
    ),
    RefusedByValidator(
        "no cycle of three",
        tree(stage("a", after=["c"]), stage("b", after=["a"]), stage("c", after=["b"])),
        "spec.stages",
        "cycle",
    ),
    RefusedByValidator(
        "after a stage that exists, below",
        tree(nested(stage("one", after=["two"]))),
        "spec.stages[0].stages[0].after[0]",
        "same level",
    ),
    RefusedByValidator(
        "with a stage that exists, below",
        tree(nested(stage("one", **{"with": ["two"]}))),
        "spec.stages[0].stages[0].with[0]",
        "same level",
    ),
    RefusedByValidator(
        "a stage below that can never fit the quota above",
        tree(nested(stage("one")), quota={"maxGPUs": 4}),
        "spec.quota.maxGPUs",
        "needs 8 GPUs",
    ),
    RefusedByValidator(
        "hours that can never fit the quota",
        tree(stage("one", runtime={"maxDuration": "2h"}), quota={"maxGPUHours": 15}),
        "spec.quota.maxGPUHours",
        "8 GPUs × 2h",
    ),
]
