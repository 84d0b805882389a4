"""``python -m benchmarks``: measure, compare with the bars, print a table and write it as JSON."""

import argparse
import sys
from pathlib import Path

from benchmarks.cases import run_all
from benchmarks.machine import Neighbours, machine
from benchmarks.report import Section, missed, table, write_json
from benchmarks.scale import FULL, QUICK

RESULTS = Path("build/bench.json")
TOLERATED_PERCENT = 5


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a small fleet, in seconds; the bars do not apply"
    )
    parser.add_argument("--json", type=Path, default=RESULTS, help=f"where to write the figures ({RESULTS})")
    options = parser.parse_args(arguments)
    facts, effort = machine(), QUICK if options.quick else FULL
    print(f"{facts.python}, {facts.cores} cores, {facts.processor}", flush=True)
    neighbours, sections = Neighbours(), list[Section]()
    for section in run_all(effort):
        sections.append(section)
        print(table(section), flush=True)
    others_percent = neighbours.percent()
    write_json(options.json, facts, others_percent, sections)
    print(f"\nwritten to {options.json}")
    if others_percent > TOLERATED_PERCENT:
        print(f"Others used {others_percent} % of this machine meanwhile: measure again when it is quiet.")
    for name in missed(sections):
        print(f"MISSED  {name}")
    return 1 if missed(sections) else 0


if __name__ == "__main__":
    sys.exit(main())
