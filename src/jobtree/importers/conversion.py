"""The result of a conversion: documents, and a remark for each feature that has no equivalent."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from jobtree.api.schema.problems import InputError
from jobtree.api.validation.object_parser import parse_object

ObjectBody = dict[str, Any]

MAX_BYTES = 1_000_000  # of an object: less than etcd stores, so that there is room for the status


class Remark(NamedTuple):
    """A feature without an equivalent: its place, what it is, and what happens instead or what to do."""

    where: str
    what: str
    instead: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}: {self.instead}"


@dataclass
class Converted:
    """Objects to submit, commands that label the nodes, and remarks, each in the order of the input."""

    documents: list[ObjectBody] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)

    def remark(self, where: str, what: str, instead: str) -> None:
        """Adds a remark, unless the same one is there."""
        remark = Remark(where, what, instead)
        if remark not in self.remarks:
            self.remarks.append(remark)

    def add(self, documents: Iterable[ObjectBody], where: str) -> None:
        """Adds objects. Raises InputError for an object that Jobtree would refuse."""
        for document in documents:
            parse_object(document, where)
            size = len(json.dumps(document))
            if size > MAX_BYTES:
                name = document["metadata"]["name"]
                rule = f"{name} would have {size} bytes, but a cluster stores at most {MAX_BYTES}"
                raise InputError(where, [f"{rule}; split it (an array without % is a Run for each element)"])
            self.documents.append(document)
