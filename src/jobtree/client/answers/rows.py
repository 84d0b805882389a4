"""Rows of one kind: a sequence that is a table in a notebook and a DataFrame where there is a library."""

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Generic, Protocol, TypeVar, overload

from jobtree.client.answers.html_tables import html_section, html_table
from jobtree.client.errors import ArgumentError

LIBRARIES = ("pandas", "polars")


class Row(Protocol):
    """What can be a row: an object that gives its columns."""

    def row(self) -> dict[str, Any]: ...


R = TypeVar("R", bound=Row)


class Rows(Sequence[R], Generic[R]):
    """A list of rows. ``to_dicts`` and ``frame`` have the same columns as the table in a notebook."""

    def __init__(self, title: str, rows: Iterable[R], warnings: Sequence[str] = ()) -> None:
        self.title = title
        self.warnings = tuple(warnings)
        self._rows = list(rows)

    @overload
    def __getitem__(self, index: int) -> R: ...

    @overload
    def __getitem__(self, index: slice) -> list[R]: ...

    def __getitem__(self, index: int | slice) -> R | list[R]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[R]:
        return iter(self._rows)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Returns a dict for each row, with exact amounts (``Decimal``) and times (``datetime``)."""
        return [row.row() for row in self._rows]

    def frame(self, library: str = "") -> Any:  # noqa: ANN401  neither library is a dependency
        """Returns a DataFrame of pandas or polars: the named one, else the first that is installed.

        Amounts are floats in it.
        """
        names = (library,) if library else LIBRARIES
        name = next((name for name in names if find_spec(name)), None)
        if name is None:
            raise ArgumentError(f"no DataFrame without {' or '.join(names)}: install one, or use to_dicts()")
        rows = [{column: as_number(value) for column, value in row.items()} for row in self.to_dicts()]
        return import_module(name).DataFrame(rows)

    def __repr__(self) -> str:
        return f"<{self.title}: {len(self)} rows>"

    def _repr_html_(self) -> str:
        rows = self.to_dicts()
        if not rows:
            return html_section(f"no {self.title}", self.warnings)
        table = html_table(list(rows[0]), [list(row.values()) for row in rows])
        return html_section(self.title, [table])


def as_number(value: object) -> object:
    return float(value) if isinstance(value, Decimal) else value
