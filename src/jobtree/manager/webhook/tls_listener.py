"""Accepts TLS connections for the webhook, a limited number at once.

Anybody who reaches the port can open connections, and each costs memory. So a connection must finish its
handshake and send its first whole request in a few seconds. When there are too many, one is closed for the
new one: the oldest without a whole request, else the one whose last request is longest ago. An API server
sends whole requests at once, so it is served while others hold connections open.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Collection
from contextlib import suppress
from itertools import count

MAX_CONNECTIONS = 256
READ_SECONDS = 5.0  # for a handshake, and for a whole request; the API server gives up after 5 s too
ACCEPT_AGAIN_SECONDS = 0.1  # when the process has too many open files

Protocols = Callable[[], asyncio.Protocol]


class Connection:
    """A connection of a client. ``served`` is the number of its last whole request; 0 before the first."""

    def __init__(self, accepted: socket.socket, number: int) -> None:
        self.accepted = accepted
        self.number = number
        self.served = 0
        self.first_request = asyncio.Event()
        self.transport: asyncio.Transport | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def rank(self) -> tuple[int, int]:
        """The order in which connections are closed for new ones."""
        return self.served, self.number

    @property
    def has_ended(self) -> bool:
        assert self.task is not None
        return self.task.done() and (self.transport is None or self.transport.is_closing())

    def close(self) -> None:
        assert self.task is not None
        self.task.cancel()
        if self.transport is not None:
            self.transport.abort()


class TlsListener:
    """Makes a protocol of ``protocols`` for each connection. With ``client_names``, a client needs one."""

    def __init__(
        self,
        protocols: Protocols,
        tls: ssl.SSLContext,
        client_names: Collection[str] = (),
    ) -> None:
        self.connections: list[Connection] = []
        self._protocols = protocols
        self._tls = tls
        self._client_names = client_names
        self._max_connections = MAX_CONNECTIONS
        self._read_seconds = READ_SECONDS
        self._numbers = count(1)
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None

    def listen(self, host: str, port: int) -> None:
        """Starts to accept connections; without a host, on all addresses. Raises OSError."""
        dual = not host and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual or ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, dualstack_ipv6=dual)
        self._socket.settimeout(0)
        self._accepting = asyncio.ensure_future(self._accept(self._socket))

    def stop(self) -> None:
        """Accepts no more connections; those that are open go on."""
        if self._accepting is not None and self._socket is not None:
            self._accepting.cancel()
            self._socket.close()

    def record_request(self, transport: asyncio.BaseTransport | None) -> None:
        """Records that a whole request arrived on a connection."""
        for connection in self.connections:
            if connection.transport is transport:
                connection.served = next(self._numbers)
                connection.first_request.set()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError:
                await asyncio.sleep(ACCEPT_AGAIN_SECONDS)
                continue
            self._make_room()
            connection = Connection(accepted, next(self._numbers))
            connection.task = asyncio.ensure_future(self._open(connection))
            self.connections.append(connection)

    def _make_room(self) -> None:
        self.connections = [connection for connection in self.connections if not connection.has_ended]
        if len(self.connections) >= self._max_connections:
            victim = min(self.connections, key=lambda connection: connection.rank)
            self.connections.remove(victim)
            victim.close()

    async def _open(self, connection: Connection) -> None:
        """Opens a connection, and closes it unless a whole request follows in time."""
        loop = asyncio.get_running_loop()
        try:
            connection.transport, _ = await loop.connect_accepted_socket(
                self._protocols,
                connection.accepted,
                ssl=self._tls,
                ssl_handshake_timeout=self._read_seconds,
            )
        except OSError:
            connection.accepted.close()
            return
        except asyncio.CancelledError:
            connection.accepted.close()
            raise
        if not self._may_ask(connection.transport):
            connection.transport.abort()
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(connection.first_request.wait(), self._read_seconds)
        if not connection.served:
            connection.transport.abort()

    def _may_ask(self, transport: asyncio.Transport) -> bool:
        """Whether the certificate of a client has one of the names that may ask, if there are any."""
        if not self._client_names:
            return True
        subject = (transport.get_extra_info("peercert") or {}).get("subject", ())
        names = {value for part in subject for key, value in part if key == "commonName"}
        return not names.isdisjoint(self._client_names)
