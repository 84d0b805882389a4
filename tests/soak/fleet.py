"""What a soak starts from: the documents of a small fleet and of the teams that share it."""

from random import Random
from typing import Any

from jobtree.api.documents.document_stream import Document
from jobtree.api.kinds.run import Run
from jobtree.api.schema.object_meta import SIM_GROUP
from jobtree.api.schema.quantities import HOUR, MINUTE
from jobtree.api.validation.object_parser import to_document
from tests.property.scenes import NodeSketch, some_budget, some_fleet, some_run, some_tree

DURATION = f"{SIM_GROUP}/duration"
Body = dict[str, Any]


def node_document(sketch: NodeSketch) -> Body:
    node = sketch.node()
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": dict(node.labels)},
        "spec": {},
        "status": {"capacity": {"nvidia.com/gpu": str(node.gpus)}},
    }


def fleet_documents(dice: Random) -> list[Document]:
    return [Document(sketch.name, node_document(sketch)) for sketch in some_fleet(dice)]


def budget_document(dice: Random, owner: str) -> Document:
    return Document(f"budget of {owner}", to_document(some_budget(dice, owner)))


def run_document(dice: Random, name: str, after: str | None = None) -> Document:
    """A Run whose work mostly takes some hours; the others run until somebody ends them."""
    body = submitted(some_run(dice, name))
    if dice.random() < 0.8:
        body["metadata"]["annotations"] = {DURATION: some_duration(dice)}
    if after is not None:
        body["spec"]["follow"] = {"after": [after], "onUpstreamFailure": dice.choice(("wait", "fail"))}
    return Document(name, body)


def tree_document(dice: Random, name: str) -> Document:
    body = submitted(some_tree(dice, name))
    stages = [stage["name"] for stage in body["spec"]["stages"]]
    body["metadata"]["annotations"] = {
        f"{DURATION}.{stage}": some_duration(dice) for stage in stages if dice.random() < 0.9
    }
    return Document(name, body)


def submitted(run: Run) -> Body:
    """As a user writes it: without what the API server adds."""
    body = to_document(run)
    body["metadata"] = {"name": run.metadata.name, "namespace": run.metadata.namespace}
    return body


def some_duration(dice: Random) -> str:
    return f"{dice.choice((10 * MINUTE, HOUR, 3 * HOUR, 8 * HOUR, 20 * HOUR)) // MINUTE}m"
