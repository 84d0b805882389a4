"""What a conversion answers: documents, and a remark for everything that does not carry over by itself."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from jobtree.api.parse import parse_object

Body = dict[str, Any]


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

    documents: list[Body] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)

    def remark(self, where: str, what: str, instead: str) -> None:
        """Note something once, however often it comes up."""
        found = Remark(where, what, instead)
        if found not in self.remarks:
            self.remarks.append(found)

    def add(self, documents: Iterable[Body], where: str) -> None:
        """Take in objects that Jobtree accepts. Raises InputError for any that it would refuse."""
        for document in documents:
            parse_object(document, where)
            self.documents.append(document)
