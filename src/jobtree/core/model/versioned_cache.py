"""Caches of answers about objects that change.

An object carries a ``Version`` and replaces it whenever a change makes answers about the object wrong. The
code that computes answers declares a ``VersionedCache`` for them, so the object does not depend on that code.
When a trial is rolled back, the object gets its former version back, and the answers about that version are
valid again. When nothing refers to a version any longer, its answers are freed with it.
"""

from typing import Generic, TypeVar, cast

Key = TypeVar("Key")
Answer = TypeVar("Answer")


class Version:
    """One state of an object, with the answers about it. Two states never share a version."""

    __slots__ = ("answers",)

    def __init__(self) -> None:
        self.answers: dict[object, object] = {}  # by cache

    def __reduce__(self) -> "tuple[type[Version], tuple[()]]":
        """Saves the version without its answers: they are computed again after it is loaded."""
        return Version, ()


SavedVersions = tuple[Version, ...]


class VersionedCache(Generic[Key, Answer]):
    """Answers of one kind about objects of one kind."""

    def at(self, version: Version) -> dict[Key, Answer]:
        """Returns the answers about that version; the caller adds those that it computes."""
        answers = version.answers.get(self)
        if answers is None:
            answers = version.answers[self] = {}
        return cast("dict[Key, Answer]", answers)
