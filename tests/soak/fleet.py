"""Random documents of a small fleet, of Budgets, and of Runs, for simulated weeks."""

from random import Random
from typing import Any

from jobtree.api.documents.document_stream import Document
from jobtree.api.kinds.run import Run
from jobtree.api.schema.object_meta import SIM_GROUP
from jobtree.api.schema.quantities import HOUR, MINUTE
from jobtree.api.validation.object_parser import to_document
from tests.property.random_histories import (
    FleetNode,
    random_budget,
    random_fleet,
    random_job_tree,
    random_run,
)

DURATION = f"{SIM_GROUP}/duration"
Body = dict[str, Any]


def node_document(fleet_node: FleetNode) -> Body:
    node = fleet_node.node()
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": dict(node.labels)},
        "spec": {},
        "status": {"capacity": {"nvidia.com/gpu": str(node.gpus)}},
    }


def fleet_documents(dice: Random) -> list[Document]:
    return [Document(fleet_node.name, node_document(fleet_node)) for fleet_node in random_fleet(dice)]


def budget_document(dice: Random, owner: str) -> Document:
    return Document(f"budget of {owner}", to_document(random_budget(dice, owner)))


def run_document(dice: Random, name: str, after: str | None = None) -> Document:
    """Returns a Run. Four in five end after some hours; the others run until a user ends them."""
    body = as_submitted(random_run(dice, name))
    if dice.random() < 0.8:
        body["metadata"]["annotations"] = {DURATION: random_duration(dice)}
    if after is not None:
        body["spec"]["follow"] = {"after": [after], "onUpstreamFailure": dice.choice(("wait", "fail"))}
    return Document(name, body)


def tree_document(dice: Random, name: str) -> Document:
    body = as_submitted(random_job_tree(dice, name))
    stages = [stage["name"] for stage in body["spec"]["stages"]]
    body["metadata"]["annotations"] = {
        f"{DURATION}.{stage}": random_duration(dice) for stage in stages if dice.random() < 0.9
    }
    return Document(name, body)


def as_submitted(run: Run) -> Body:
    """Returns the document as a user writes it, without the fields that the API server adds."""
    body = to_document(run)
    body["metadata"] = {"name": run.metadata.name, "namespace": run.metadata.namespace}
    return body


def random_duration(dice: Random) -> str:
    return f"{dice.choice((10 * MINUTE, HOUR, 3 * HOUR, 8 * HOUR, 20 * HOUR)) // MINUTE}m"
