"""The samples that can be applied to a cluster, and the namespaces that they live in."""

from jobtree.api.documents.document_stream import read_documents
from tests.live.definitions import DIRECTORY

SAMPLES = DIRECTORY.with_name("samples")
FILES = sorted(  # reservations/ and cluster.yaml are state files, for --state
    path.relative_to(SAMPLES) for folder in ("budgets", "runs") for path in (SAMPLES / folder).glob("*.yaml")
)


def sample_namespaces() -> list[str]:
    """The namespaces, apart from the default one, that must be there before the samples are applied."""
    documents = [one for file in FILES for one in read_documents((SAMPLES / file).read_text(), str(file))]
    return sorted({one.body["metadata"].get("namespace", "default") for one in documents} - {"default"})
