"""What a rank of the live gang does: meets the others at MASTER_ADDR and adds numbers up with them.

Runs in containers, with nothing but Python. Rank 0 listens; in every step each rank sends its number, and
gets the sum. Rank 0 writes a checkpoint after every step, and a new attempt goes on from there. A rank that
loses the others waits to be ended, as a job that hangs in a collective does.
"""

import json
import os
import socket
import time
from pathlib import Path

CHECKPOINT = Path(os.environ["CHECKPOINT"])
STEPS = int(os.environ["STEPS"])
RANK, RANKS = int(os.environ["NODE_RANK"]), int(os.environ["NNODES"])
MASTER = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
PAUSE_SECONDS = 0.2


def meet() -> list[socket.socket]:
    """Rank 0 has a connection to every other rank; they have one to rank 0."""
    if RANK == 0:
        server = socket.create_server(("", MASTER[1]))
        return [server.accept()[0] for _ in range(RANKS - 1)]
    while True:
        try:
            return [socket.create_connection(MASTER, timeout=5)]
        except OSError:  # rank 0 is not there yet, or has no name yet
            time.sleep(PAUSE_SECONDS)


def receive(peer: socket.socket) -> int:
    text = b""
    while not text.endswith(b"\n"):
        part = peer.recv(64)
        if not part:
            raise ConnectionError
        text += part
    return int(text)


def all_reduce(peers: list[socket.socket], number: int) -> int:
    if RANK:
        peers[0].sendall(b"%d\n" % number)
        return receive(peers[0])
    total = number + sum(receive(peer) for peer in peers)
    for peer in peers:
        peer.sendall(b"%d\n" % total)
    return total


def main() -> None:
    written = CHECKPOINT.read_text() if CHECKPOINT.exists() else '{"step": 0, "sum": 0, "resumed": []}'
    saved = json.loads(written)
    if saved["step"]:
        saved["resumed"].append([os.environ["JOBTREE_ATTEMPT"], saved["step"]])
    peers = meet()
    for peer in peers:
        peer.settimeout(None)
    print("met", RANK, "of", RANKS, "on", socket.gethostname(), flush=True)  # noqa: T201
    for step in range(saved["step"], STEPS):
        saved["sum"] += all_reduce(peers, RANK + 1)
        saved["step"] = step + 1
        if RANK == 0:
            new = CHECKPOINT.with_suffix(".new")
            new.write_text(json.dumps(saved))
            new.replace(CHECKPOINT)
        time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    try:
        main()
    except OSError:
        time.sleep(3600)
