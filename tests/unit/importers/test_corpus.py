"""Typical scripts and manifests, and the result of each conversion: NAME.expected beside NAME.

``pytest tests/unit/importers/test_corpus.py --rewrite`` writes what came out, for a human to review.
"""

from pathlib import Path
from typing import Any

import pytest

from jobtree.api.documents.document_stream import dump_yaml, read_documents
from jobtree.api.schema.problems import InputError
from jobtree.api.validation.object_parser import parse_object
from jobtree.importers.container_text import escape_for_kubelet
from jobtree.importers.conversion import Converted
from jobtree.importers.kueue.kueue_importer import convert_kueue
from jobtree.importers.slurm.prologue import PROLOGUE
from jobtree.importers.slurm.script_importer import convert_slurm
from jobtree.importers.slurm.script_request import CallerOptions
from jobtree.importers.slurm.site_mapping import SlurmMap, read_map

CORPUS = Path(__file__).parent / "corpus"
SCRIPTS = sorted((CORPUS / "slurm").glob("*.sh"))
MANIFESTS = sorted((CORPUS / "kueue").glob("*.yaml"))
SITE = CORPUS / "slurm" / "site.yaml"


def site() -> SlurmMap:
    return read_map(SITE.name, SITE.read_bytes())


def slurm(path: Path) -> Converted:
    return convert_slurm([(path.name, path.read_bytes())], CallerOptions(site(), namespace="lab"))


def kueue(path: Path) -> Converted:
    return convert_kueue(read_documents(path.read_bytes(), path.name), {})


def conversion_text(path: Path) -> str:
    """Returns the whole result of a conversion, except for the prologue, which is always the same."""
    try:
        converted = slurm(path) if path.suffix == ".sh" else kueue(path)
    except InputError as refused:
        return f"error: {refused}\n"
    documents = [_without_prologue(document) for document in converted.documents]
    lines = [
        *(f"label: {line}" for line in converted.labels),
        *(f"remark: {remark}" for remark in converted.remarks),
    ]
    return (dump_yaml(documents) if documents else "") + "".join(f"{line}\n" for line in lines)


def _without_prologue(value: Any) -> Any:  # noqa: ANN401  any part of a document
    if isinstance(value, dict):
        return {key: _without_prologue(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_prologue(item) for item in value]
    return "(the prologue)" if value == escape_for_kubelet(PROLOGUE) else value


@pytest.mark.parametrize("path", [pytest.param(path, id=path.name) for path in [*SCRIPTS, *MANIFESTS]])
def test_conversion_gives_the_expected_result(path: Path, request: pytest.FixtureRequest) -> None:
    expected, observed = path.with_name(f"{path.name}.expected"), conversion_text(path)
    if request.config.getoption("--rewrite"):
        expected.write_text(observed, encoding="utf-8")
    assert observed == expected.read_text(encoding="utf-8"), "if this is right: --rewrite, and review"


def test_corpus_has_the_documented_size() -> None:
    assert len(SCRIPTS) >= 40
    assert len(MANIFESTS) >= 20
    expected = {path.name.removesuffix(".expected") for path in CORPUS.rglob("*.expected")}
    assert expected == {path.name for path in [*SCRIPTS, *MANIFESTS]}


@pytest.mark.parametrize("path", [pytest.param(path, id=path.name) for path in SCRIPTS])
def test_converted_documents_are_written_and_read_back(path: Path) -> None:
    try:
        converted = slurm(path)
    except InputError:
        return
    text = dump_yaml(converted.documents)
    reread = [document.body for document in read_documents(text, "reread")]
    assert reread == converted.documents
    for body in reread:
        parse_object(body, "reread")
