"""Asking kubectl: objects of kinds that Jobtree itself does not watch."""

import subprocess
from collections.abc import Iterable, Iterator

from jobtree.api.documents.document_stream import Document, read_documents
from jobtree.cli.shell.command_errors import CommandError, Exit

LIMIT_SECONDS = 120
MISSING = "kubectl was not found: install it, or give files with -f"


def get_objects(resources: Iterable[str]) -> Iterator[Document]:
    """All objects of these resources (``jobs.batch``), as far as the cluster has such."""
    known = set(_ask("api-resources", "--verbs=list", "-o", "name").decode().split())
    for resource in resources:
        if resource in known:
            yield from read_documents(_ask("get", resource, "-A", "-o", "json"), f"the cluster's {resource}")


def _ask(*words: str) -> bytes:
    command = ("kubectl", *words)
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=LIMIT_SECONDS)  # noqa: S603  fixed words
    except FileNotFoundError:
        raise CommandError(Exit.NOT_FOUND, MISSING) from None
    except subprocess.TimeoutExpired:
        raise CommandError(
            Exit.IO,
            f"'{' '.join(command)}' has not answered in {LIMIT_SECONDS} seconds: is the cluster reachable?",
        ) from None
    if done.returncode:
        told = done.stderr.decode(errors="replace").strip()
        raise CommandError(Exit.IO, f"'{' '.join(command)}' failed: {told}")
    return done.stdout
