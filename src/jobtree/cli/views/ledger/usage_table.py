"""Formats the table of envelopes and caps from the status of the Budgets."""

from collections.abc import Iterator, Sequence
from typing import Any

import click

from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.shell.table import WIDE_ONLY, Column, print_table

CLASSES = ("owned", "shared", "borrowed", "spare", "opportunistic")
NO_LIMIT = "-"

COLUMNS = (
    Column("ENVELOPE"),
    Column("OWNER", rank=3, shrinks=True),
    Column("FLAVOR", rank=4),
    Column("USED", right=True),
    Column("FREE", right=True),
    Column("FAMILY", rank=1, right=True, answer=True),
    Column("HOURS USED", rank=1, right=True, answer=True),
    Column("COMMITTED", rank=1, right=True, answer=True),
    Column("HOURS LEFT", right=True, answer=True),
    Column("CREDITS LEFT", rank=2, right=True, answer=True),
    Column("WHY LESS", rank=1, answer=True),
    Column("BY CLASS", rank=2, shrinks=True),
    Column("LENDABLE", rank=WIDE_ONLY, right=True),
    Column("WINDOW", rank=WIDE_ONLY),
    Column("HOURS BY CLASS", rank=WIDE_ONLY),
)


def print_usage(settings: CommandOptions, budgets: Sequence[dict[str, Any]]) -> None:
    rows = [row for body in budgets for row in _rows(body)]
    if rows:
        print_table(settings, COLUMNS, rows)
    else:
        click.echo("no envelopes")


def _rows(budget: dict[str, Any]) -> Iterator[list[str]]:
    """Yields a row for every envelope, then one for every cap."""
    name, spec, status = budget["metadata"]["name"], budget["spec"], budget["status"]
    for kind, prefix in (("envelopes", ""), ("aggregateCaps", "cap ")):
        for declared, used in zip(spec.get(kind, []), status.get(kind, []), strict=True):
            yield _row(f"{prefix}{name}/{declared['name']}", spec["owner"], declared, used)


def _row(title: str, owner: str, declared: dict[str, Any], used: dict[str, Any]) -> list[str]:
    return [
        title,
        owner,
        declared.get("flavor", "*"),
        used.get("usedGPUs", "0"),
        used.get("freeGPUs", NO_LIMIT),
        used.get("familyFreeGPUs", ""),
        used.get("usedGPUHours", "0"),
        committed if (committed := used.get("committedGPUHours", "0")) != "0" else "",
        used.get("leftGPUHours", NO_LIMIT),
        used.get("leftCredits", ""),
        used.get("limitedBy", ""),
        _split(used.get("gpusByClass", {})),
        used.get("lendableGPUs", ""),
        _window(declared),
        _split(used.get("gpuHoursByClass", {})),
    ]


def _split(by_class: dict[str, str]) -> str:
    return ", ".join(f"{name} {by_class[name]}" for name in CLASSES if by_class.get(name, "0") != "0")


def _window(declared: dict[str, Any]) -> str:
    parts = [
        f"{word} {declared[field]}"
        for word, field in (("from", "start"), ("until", "end"))
        if field in declared
    ]
    return " ".join(parts)
