"""Finds the name that somebody probably meant, for messages about a name that does not exist."""

import difflib
from collections.abc import Iterable


def near_name(word: str, choices: Iterable[str]) -> str:
    """Returns the choice that is most like the word, whatever its case; empty if none is similar."""
    by_lower: dict[str, str] = {}
    for choice in sorted(choices):
        by_lower.setdefault(choice.lower(), choice)
    near = difflib.get_close_matches(word.lower(), list(by_lower), n=1, cutoff=0.7)
    return by_lower[near[0]] if near else ""


def suggestion(word: str, choices: Iterable[str]) -> str:
    """Returns ``did you mean train?``, or an empty string if no choice is similar."""
    near = near_name(word, choices)
    return f"did you mean {near}?" if near else ""
