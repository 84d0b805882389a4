"""Ports for servers that must be told theirs before they start.

A port that is free now may be taken before its server binds it: the kernel gives ports to whoever connects
anywhere, from a range of its own. So these lie below that range, and no two asked for here are the same.
"""

import socket
from itertools import count
from pathlib import Path
from random import SystemRandom

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST = 12_000
USUALLY = 32_768  # where the kernel's own range begins, unless it says otherwise
LEAST = 1_000

_numbers = count(SystemRandom().randrange(2**20))


def free_port(address: str = "127.0.0.1") -> int:
    """A port that nobody listens on."""
    highest = int(RANGE.read_text().split()[0]) if RANGE.exists() else USUALLY
    if highest < LOWEST + LEAST:
        return _bound(address, 0) or free_port(address)  # the kernel wants nearly all: it may choose
    while True:
        if port := _bound(address, LOWEST + next(_numbers) % (highest - LOWEST)):
            return port


def _bound(address: str, port: int) -> int:
    """The port, if it could be bound; else 0."""
    with socket.socket() as probe:
        try:
            probe.bind((address, port))
        except OSError:
            return 0
        found: int = probe.getsockname()[1]
        return found
