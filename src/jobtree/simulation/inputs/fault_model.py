"""Faults: nodes that fail and come back, drawn from a seed or replayed from a recorded file.

The model has the rates of a real fleet, 584 outages of 400 nodes in 348 days: a node fails once in 239 days
and is then down for a time that is lognormal, half of them up to 20 hours, nine of ten up to 312. One outage
in eleven is followed by another within the hour (the node flaps), and now and then all nodes of a domain go
at once. When a node is down follows from the seed, the node's name and its domain alone, from the beginning
of time: so two steps of a day see the same as one step of two days, whatever else is in the fleet.

Nothing here looks at a clock or at a cluster: ``outages`` say when nodes are down, ``faults`` what happens
between two instants, and ``inject`` lets that happen.
"""

import csv
import gzip
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from math import exp, log
from operator import attrgetter
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple, Protocol, TextIO

import msgspec

from jobtree.api.schema.quantities import HOUR, MINUTE, SECOND

DAY = 24 * HOUR
Z90 = 1.2815515594  # nine tenths of a normal distribution lie below that many deviations
BEGINNING = 0
NEVER = 1 << 62


class NodeDowntime(NamedTuple):
    """A node is down from one instant to another."""

    start: int
    end: int


class Fault(NamedTuple):
    """A node fails or heals at an instant."""

    at: int
    kind: Literal["fail", "heal"]
    node: str


class FaultRates(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how long nodes are down. The defaults are those of the recorded outages."""

    node_days: float = 239.0  # between two outages of a node
    down_p50_hours: float = 20.0
    down_p90_hours: float = 312.0
    flapping: float = 51 / 584  # of all outages, those after which the node fails again within the hour
    domain_days: float = 5800.0  # between two outages of a whole domain

    def faster(self, times: float) -> "FaultRates":
        """So many times as many outages, each as long as before."""
        return msgspec.structs.replace(
            self, node_days=self.node_days / times, domain_days=self.domain_days / times
        )

    def downtime(self, dice: Random) -> int:
        spread = log(self.down_p90_hours / self.down_p50_hours) / Z90
        return max(SECOND, int(self.down_p50_hours * HOUR * exp(dice.gauss(0.0, spread))))


class FaultFileError(Exception):
    """A file of recorded outages cannot be used; the message says why."""


Down = dict[str, list[NodeDowntime]]  # by node, in order, none touching another


# Drawn from a seed


def draw_downtimes(
    seed: int, domains: Mapping[str, str], until: int, rates: FaultRates | None = None
) -> Down:
    """When each node is down up to that instant. ``domains``: of each node."""
    rates = rates or FaultRates()
    together = {
        domain: list(_lives(Random(f"{seed}/domain {domain}"), until, rates.domain_days, rates))
        for domain in sorted(set(domains.values()))
    }
    alone = {node: _lives(Random(f"{seed}/node {node}"), until, rates.node_days, rates) for node in domains}
    return {node: merge_downtimes([*alone[node], *together[domain]]) for node, domain in domains.items()}


def _lives(dice: Random, until: int, days: float, rates: FaultRates) -> Iterator[NodeDowntime]:
    """Outages one after the other: the time between them has no memory, save that some come right back."""
    at = BEGINNING
    while (at := at + max(SECOND, int(dice.expovariate(1.0) * days * DAY))) <= until:
        outage = NodeDowntime(at, at + rates.downtime(dice))
        yield outage
        while dice.random() < rates.flapping:
            up_again = outage.end + dice.randrange(MINUTE, HOUR)
            outage = NodeDowntime(up_again, up_again + rates.downtime(dice))
            yield outage
        at = outage.end


def merge_downtimes(outages: Iterable[NodeDowntime]) -> list[NodeDowntime]:
    """The same time down, as outages that do not touch."""
    found: list[NodeDowntime] = []
    for outage in sorted(outages):
        if found and outage.start <= found[-1].end:
            found[-1] = NodeDowntime(found[-1].start, max(found[-1].end, outage.end))
        else:
            found.append(outage)
    return found


# Replayed from a file


def recorded(path: Path, nodes: Iterable[str], zero: int) -> Down:
    """The outages of a CSV file (plain or gz) with columns node, start_s and end_s, from that instant on.

    Where the file knows none of the nodes by name, its first stands for the first of them, and so on.
    An outage without an end lasts for ever. Raises FaultFileError.
    """
    rows = _read(path)
    names, known = sorted(nodes), sorted({node for node, _ in rows})
    as_ours = {node: node for node in known}
    if not set(known) & set(names):
        as_ours = dict(zip(known, names, strict=False))
    found: dict[str, list[NodeDowntime]] = {}
    for node, (start, end) in rows:
        if as_ours.get(node) in names:
            found.setdefault(as_ours[node], []).append(NodeDowntime(zero + start, zero + end))
    return {node: merge_downtimes(outages) for node, outages in sorted(found.items())}


def _read(path: Path) -> list[tuple[str, NodeDowntime]]:
    opener: Callable[..., TextIO] = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            missing = {"node", "start_s", "end_s"} - set(reader.fieldnames or ())
            if missing:
                lacks = ", ".join(sorted(missing))
                raise FaultFileError(f"{path} has no column {lacks}: outages need node, start_s and end_s")
            return [_outage(path, number, row) for number, row in enumerate(reader, 2)]
    except (OSError, UnicodeDecodeError, EOFError, csv.Error) as broken:
        raise FaultFileError(f"cannot read the outages in {path}: {broken}") from None


def _outage(path: Path, line: int, row: dict[str, str | None]) -> tuple[str, NodeDowntime]:
    try:
        start = int(float(row["start_s"] or "") * SECOND)
        end = int(float(row["end_s"]) * SECOND) if row["end_s"] else NEVER
    except (ValueError, OverflowError):
        said = f"start_s {row['start_s']!r}, end_s {row['end_s']!r}"
        raise FaultFileError(f"{path}, line {line}: {said}: both must be numbers of seconds") from None
    if end < start:
        raise FaultFileError(f"{path}, line {line}: end_s {row['end_s']} is before start_s {row['start_s']}")
    return row["node"] or "", NodeDowntime(start, end)


# What happens


def faults(down: Down, since: int, until: int) -> list[Fault]:
    """What happens after one instant and up to another; who is down at the first fails then."""
    found: list[Fault] = []
    for node, outages in down.items():
        for start, end in outages:
            if start <= until and end > since and end > start:
                found.append(Fault(max(start, since), "fail", node))
                if end <= until:
                    found.append(Fault(end, "heal", node))
    return sorted(found)


class FaultTarget(Protocol):
    """What faults are let loose on: a simulated cluster."""

    def advance(self, until: int) -> None: ...

    def fail(self, nodes: Iterable[str]) -> None: ...

    def heal(self, nodes: Iterable[str]) -> None: ...

    def is_failed(self, node: str) -> bool: ...


def inject(fleet: FaultTarget, happenings: Iterable[Fault], until: int) -> list[Fault]:
    """Let time pass up to an instant with these faults on the way, those of one instant at once.

    Returns what really changed: a node that is down already does not fail.
    """
    told: list[Fault] = []
    for (at, kind), group in groupby(happenings, attrgetter("at", "kind")):
        fleet.advance(at)
        fresh = [fault for fault in group if fleet.is_failed(fault.node) == (kind == "heal")]
        if fresh:
            (fleet.fail if kind == "fail" else fleet.heal)([fault.node for fault in fresh])
            told += fresh
    fleet.advance(until)
    return told
