"""Chooses ports for servers that must know theirs before they start.

The kernel gives ports of its own range to outgoing connections, so a port that is free there may be taken
before its server binds it. These ports lie below that range, and no port is returned twice.
"""

import socket
from itertools import count
from pathlib import Path
from random import SystemRandom

KERNEL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST = 12_000
DEFAULT_KERNEL_START = 32_768
LEAST_PORTS = 1_000

_numbers = count(SystemRandom().randrange(2**20))


def free_port(address: str = "127.0.0.1") -> int:
    """Returns a port on which nothing listens."""
    highest = int(KERNEL_RANGE.read_text().split()[0]) if KERNEL_RANGE.exists() else DEFAULT_KERNEL_START
    if highest < LOWEST + LEAST_PORTS:
        return _try_bind(address, 0) or free_port(address)  # the kernel's range covers nearly all: it chooses
    while True:
        if port := _try_bind(address, LOWEST + next(_numbers) % (highest - LOWEST)):
            return port


def _try_bind(address: str, port: int) -> int:
    """Returns the port that was bound, or 0 if it cannot be bound."""
    with socket.socket() as probe:
        try:
            probe.bind((address, port))
        except OSError:
            return 0
        bound_port: int = probe.getsockname()[1]
        return bound_port
