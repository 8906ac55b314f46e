"""The wire meter: exact counts through a relay, and an honest nothing without one."""

import contextlib
import math
import socket
import threading
from collections.abc import Iterator

import pytest
from support import Serve, eventually

from dask_cluster_lab.wire import NoWire, Traffic, WireMeter

ROOM = 60.0


def echo(connection: socket.socket) -> None:
    while data := connection.recv(65536):
        connection.sendall(data)


@pytest.fixture
def meter(serve: Serve) -> Iterator[WireMeter]:
    """A relay to a server that sends everything back."""
    relay = WireMeter("127.0.0.1", serve(echo))
    yield relay
    relay.close()


def dial(relay: WireMeter) -> socket.socket:
    return socket.create_connection(("127.0.0.1", relay.local_port), timeout=ROOM)


def read(connection: socket.socket, size: int) -> bytes:
    """Exactly ``size`` bytes, or fewer if the other end stops."""
    data = b""
    while len(data) < size and (more := connection.recv(size - len(data))):
        data += more
    return data


def exchange(connection: socket.socket, data: bytes) -> bytes:
    """Send, and read as much back; in turns, so that no buffer fills up."""
    sending = threading.Thread(target=connection.sendall, args=(data,))
    sending.start()
    answer = read(connection, len(data))
    sending.join(ROOM)
    return answer


@pytest.mark.parametrize("size", [1, 1000, 262_144, 262_145, 3_000_000])
def test_every_byte_is_counted(size: int, meter: WireMeter) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    with dial(meter) as connection, meter.count() as traffic:
        assert exchange(connection, data[:size]) == data[:size]
    assert traffic == Traffic(sent=size, received=size)
    assert (meter.sent, meter.received) == (size, size)


def test_both_ways_are_told_apart(serve: Serve) -> None:
    def answer(connection: socket.socket) -> None:
        read(connection, 7)
        connection.sendall(b"x" * 4321)

    relay = WireMeter("127.0.0.1", serve(answer))
    with dial(relay) as connection, relay.count() as traffic:
        connection.sendall(b"request")
        assert len(read(connection, 4321)) == 4321
    assert (traffic.sent, traffic.received) == (7, 4321)
    relay.close()


def test_counts_one_after_the_other(meter: WireMeter) -> None:
    with dial(meter) as connection:
        exchange(connection, b"not counted")
        with meter.count() as first:
            exchange(connection, b"12345")
        exchange(connection, b"not counted either")
        with meter.count() as second:
            exchange(connection, b"123")
            exchange(connection, b"4567")
        with meter.count() as nothing:
            pass
    assert (first.sent, first.received) == (5, 5)
    assert (second.sent, second.received) == (7, 7)
    assert (nothing.sent, nothing.received) == (0, 0)


def test_counts_in_each_other(meter: WireMeter) -> None:
    with dial(meter) as connection, meter.count() as outer:
        exchange(connection, b"12")
        with meter.count() as inner:
            exchange(connection, b"345")
        exchange(connection, b"6789")
    assert (inner.sent, inner.received) == (3, 3)
    assert (outer.sent, outer.received) == (9, 9)


def test_a_count_is_not_known_before_its_end(meter: WireMeter) -> None:
    with dial(meter) as connection, meter.count() as traffic:
        exchange(connection, b"12345")
        assert math.isnan(traffic.sent)
        assert math.isnan(traffic.received)
    assert traffic.sent == 5


def test_what_passed_before_an_error_is_counted(meter: WireMeter) -> None:
    with (
        dial(meter) as connection,
        contextlib.suppress(ValueError),
        meter.count() as traffic,
    ):
        exchange(connection, b"12345")
        raise ValueError("as a call that fails on purpose")
    assert (traffic.sent, traffic.received) == (5, 5)


def test_several_connections_add_up(meter: WireMeter) -> None:
    with dial(meter) as one, dial(meter) as two, meter.count() as traffic:
        exchange(one, b"123")
        exchange(two, b"45678")
        exchange(one, b"9")
    assert (traffic.sent, traffic.received) == (9, 9)


