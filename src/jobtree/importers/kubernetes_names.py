"""Converts names of other schedulers to names that Kubernetes and Jobtree accept."""

import re
from collections.abc import Container

MAX_LENGTH = 50  # leaves room for the numbers and stages that Jobtree adds to a name
_OTHER = re.compile(r"[^a-z0-9]+")
_NOT_IN_FLAVORS = re.compile(r"[^A-Za-z0-9._-]+")


def short_name(text: str, otherwise: str = "job") -> str:
    """``My_Job (v2)`` is ``my-job-v2``."""
    return _OTHER.sub("-", text.lower()).strip("-")[:MAX_LENGTH].strip("-") or otherwise


def flavor_name(text: str) -> str:
    """A value for the node label gpu.flavor."""
    return _NOT_IN_FLAVORS.sub("-", text)[:63].strip("-._") or "gpu"


def unused(name: str, taken: Container[str]) -> str:
    """The name itself, or the first of ``name-2``, ``name-3``, … that is not taken."""
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name}-{number}"
    return candidate
