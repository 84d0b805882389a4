"""Reads the resources of a process from Linux, and the accepted writes of an API server by kind."""

import os
import re
from collections import Counter
from pathlib import Path

import msgspec

from benchmarks.live.client import Client
from jobtree.kube.http.api_requests import Request

KIB_PER_MIB = 1024
WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class Usage(msgspec.Struct, frozen=True):
    cpu_seconds: float
    resident_mib: float
    peak_mib: float

    def since(self, before: "Usage") -> float:
        """Returns the CPU seconds used since an earlier reading."""
        return self.cpu_seconds - before.cpu_seconds


def usage_of(pid: int) -> Usage:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])  # in user and in system mode
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    resident, peak = (int(status[name].split()[0]) / KIB_PER_MIB for name in ("VmRSS", "VmHWM"))
    return Usage(ticks / os.sysconf("SC_CLK_TCK"), resident, peak)


async def writes_by_kind(client: Client) -> Counter[str]:
    """Returns the accepted writes by ``VERB resource`` since the API server started."""
    page = (await client.transport.send(Request("GET", "/metrics"))).decode()
    found: Counter[str] = Counter()
    for line in page.splitlines():
        if line.startswith("apiserver_request_total{"):
            labels, value = dict(_LABEL.findall(line)), float(line.rpartition(" ")[2])
            if labels["verb"] in WRITES and labels["code"].startswith("2"):
                part = f"/{labels['subresource']}" if labels["subresource"] else ""
                found[f"{labels['verb']} {labels['resource']}{part}"] += int(value)
    return found


def of_jobtree(writes: Counter[str]) -> Counter[str]:
    """Returns the writes without those of kwok, node heartbeats and the leader election."""
    others = ("pods/status", "nodes", "nodes/status", "leases")
    return Counter(
        {name: count for name, count in writes.items() if name.split()[1] not in others and count > 0}
    )
