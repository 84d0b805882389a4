"""Node outages: replayed from a file, or drawn from rates.

A file has the columns ``node,start_s,end_s`` (others may follow); its nodes are laid over the fleet in an
order drawn from their names, so that a smaller fleet has a fair sample of them. Rates are drawn from as one
outage per node every so long on average, down for a lognormal time with a given median and p90. Outages of
one node that overlap are one.
"""

import math
from hashlib import sha256
from random import Random
from typing import NamedTuple

import msgspec

from jobtree.api.schema.problems import InputError, Problem
from jobtree.api.schema.quantities import SECOND
from jobtree.simulation.inputs.csv_table import BadRowError, milliseconds, opened

COLUMNS = ("node", "start_s", "end_s")
P90 = 1.2815515655446004  # of the standard normal distribution


class Outage(NamedTuple):
    node: int
    start: int
    end: int


class OutageRates(msgspec.Struct, frozen=True):
    """Milliseconds between outages of one node, and how long it is down."""

    between: int
    median: int
    p90: int


def draw_outages(rates: OutageRates, nodes: int, begin: int, end: int, seed: int) -> list[Outage]:
    """Outages of a fleet between two instants."""
    spread = math.log(rates.p90 / rates.median) / P90
    found = []
    for node in range(nodes):
        random = Random(f"{seed}/outage/{node}")
        at = begin + random.expovariate(1 / rates.between)
        while at < end:
            down = max(SECOND, rates.median * math.exp(random.gauss(0.0, spread)))
            found.append(Outage(node, round(at), round(at + down)))
            at += down + random.expovariate(1 / rates.between)
    return joined(found)


def read_outages(path: str, nodes: int) -> list[Outage]:
    """Outages of a file, as far as the fleet has that many nodes. Raises InputError."""
    with opened(path, "a file of outages", COLUMNS) as table:
        found = [(row.get("node", ""), *_times(path, line, row)) for line, row in table.rows]
    if not found:
        raise InputError(path, ["there are no rows with outages"])
    known = sorted({name for name, *_ in found}, key=lambda name: (sha256(name.encode()).digest(), name))
    numbers = {name: number for number, name in enumerate(known[:nodes])}
    return joined([Outage(numbers[name], *times) for name, *times in found if name in numbers])


def _times(path: str, line: int, row: dict[str, str]) -> tuple[int, int]:
    where = f"{path}, line {line}"
    try:
        start, end = milliseconds(row, "start_s"), milliseconds(row, "end_s")
    except BadRowError as bad:
        raise InputError(where, [str(bad)]) from None
    if end < start:
        rule = f"must not be before start_s {row['start_s']}"
        raise InputError(where, [Problem("end_s", row["end_s"], rule)])
    return start, end


def joined(outages: list[Outage]) -> list[Outage]:
    """The same times out of service, each node's without overlap, in order."""
    found: list[Outage] = []
    for outage in sorted(outages):
        if found and found[-1].node == outage.node and found[-1].end >= outage.start:
            found[-1] = found[-1]._replace(end=max(found[-1].end, outage.end))
        else:
            found.append(outage)
    return sorted((one for one in found if one.end > one.start), key=lambda one: (one.start, one.node))
