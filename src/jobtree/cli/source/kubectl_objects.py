"""Reads objects of kinds that Jobtree does not watch, by running kubectl."""

import subprocess
from collections.abc import Iterable, Iterator

from jobtree.api.documents.document_stream import Document, read_documents
from jobtree.cli.shell.command_errors import CommandError, Exit

LIMIT_SECONDS = 120
MISSING = "kubectl was not found: install it, or give files with -f"


def get_objects(resources: Iterable[str]) -> Iterator[Document]:
    """Yields all objects of these resources (``jobs.batch``); skips resources that the cluster lacks."""
    available = set(_kubectl("api-resources", "--verbs=list", "-o", "name").decode().split())
    for resource in resources:
        if resource in available:
            yield from read_documents(
                _kubectl("get", resource, "-A", "-o", "json"), f"the cluster's {resource}"
            )


def _kubectl(*words: str) -> bytes:
    command = ("kubectl", *words)
    try:
        process = subprocess.run(command, capture_output=True, check=False, timeout=LIMIT_SECONDS)  # noqa: S603  fixed words
    except FileNotFoundError:
        raise CommandError(Exit.NOT_FOUND, MISSING) from None
    except subprocess.TimeoutExpired:
        raise CommandError(
            Exit.IO,
            f"'{' '.join(command)}' did not answer within {LIMIT_SECONDS} s: is the cluster reachable?",
        ) from None
    if process.returncode:
        message = process.stderr.decode(errors="replace").strip()
        raise CommandError(Exit.IO, f"'{' '.join(command)}' failed: {message}")
    return process.stdout
