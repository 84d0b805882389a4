"""Outages of nodes: drawn from rates and a seed, or read from a CSV file.

A node is up for an exponential time and then down for a lognormal time. Where rates say so, it flaps: it
fails again within an hour of its return. All nodes of a domain can fail at one instant. The default rates are
those of a real fleet, 584 outages of 400 nodes in 348 days.

Outages of a simulated cluster are drawn from the beginning of time and depend on the seed, the name of the
node and its domain alone: two steps of a day have the same outages as one step of two days. Outages of a
replay are drawn from the start of its trace, by the number of the node.

A file has the columns ``node,start_s,end_s``; others are ignored. An outage without ``end_s`` never ends.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Generic, NamedTuple, TypeVar

import msgspec

from jobtree.api.schema.problems import InputError, Problem
from jobtree.api.schema.quantities import DAY, HOUR, MINUTE, SECOND, parse_duration
from jobtree.simulation.inputs.csv_table import BadRowError, milliseconds, opened

COLUMNS = ("node", "start_s", "end_s")
P90 = 1.2815515655446004  # of the standard normal distribution
BEGINNING = 0
NEVER = 1 << 62

N = TypeVar("N", str, int)  # a node: its name, or its number in a replay


class Outage(NamedTuple, Generic[N]):
    """A node is out of service between two instants."""

    node: N
    start: int
    end: int


class OutageRates(msgspec.Struct, frozen=True, kw_only=True):
    """How often nodes fail, and how long they are down. Times are in milliseconds."""

    interval: float = 239.0 * DAY  # mean time from the end of one outage of a node to the next
    median: float = 20.0 * HOUR  # of the time down
    spread: float = 2.143706895055955  # standard deviation of its logarithm: p90 is 312 h
    flapping: float = 51 / 584  # share of outages after which the node fails again within an hour
    domain_interval: float | None = 5800.0 * DAY  # the same as interval, for a whole domain; None: never

    def faster(self, times: float) -> "OutageRates":
        """Rates with so many times as many outages, each as long as before."""
        domains = self.domain_interval and self.domain_interval / times
        return msgspec.structs.replace(self, interval=self.interval / times, domain_interval=domains)

    def downtime(self, dice: Random) -> float:
        return max(SECOND, self.median * math.exp(dice.gauss(0.0, self.spread)))


def parse_rates(text: str) -> OutageRates | None:
    """Rates such as ``239d/20h/312h``: interval, median and p90 of the time down. None for other texts.

    Raises InputError.
    """
    parts = text.split("/")
    if len(parts) != len(COLUMNS) or not text[:1].isdigit():
        return None
    try:
        interval, median, p90 = map(parse_duration, parts)
    except ValueError as broken:
        raise InputError("options", [f"--faults: {broken}"]) from None
    if not 0 < median < p90 or not interval:
        raise InputError("options", [Problem("--faults", text, "must be above 0, with p90 above p50")])
    spread = math.log(p90 / median) / P90
    return OutageRates(interval=interval, median=median, spread=spread, flapping=0.0, domain_interval=None)


# Drawn from a seed


def draw_replay_outages(rates: OutageRates, nodes: int, begin: int, end: int, seed: int) -> list[Outage[int]]:
    """Outages of the nodes of a replay that start between two instants."""
    return joined(
        Outage(node, round(down), round(up))
        for node in range(nodes)
        for down, up in _drawn(Random(f"{seed}/outage/{node}"), begin, end, rates)
    )


def draw_cluster_outages(
    seed: int, domains: Mapping[str, str], until: int, rates: OutageRates | None = None
) -> list[Outage[str]]:
    """Outages that the nodes of a cluster have up to an instant, given the domain of each node."""
    rates = rates or OutageRates()
    groups = [([node], f"node {node}", rates) for node in domains]
    if rates.domain_interval is not None:
        domain_rates = msgspec.structs.replace(rates, interval=rates.domain_interval)
        for domain in sorted(set(domains.values())):
            nodes = [node for node in domains if domains[node] == domain]
            groups.append((nodes, f"domain {domain}", domain_rates))
    return joined(
        Outage(node, int(down), int(up))
        for nodes, name, group_rates in groups
        for down, up in _drawn(Random(f"{seed}/{name}"), BEGINNING, until, group_rates, _whole)
        for node in nodes
    )


def _whole(milliseconds: float) -> float:
    """Whole milliseconds, at least a second."""
    return max(SECOND, int(milliseconds))


def _drawn(
    dice: Random, begin: int, until: int, rates: OutageRates, cut: Callable[[float], float] = float
) -> Iterator[tuple[float, float]]:
    """When outages start and end, one after the other. ``cut`` is applied to each time that is drawn."""
    start = begin + cut(dice.expovariate(1 / rates.interval))
    while start <= until:
        down = cut(rates.downtime(dice))
        yield start, start + down
        while rates.flapping and dice.random() < rates.flapping:
            start += down + dice.randrange(MINUTE, HOUR)
            down = cut(rates.downtime(dice))
            yield start, start + down
        start += down + cut(dice.expovariate(1 / rates.interval))


def joined(outages: Iterable[Outage[N]]) -> list[Outage[N]]:
    """The same times out of service, those of one node without overlap, by start and node."""
    merged: list[Outage[N]] = []
    for outage in sorted(outages):
        last = merged[-1] if merged else None
        if last is not None and last.node == outage.node and last.end >= outage.start:
            merged[-1] = last._replace(end=max(last.end, outage.end))
        else:
            merged.append(outage)
    return sorted(
        (outage for outage in merged if outage.end > outage.start),
        key=lambda outage: (outage.start, outage.node),
    )


# Read from a file


def read_outages(path: str) -> list[Outage[str]]:
    """The outages of a file, from its own zero, by the names in the file. Raises InputError."""
    if not Path(path).exists():
        rule = "there is no such file, and it is not a set of rates such as 239d/20h/312h"
        raise InputError("options", [Problem("--faults", path, rule)])
    with opened(path, "a file of outages", COLUMNS) as table:
        outages = [_outage(f"{path}, line {line}", row) for line, row in table.rows]
    if not outages:
        raise InputError(path, ["there are no rows with outages"])
    return outages


def _outage(where: str, row: dict[str, str]) -> Outage[str]:
    try:
        start = milliseconds(row, "start_s")
        end = milliseconds(row, "end_s") if row.get("end_s", "").strip() else NEVER
    except BadRowError as bad:
        raise InputError(where, [str(bad)]) from None
    if end < start:
        rule = f"must not be before start_s {row['start_s']}"
        raise InputError(where, [Problem("end_s", row["end_s"], rule)])
    return Outage(row.get("node", ""), start, end)


def replay_outages(path: str, nodes: int) -> list[Outage[int]]:
    """The outages of a file for a replay with so many nodes. Raises InputError.

    Nodes of the file get their numbers in an order drawn from their names, so that a fleet with fewer nodes
    has a fair sample of them.
    """
    outages = read_outages(path)
    names = sorted(
        {outage.node for outage in outages}, key=lambda name: (sha256(name.encode()).digest(), name)
    )
    numbers = {name: number for number, name in enumerate(names[:nodes])}
    return joined(Outage(numbers[name], start, end) for name, start, end in outages if name in numbers)


def cluster_outages(path: str, nodes: Iterable[str], zero: int) -> list[Outage[str]]:
    """The outages of a file for the nodes of a cluster, counted from the instant ``zero``. Raises InputError.

    Where the file has none of the nodes by name, its first node stands for the first of them, and its second
    for the second.
    """
    outages, names = read_outages(path), sorted(nodes)
    recorded = sorted({outage.node for outage in outages})
    own_names = {name: name for name in names}
    if not own_names.keys() & set(recorded):
        own_names = dict(zip(recorded, names, strict=False))
    return joined(
        Outage(own_names[name], zero + start, min(zero + end, NEVER))
        for name, start, end in outages
        if name in own_names
    )
