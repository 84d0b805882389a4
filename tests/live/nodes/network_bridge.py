"""A network bridge that exists as long as its process: ``python network_bridge.py NAME ADDRESS/PREFIX…``.

The process ends with the tests that started it, even if they are killed (``end_with_parent``), and removes
the bridge. If a bridge of that name exists already, the process ends at once with exit code ``TAKEN``.
"""

import signal
import subprocess
import sys

TAKEN = 3


def main(name: str, addresses: list[str]) -> int:
    """Creates the bridge, waits for a signal to end, and removes the bridge."""
    end_signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, end_signals)
    if _ip("link", "add", name, "type", "bridge") != 0:
        return TAKEN
    try:
        for address in addresses:
            _ip("address", "add", address, "dev", name)
        _ip("link", "set", name, "up")
        signal.sigwait(end_signals)
    finally:
        _ip("link", "delete", name)
    return 0


def _ip(*arguments: str) -> int:
    return subprocess.run(["ip", *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
