"""``python -m benchmarks.live``: measures the manager on a real API server, and the limits of that server."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence

from benchmarks.live.results import Figure, load, merge, missed, save, table
from benchmarks.live.rows import ROWS, Effort
from benchmarks.machine import machine


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live", description=__doc__)
    parser.add_argument("--rows", default=",".join(ROWS), help=f"which, parted by commas ({', '.join(ROWS)})")
    parser.add_argument("--nodes", type=int, help="nodes of every cluster, in place of each row's own number")
    parser.add_argument("--share", type=float, default=1.0, help="a share of the gangs, such as 0.1")
    parser.add_argument("--write", action="store_true", help="keep the figures for the next run to show")
    options = parser.parse_args(arguments)
    names = options.rows.split(",")
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        parser.error(f"--rows: {', '.join(unknown)}: must be of {', '.join(ROWS)}")
    if options.write and not Effort(options.nodes, options.share).is_full:
        parser.error("--write: figures are kept at full size only, without --nodes and --share")
    return asyncio.run(measure(names, Effort(options.nodes, options.share), write=options.write))


async def measure(names: list[str], effort: Effort, *, write: bool) -> int:
    facts, results, misses = machine(), load(), list[str]()
    print(f"{facts.python}, {facts.cores} cores, {facts.processor}", flush=True)

    def tell(row: str, found: Sequence[Figure]) -> None:
        figures = [*found, Figure("load of the machine, one minute", os.getloadavg()[0])]
        print(table(row, figures, results.rows.get(row, {})), flush=True)
        misses.extend(missed(row, figures))
        merge(results, row, figures)
        if write:
            save(results, facts)

    for name in names:
        await ROWS[name](effort, tell)
    for miss in misses:
        print(f"MISSED  {miss}")
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
