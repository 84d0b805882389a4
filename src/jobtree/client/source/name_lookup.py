"""Finds the Run or Reservation that a name means."""

from collections.abc import Callable
from typing import NamedTuple

from jobtree.api.schema.near_names import suggestion
from jobtree.api.schema.object_meta import GROUP
from jobtree.client.errors import ArgumentError, NotFoundError
from jobtree.core import RunKey
from jobtree.messages.wording import joined_list

NAME_PREFIX = f"run.{GROUP}/"
LISTS = {
    "Run": "'kubectl runs state --all' lists all Runs",
    "Reservation": "'kubectl runs reservations --all' lists all Reservations",
}


class Names(NamedTuple):
    """Where names are looked up: in one namespace, or everywhere, with a default on a live cluster."""

    namespace: str = ""
    default_namespace: Callable[[], str] | None = None

    def choose(self, text: str, keys: list[RunKey], kind: str = "Run") -> RunKey:
        """Returns the key that NAME or NAMESPACE/NAME means; raises an error unless exactly one matches."""
        wanted = text.removeprefix(NAME_PREFIX)
        namespace, slash, name = wanted.rpartition("/")
        if not slash:
            namespace = self.namespace
        matches = [key for key in keys if key[1] == name and namespace in ("", key[0])]
        if len(matches) > 1:
            matches = self._in_default_namespace(matches)
        if len(matches) > 1:
            spelled = joined_list(["/".join(key) for key in sorted(matches)], most=8)
            raise ArgumentError(f"several {kind}s are named {name}: choose one of {spelled}")
        if not matches:
            raise NotFoundError(not_found_message(wanted, keys, kind), kind, wanted)
        return matches[0]

    def _in_default_namespace(self, keys: list[RunKey]) -> list[RunKey]:
        """Prefers keys of the context's namespace on a live cluster."""
        if self.default_namespace is None:
            return keys
        namespace = self.default_namespace()
        return [key for key in keys if key[0] == namespace] or keys


def not_found_message(wanted: str, keys: list[RunKey], kind: str) -> str:
    elsewhere = ["/".join(key) for key in keys if key[1] == wanted.rpartition("/")[2]]
    hint = f"did you mean {elsewhere[0]}?" if elsewhere else suggestion(wanted, [key[1] for key in keys])
    return f"there is no {kind} {wanted}: {hint or LISTS[kind]}"