def test_many_connections_at_once(meter: WireMeter) -> None:
    def talk() -> None:
        with dial(meter) as connection:
            for _ in range(20):
                exchange(connection, b"x" * 1000)

    threads = [threading.Thread(target=talk) for _ in range(8)]
    with meter.count() as traffic:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(ROOM)
    assert (traffic.sent, traffic.received) == (160_000, 160_000)


def test_half_close(serve: Serve) -> None:
    """The client says that it has no more to say, and still gets the answer."""

    def answer_at_the_end(connection: socket.socket) -> None:
        total = 0
        while data := connection.recv(65536):
            total += len(data)
        connection.sendall(f"{total} bytes".encode())

    relay = WireMeter("127.0.0.1", serve(answer_at_the_end))
    with dial(relay) as connection:
        connection.sendall(b"x" * 100_000)
        connection.shutdown(socket.SHUT_WR)
        assert read(connection, 100) == b"100000 bytes"
    assert (relay.sent, relay.received) == (100_000, 12)
    relay.close()


def test_the_target_hangs_up(serve: Serve) -> None:
    relay = WireMeter("127.0.0.1", serve(lambda connection: None))
    with dial(relay) as connection:
        assert read(connection, 1) == b""
    assert (relay.sent, relay.received) == (0, 0)
    relay.close()


def test_the_target_hangs_up_on_a_client_that_goes_on(serve: Serve) -> None:
    """Nothing is swallowed for ever: the client learns that nobody reads."""
    relay = WireMeter("127.0.0.1", serve(lambda connection: None))
    with dial(relay) as connection:

        def broken() -> bool:
            try:
                connection.sendall(b"x" * 1000)
            except ConnectionError:
                return True
            return False

        eventually(broken, "the end of the connection")
    relay.close()


def test_the_client_hangs_up(serve: Serve) -> None:
    ended = threading.Event()

    def wait_for_the_end(connection: socket.socket) -> None:
        echo(connection)
        ended.set()

    relay = WireMeter("127.0.0.1", serve(wait_for_the_end))
    with dial(relay) as connection:
        exchange(connection, b"hello")
    assert ended.wait(ROOM)
    eventually(lambda: not relay._open, "the relay to forget the connection")
    relay.close()


def test_the_target_is_down(closed_port: int) -> None:
    relay = WireMeter("127.0.0.1", closed_port)
    with dial(relay) as connection, relay.count() as traffic:
        assert read(connection, 1) == b""
    assert (traffic.sent, traffic.received) == (0, 0)
    relay.close()


def test_the_target_does_not_resolve() -> None:
    relay = WireMeter("scheduler.invalid", 8786)
    with dial(relay) as connection:
        assert read(connection, 1) == b""
    relay.close()


def test_close_ends_connections_and_listening(meter: WireMeter) -> None:
    with dial(meter) as connection:
        exchange(connection, b"hello")
        meter.close()
        assert read(connection, 1) == b""
    with pytest.raises(ConnectionRefusedError):
        dial(meter)
    eventually(lambda: not meter._open, "the relay to forget the connection")
    assert meter.sent == 5


def test_close_ends_a_connection_that_is_being_made(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = WireMeter("127.0.0.1", serve(echo))
    connecting, closed = threading.Event(), threading.Event()
    really_connect = socket.create_connection

    def slow(address: tuple[str, int], timeout: float) -> socket.socket:
        if address[1] == relay.port:
            connecting.set()
            closed.wait(ROOM)
        return really_connect(address, timeout)

    monkeypatch.setattr(socket, "create_connection", slow)
    with dial(relay) as connection:
        assert connecting.wait(ROOM)
        relay.close()
        closed.set()
        assert read(connection, 1) == b""


def test_close_twice(meter: WireMeter) -> None:
    meter.close()
    meter.close()
    assert (meter.sent, meter.received) == (0, 0)


def test_no_wire() -> None:
    wire = NoWire()
    assert wire.present is False
    with wire.count() as traffic:
        pass
    assert math.isnan(traffic.sent)
    assert math.isnan(traffic.received)
    assert math.isnan(traffic.sent / 5)
    wire.close()
    assert WireMeter.present is True
