"""Reads manifests from files, sets their namespaces, and creates or replaces objects in a cluster."""

import sys
from collections.abc import Iterable
from pathlib import Path

from jobtree.api.documents.document_stream import Document, read_documents
from jobtree.api.kinds.policy import is_sim_document
from jobtree.api.schema.object_meta import GROUP
from jobtree.api.schema.problems import InputError
from jobtree.cli.shell.command_errors import CommandError, Exit
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.source.session import cluster_name
from jobtree.snapshot.object_documents import CLUSTER_SCOPED

OWN_KINDS = frozenset({"Node", "Pod", "Budget", "Run", "Lease", "Reservation"})


def read_manifests(paths: Iterable[str], settings: CommandOptions) -> list[Document]:
    """Returns all documents of these files (``-``: stdin), each with its namespace."""
    documents = [document for path in paths for document in _read(path)]
    for document in documents:
        if is_sim_document(document.body):
            kind = document.body.get("kind")
            raise InputError(document.where, [f"a {kind} belongs in the state file: edit it there"])
        _set_namespace(document, settings.namespace)
    if settings.live:
        namespace = cluster_name(settings).default_namespace()
        for document in documents:
            _set_default_namespace(document, namespace)
    return documents


def read_file(path: str) -> tuple[str, bytes]:
    """Returns the name of a file (``-``: stdin) for messages, and its contents."""
    try:
        if path == "-":
            return "stdin", sys.stdin.buffer.read()
        return path, Path(path).read_bytes()
    except FileNotFoundError:
        raise CommandError(Exit.NOT_FOUND, f"there is no file {path}") from None
    except OSError as error:
        raise CommandError(Exit.USAGE, f"cannot read {path}: {error.strerror}") from None


def _read(path: str) -> list[Document]:
    name, text = read_file(path)
    refuse_batch_script(name, text)
    documents = read_documents(text, name)
    for document in documents:
        refuse_other_workload(document)
    if not documents:
        raise CommandError(Exit.USAGE, f"{name} contains no objects: it must contain Runs, Budgets or Nodes")
    return documents


def refuse_batch_script(name: str, text: bytes) -> None:
    """Raises CommandError for a shell script, which is no manifest."""
    if text.startswith(b"#!"):
        convert = f"'kubectl runs import slurm {name} | kubectl runs submit -f -' converts and submits it"
        raise CommandError(Exit.USAGE, f"{name} is a script, not a manifest: {convert}")


def refuse_other_workload(document: Document) -> None:
    """Raises CommandError for a job or a queue of Kueue, which can be imported."""
    kind = document.body.get("kind")
    if kind in OWN_KINDS or GROUP in str(document.body.get("apiVersion")):
        return
    from jobtree.importers.kueue.kueue_kinds import KINDS

    if kind in KINDS:
        file = document.where.partition(",")[0]
        convert = f"'kubectl runs import kueue -f {file} | kubectl runs submit -f -' converts and submits it"
        raise CommandError(Exit.USAGE, f"{document.where}: a {kind} is not a Run: {convert}")


def _set_namespace(document: Document, namespace: str | None) -> None:
    """Sets the namespace of -n on a namespaced object; refuses an object that names another one."""
    metadata = document.body.get("metadata")
    if not namespace or not isinstance(metadata, dict) or document.body.get("kind") in CLUSTER_SCOPED:
        return
    if not metadata.get("namespace"):
        metadata["namespace"] = namespace
    elif metadata["namespace"] != namespace:
        rule = f"differs from --namespace {namespace}: remove one of the two"
        raise InputError(document.where, [f"metadata.namespace: {metadata['namespace']} {rule}"])


def _set_default_namespace(document: Document, namespace: str) -> None:
    """Sets the namespace of a namespaced object that names none."""
    metadata = document.body.get("metadata")
    if isinstance(metadata, dict) and document.body.get("kind") not in CLUSTER_SCOPED:
        metadata["namespace"] = metadata.get("namespace") or namespace


def following(documents: list[Document], after: Iterable[str]) -> list[Document]:
    """Makes the Runs among the documents also follow the Runs ``after``."""
    names = list(after)
    for document in documents:
        spec = document.body.get("spec")
        if names and document.body.get("kind") == "Run" and isinstance(spec, dict):
            follow = spec.setdefault("follow", {})
            if isinstance(follow, dict):
                follow["after"] = [*dict.fromkeys([*follow.get("after", ()), *names])]
    return documents
