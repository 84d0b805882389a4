"""``python -m benchmarks``: measures, compares with bounds and previous figures, and writes JSON."""

import argparse
import sys
from pathlib import Path

from benchmarks.cases import GROUPS
from benchmarks.live import results as live
from benchmarks.machine import Neighbours, machine
from benchmarks.report import Section, heading, missed, table, write_json
from benchmarks.results import bounds, load, save
from benchmarks.scale import FULL, QUICK, Effort

RESULTS = Path("build/bench.json")
TOLERATED_PERCENT = 5


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a small fleet, in seconds; the bars do not apply"
    )
    parser.add_argument(
        "--groups", default=",".join(GROUPS), help=f"which, parted by commas ({', '.join(GROUPS)})"
    )
    parser.add_argument("--write", action="store_true", help="keep the figures for the next run to show")
    parser.add_argument("--bounds", action="store_true", help="print every bound with its runs and margin")
    parser.add_argument("--json", type=Path, default=RESULTS, help=f"where to write the figures ({RESULTS})")
    options = parser.parse_args(arguments)
    groups = options.groups.split(",")
    if unknown := [name for name in groups if name not in GROUPS]:
        parser.error(f"--groups: {', '.join(unknown)}: must be of {', '.join(GROUPS)}")
    if options.quick and options.write:
        parser.error("--write: figures are kept at full size only, without --quick")
    if options.bounds:
        print("\n".join(bounds(load())))
        return 0
    return measure(groups, QUICK if options.quick else FULL, options.json, write=options.write)


def measure(groups: list[str], effort: Effort, path: Path, *, write: bool) -> int:
    facts, results = machine(), load()
    print(f"{facts.python}, {facts.cores} cores, {facts.processor}\n{heading()}", flush=True)
    sections = list[Section]()
    everybody = Neighbours()
    for name in groups:
        neighbours = Neighbours()
        for section in GROUPS[name](effort):
            sections.append(section)
            print(table(section, results.before(section.title) if effort.judged else {}), flush=True)
            if write:
                results.add(section, neighbours.percent())
                save(results, facts)
    write_json(path, facts, everybody.percent(), sections)
    print(f"\nwritten to {path}")
    if everybody.percent() > TOLERATED_PERCENT:
        print(
            f"Others used {everybody.percent()} % of this machine meanwhile: measure again when it is quiet."
        )
    print(live_bounds())
    for name in missed(sections):
        print(f"MISSED  {name}")
    return 1 if missed(sections) else 0


def live_bounds() -> str:
    """Returns a line about the bounds that need a real API server."""
    days = sorted(live.load().measured.values())
    when = f"last on {days[-1]}, some rows on {days[0]}" if days else "never measured"
    return f"The manager on a real API server has bounds of its own: make bench-live ({when}; {live.PATH})."


if __name__ == "__main__":
    sys.exit(main())
