"""The samples, applied as the documentation tells people to."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobtree.api.documents.document_stream import read_documents
from tests.live.control_plane import ControlPlane
from tests.live.samples import FILES, SAMPLES, sample_namespaces


@pytest.fixture(scope="module")
def cluster(jobtree_cluster: ControlPlane) -> Iterator[ControlPlane]:
    """The cluster, with the namespaces that the samples live in; what was applied is removed in the end."""
    for namespace in sample_namespaces():
        jobtree_cluster.kubectl("create", "namespace", namespace)
    yield jobtree_cluster
    for file in FILES:
        jobtree_cluster.kubectl("delete", "-f", str(SAMPLES / file), "--timeout=120s")
    # The namespaces stay: removing one takes a controller, and this cluster may have none.


@pytest.mark.parametrize("file", FILES, ids=str)
def test_a_sample_can_be_applied(cluster: ControlPlane, file: Path) -> None:
    applied = cluster.kubectl("apply", "-f", str(SAMPLES / file))
    assert applied.stderr == ""
    before = versions(cluster, file)
    cluster.kubectl("apply", "-f", str(SAMPLES / file))
    assert versions(cluster, file) == before


def versions(cluster: ControlPlane, file: Path) -> str:
    """Changes with the least change to any object of the file."""
    path = "jsonpath={..metadata.resourceVersion}"
    return cluster.kubectl("get", "-f", str(SAMPLES / file), "-o", path).stdout


@pytest.mark.parametrize("file", [file for file in FILES if file.parent.name == "runs"], ids=str)
def test_the_template_of_a_sample_makes_pods(cluster: ControlPlane, file: Path) -> None:
    for _, body in read_documents((SAMPLES / file).read_text(), str(file)):
        if template := body["spec"].get("template"):
            labelled = {"metadata": {"labels": {"run": "sample"}}, **template}
            pods = {
                "apiVersion": "v1",
                "kind": "PodTemplate",
                "metadata": {"name": "x"},
                "template": labelled,
            }
            where = "/api/v1/namespaces/default/podtemplates?dryRun=All&fieldValidation=Strict"
            answer = cluster.rest.post(where, pods)
            assert answer.accepted, answer.message


def test_there_are_samples_to_apply() -> None:
    assert {file.parent.name for file in FILES} >= {"budgets", "runs"}
