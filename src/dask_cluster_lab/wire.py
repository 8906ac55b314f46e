"""The wire meter: how many bytes does a client really exchange with its scheduler?

A small TCP relay stands between the two and counts what passes, both ways. It never
looks inside, so it measures what the network would carry, framing and all, and the
count does not depend on how fast the machine is. In an in-process cluster there is no
wire; there the meter counts nothing and says so (``NaN``).
"""

import contextlib
import math
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

CHUNK = 256 * 1024


@dataclass
class Traffic:
    """Bytes that passed during a count; ``NaN`` where there is no wire."""

    sent: float = math.nan
    """From the client to the scheduler."""
    received: float = math.nan
    """From the scheduler to the client."""


class NoWire:
    """The meter of a session whose client is not connected through a relay."""

    present = False

    @contextlib.contextmanager
    def count(self) -> Iterator[Traffic]:
        yield Traffic()

    def close(self) -> None:
        pass


@dataclass
class WireMeter:
    """A counting TCP relay to ``host:port``; clients connect to its ``local_port``."""

    host: str
    port: int
    present = True
    sent: int = 0
    received: int = 0
    _open: set[socket.socket] = field(default_factory=set)
    _closed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.local_port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="wire-meter", daemon=True).start()

    @contextlib.contextmanager
    def count(self) -> Iterator[Traffic]:
        """Count the bytes that pass during the ``with`` block.

        The block should end with something that waits for an answer (``gather``), so
        that what it sent has arrived.
        """
        traffic = Traffic()
        with self._lock:
            sent, received = self.sent, self.received
        try:
            yield traffic
        finally:
            with self._lock:
                traffic.sent = self.sent - sent
                traffic.received = self.received - received

    def close(self) -> None:
        """Stop listening and end every connection that passes through."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            self._closed = True
            connections = list(self._open)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        try:
            scheduler = socket.create_connection((self.host, self.port), timeout=10)
        except OSError:
            client.close()
            return
        scheduler.settimeout(None)
        for connection in (client, scheduler):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            closed = self._closed
            if not closed:
                self._open |= {client, scheduler}
        if closed:  # while this connection was being made
            client.close()
            scheduler.close()
            return
        back = threading.Thread(
            target=self._pump, args=(scheduler, client, False), daemon=True
        )
        back.start()
        self._pump(client, scheduler, True)
        back.join()
        with self._lock:
            self._open -= {client, scheduler}
        client.close()
        scheduler.close()

    def _pump(self, source: socket.socket, target: socket.socket, up: bool) -> None:
        """Copy until the source ends, then tell the target; ``up``: from the client."""
        buffer = memoryview(bytearray(CHUNK))
        with contextlib.suppress(OSError):
            while size := source.recv_into(buffer):
                # Counted before it is passed on: whoever waits for the answer to these
                # bytes finds them in the count.
                with self._lock:
                    if up:
                        self.sent += size
                    else:
                        self.received += size
                target.sendall(buffer[:size])
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)
