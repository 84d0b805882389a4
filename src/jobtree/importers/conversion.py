"""What a conversion answers: documents, and a remark for everything that does not carry over by itself."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from jobtree.api.schema.problems import InputError
from jobtree.api.validation.object_parser import parse_object

ObjectBody = dict[str, Any]

MAX_BYTES = 1_000_000  # below what etcd takes, with room for the status


class Remark(NamedTuple):
    """One thing without an equal: where it stood, what it was, what happens instead and what to do."""

    where: str
    what: str
    instead: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}: {self.instead}"


@dataclass
class Converted:
    """Objects to submit, commands that label the nodes, and remarks, all in the order they came up."""

    documents: list[ObjectBody] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)

    def remark(self, where: str, what: str, instead: str) -> None:
        """Note something once, however often it comes up."""
        remark = Remark(where, what, instead)
        if remark not in self.remarks:
            self.remarks.append(remark)

    def add(self, documents: Iterable[ObjectBody], where: str) -> None:
        """Take in objects that Jobtree accepts. Raises InputError for any that it would refuse."""
        for document in documents:
            parse_object(document, where)
            size = len(json.dumps(document))
            if size > MAX_BYTES:
                name = document["metadata"]["name"]
                rule = f"{name} would have {size} bytes: {MAX_BYTES} are the most that a cluster stores"
                raise InputError(where, [f"{rule}; split it (an array without % is a Run for each element)"])
            self.documents.append(document)
