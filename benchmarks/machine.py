"""Facts about the machine on which figures were measured."""

import os
import platform
from pathlib import Path

import msgspec

STATISTICS = Path("/proc/stat")
CPUINFO = Path("/proc/cpuinfo")
IDLE_FIELDS = (3, 4)  # of the first line of /proc/stat: idle and waiting for a disk
CPU_FIELDS = 8  # those after it count guests a second time


class Machine(msgspec.Struct, frozen=True):
    cores: int
    processor: str
    python: str
    system: str


def machine() -> Machine:
    return Machine(
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0,
        processor=_processor(),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        system=platform.platform(),
    )


def _processor() -> str:
    lines = CPUINFO.read_text().splitlines() if CPUINFO.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor())


class Neighbours:
    """The use of the machine by other processes since this object was created."""

    def __init__(self) -> None:
        self._begin = _cpu_seconds()

    def percent(self) -> int:
        """Returns the use in percent of all cores; 0 if this is not Linux."""
        total, others = (now - then for now, then in zip(_cpu_seconds(), self._begin, strict=True))
        return round(100 * others / total) if total else 0


def _cpu_seconds() -> tuple[float, float]:
    """Returns the CPU seconds of all cores since the start of the machine, and those used by others."""
    if not STATISTICS.exists():
        return 0.0, 0.0
    ticks = [int(field) for field in STATISTICS.read_text().split()[1 : CPU_FIELDS + 1]]
    seconds = [tick / os.sysconf("SC_CLK_TCK") for tick in ticks]
    mine = sum(os.times()[:4])
    return sum(seconds), sum(seconds) - sum(seconds[field] for field in IDLE_FIELDS) - mine
