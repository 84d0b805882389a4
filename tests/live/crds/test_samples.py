"""The samples of config/samples, applied as the documentation shows."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobtree.api.documents.document_stream import read_documents
from tests.live.cluster.control_plane import ControlPlane
from tests.live.crds.samples import SAMPLE_FILES, SAMPLES_DIRECTORY, sample_namespaces


@pytest.fixture(scope="module")
def cluster(jobtree_cluster: ControlPlane) -> Iterator[ControlPlane]:
    """The shared cluster with the namespaces of the samples; deletes the samples at the end."""
    for namespace in sample_namespaces():
        jobtree_cluster.kubectl("create", "namespace", namespace)
    yield jobtree_cluster
    for file in SAMPLE_FILES:
        jobtree_cluster.kubectl("delete", "-f", str(SAMPLES_DIRECTORY / file), "--timeout=120s")
    # The namespaces stay, since only a controller can delete one, and this cluster may have none.


@pytest.mark.parametrize("file", SAMPLE_FILES, ids=str)
def test_sample_can_be_applied(cluster: ControlPlane, file: Path) -> None:
    applied = cluster.kubectl("apply", "-f", str(SAMPLES_DIRECTORY / file))
    assert applied.stderr == ""
    before = versions(cluster, file)
    cluster.kubectl("apply", "-f", str(SAMPLES_DIRECTORY / file))
    assert versions(cluster, file) == before


def versions(cluster: ControlPlane, file: Path) -> str:
    """Returns the resource versions of all objects of a file."""
    path = "jsonpath={..metadata.resourceVersion}"
    return cluster.kubectl("get", "-f", str(SAMPLES_DIRECTORY / file), "-o", path).stdout


@pytest.mark.parametrize("file", [file for file in SAMPLE_FILES if file.parent.name == "runs"], ids=str)
def test_template_of_a_sample_is_a_valid_pod_template(cluster: ControlPlane, file: Path) -> None:
    for _, body in read_documents((SAMPLES_DIRECTORY / file).read_text(), str(file)):
        if template := body["spec"].get("template"):
            labelled = {"metadata": {"labels": {"run": "sample"}}, **template}
            pods = {
                "apiVersion": "v1",
                "kind": "PodTemplate",
                "metadata": {"name": "x"},
                "template": labelled,
            }
            path = "/api/v1/namespaces/default/podtemplates?dryRun=All&fieldValidation=Strict"
            answer = cluster.rest.post(path, pods)
            assert answer.accepted, answer.message


def test_samples_include_budgets_and_runs() -> None:
    assert {file.parent.name for file in SAMPLE_FILES} >= {"budgets", "runs"}
