"""A network bridge that lasts as long as its process: ``python bridge.py NAME ADDRESS/PREFIX…``.

It ends with the tests that started it, even if they were killed (``leash``), and takes the bridge along. A
bridge of that name that is already there belongs to others: then it ends at once with ``TAKEN``.
"""

import signal
import subprocess
import sys

TAKEN = 3


def main(name: str, addresses: list[str]) -> int:
    """Makes the bridge, waits to be told to end, and removes it."""
    waited_for = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    if _ip("link", "add", name, "type", "bridge") != 0:
        return TAKEN
    try:
        for address in addresses:
            _ip("address", "add", address, "dev", name)
        _ip("link", "set", name, "up")
        signal.sigwait(waited_for)
    finally:
        _ip("link", "delete", name)
    return 0


def _ip(*arguments: str) -> int:
    return subprocess.run(["ip", *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
