"""Node outages: replayed from a file, or drawn from rates.

A file has the columns ``node,start_s,end_s`` (others may follow); its nodes are laid over the fleet in an
order drawn from their names, so that a smaller fleet has a fair sample of them. Rates are drawn from as one
outage per node every so long on average, down for a lognormal time with a given median and p90. Outages of
one node that overlap are one.
"""

import csv
import gzip
import math
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec

from jobtree.api.problems import InputError, Problem
from jobtree.api.quantities import SECOND

P90 = 1.2815515655446004  # of the standard normal distribution


class Outage(NamedTuple):
    node: int
    start: int
    end: int


class Rates(msgspec.Struct, frozen=True):
    """Milliseconds between outages of one node, and how long it is down."""

    between: int
    median: int
    p90: int


def drawn(rates: Rates, nodes: int, begin: int, end: int, seed: int) -> list[Outage]:
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
    try:
        raw = Path(path).read_bytes()
        text = gzip.decompress(raw).decode() if raw[:2] == b"\x1f\x8b" else raw.decode()
    except FileNotFoundError:
        raise InputError(path, ["there is no such file"]) from None
    except (OSError, EOFError, UnicodeDecodeError) as broken:
        raise InputError(path, [f"cannot be read: {broken}"]) from None
    rows = list(csv.DictReader(text.splitlines()))
    if not rows or not {"node", "start_s", "end_s"} <= rows[0].keys():
        raise InputError(path, ["outages are CSV with the columns node,start_s,end_s and one row or more"])
    known = sorted(
        {row["node"] or "" for row in rows}, key=lambda name: (sha256(name.encode()).digest(), name)
    )
    names = {name: number for number, name in enumerate(known)}
    found = [_outage(path, line, row, names) for line, row in enumerate(rows, 2)]
    return joined([outage for outage in found if outage.node < nodes])


def _outage(path: str, line: int, row: dict[str, str], names: dict[str, int]) -> Outage:
    where, times = f"{path}, line {line}", []
    for field in ("start_s", "end_s"):
        text = row[field] or ""
        if not text.isdecimal():
            raise InputError(where, [Problem(field, text, "must be a whole number of seconds")])
        times.append(int(text) * SECOND)
    if times[1] < times[0]:
        raise InputError(
            where, [Problem("end_s", row["end_s"], f"must not be before start_s {row['start_s']}")]
        )
    return Outage(names[row["node"] or ""], *times)


def joined(outages: list[Outage]) -> list[Outage]:
    """The same times out of service, each node's without overlap, in order."""
    found: list[Outage] = []
    for outage in sorted(outages):
        if found and found[-1].node == outage.node and found[-1].end >= outage.start:
            found[-1] = found[-1]._replace(end=max(found[-1].end, outage.end))
        else:
            found.append(outage)
    return sorted((one for one in found if one.end > one.start), key=lambda one: (one.start, one.node))
