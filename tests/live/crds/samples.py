"""Lists the samples that can be applied to a cluster, and their namespaces."""

from jobtree.api.documents.document_stream import read_documents
from tests.live.crds.installed_crds import CRD_DIRECTORY

SAMPLES_DIRECTORY = CRD_DIRECTORY.with_name("samples")
SAMPLE_FILES = sorted(  # reservations/ and cluster.yaml are state files, for --state
    path.relative_to(SAMPLES_DIRECTORY)
    for folder in ("budgets", "runs")
    for path in (SAMPLES_DIRECTORY / folder).glob("*.yaml")
)


def sample_namespaces() -> list[str]:
    """Returns the namespaces of the samples except for the default one; they must be created first."""
    documents = [
        document
        for file in SAMPLE_FILES
        for document in read_documents((SAMPLES_DIRECTORY / file).read_text(), str(file))
    ]
    return sorted(
        {document.body["metadata"].get("namespace", "default") for document in documents} - {"default"}
    )
