"""The probe: every form of address, and every kind of thing that may answer there."""

import http.server
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support import Serve, silent

from dask_cluster_lab import probe as module
from dask_cluster_lab.errors import LabError, UsageError
from dask_cluster_lab.probe import (
    Address,
    Probe,
    parse_address,
    probe,
    scheduler_address,
    scheduler_reachable,
    wait_for_scheduler,
)

if TYPE_CHECKING:
    from distributed import LocalCluster

ROOM = 60.0
"""Seconds that a probe of well under two may take on a busy machine."""


def loopback(port: int) -> Address:
    return Address("tcp", "127.0.0.1", port)


def timed_probe(address: Address, seconds: float = 10) -> Probe:
    """Probe, and require that it ended in time.

    Ten seconds where the answer comes at once; one where it has to run out.
    """
    start = time.monotonic()
    answer = probe(address, seconds)
    assert time.monotonic() - start < ROOM
    return answer


def read_greeting(address: Address) -> bytes:
    """What a real scheduler says first."""
    with socket.create_connection((address.host, address.port), timeout=ROOM) as peer:
        return peer.recv(1024)


# Addresses


@pytest.mark.parametrize(
    ("text", "address", "written"),
    [
        (
            "tcp://127.0.0.1:8786",
            Address("tcp", "127.0.0.1", 8786),
            "tcp://127.0.0.1:8786",
        ),
        (
            "tls://scheduler:8786",
            Address("tls", "scheduler", 8786),
            "tls://scheduler:8786",
        ),
        ("localhost:1", Address("tcp", "localhost", 1), "tcp://localhost:1"),
        ("my_host-1.lan:65535", Address("tcp", "my_host-1.lan", 65535), None),
        ("[::1]:8786", Address("tcp", "::1", 8786), "tcp://[::1]:8786"),
        ("tls://[fe80::A:1]:80", Address("tls", "fe80::A:1", 80), None),
        (
            "tcp://[::ffff:10.0.0.1]:80",
            Address("tcp", "::ffff:10.0.0.1", 80),
            "tcp://[::ffff:10.0.0.1]:80",
        ),
    ],
)
def test_parse_address(text: str, address: Address, written: str | None) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address
    if written is not None:
        assert str(address) == written


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "tcp://",
        "127.0.0.1",
        "tcp://127.0.0.1",
        "tcp://127.0.0.1:",
        "tcp://:8786",
        "tcp://127.0.0.1:0",
        "tcp://127.0.0.1:65536",
        "tcp://127.0.0.1:-1",
        "tcp://127.0.0.1:123456",
        "tcp://127.0.0.1:87a6",
        "tcp://127.0.0.1:8786/",
        "tcp://127.0.0.1:8786/status",
        "tcp://127.0.0.1:8786?x=1",
        " tcp://127.0.0.1:8786",
        "tcp://127.0.0.1:8786 ",
        "tcp://127.0.0.1:8786\n",
        "tcp://127.0.0 .1:8786",
        "tcp:/127.0.0.1:8786",
        "tcp//127.0.0.1:8786",
        "TCP://127.0.0.1:8786",
        "http://127.0.0.1:8786",
        "https://127.0.0.1:8786",
        "ucx://127.0.0.1:8786",
        "inproc://127.0.0.1:8786",
        "user@host:8786",
        "::1:8786",
        "[::1]",
        "[]:8786",
        "[:]:8786",
        "[1.2.3.4]:8786",
        "[1::2::3]:8786",
        "[host]:8786",
        "tcp://h\u00f6st:8786",
        "tcp://127.0.0.1:\uff18\uff17\uff18\uff16",
        "tcp://127.0.0.1:\u0668\u0667\u0668\u0666",
        "tcp://127.0.0.1\uff1a8786",
    ],
)
def test_malformed_addresses(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_address(text)
    assert str(caught.value) == (
        f"{text!r} is not a scheduler address; write it like tcp://127.0.0.1:8786 "
        "(tcp:// or tls://, a host, a port from 1 to 65535)."
    )
    assert caught.value.exit_status == 2


def test_the_environment_is_read_at_call_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert scheduler_address() == loopback(8786)
    monkeypatch.setenv("DASK_SCHEDULER_PORT", "9999")
    assert scheduler_address() == loopback(9999)
    monkeypatch.setenv("DASK_SCHEDULER_PORT", "")
    assert scheduler_address() == loopback(8786)
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", "tls://far:1234")
    assert scheduler_address() == Address("tls", "far", 1234)
    monkeypatch.setenv("DASK_SCHEDULER_PORT", "nonsense")
    assert scheduler_address() == Address("tls", "far", 1234)


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("DASK_SCHEDULER_ADDRESS", "", "''"),
        ("DASK_SCHEDULER_ADDRESS", "far", "'far'"),
        ("DASK_SCHEDULER_PORT", "nonsense", "'tcp://127.0.0.1:nonsense'"),
        ("DASK_SCHEDULER_PORT", "0", "'tcp://127.0.0.1:0'"),
    ],
)
def test_a_malformed_environment_is_an_error(
    name: str, value: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match="is not a scheduler address") as caught:
        scheduler_address()
    assert str(caught.value).startswith(f"{shown} is not")


# Nothing there


def test_a_closed_port_is_refused(closed_port: int) -> None:
    assert timed_probe(loopback(closed_port)) == Probe(
        "refused",
        f"nothing listens at tcp://127.0.0.1:{closed_port} (connection refused)",
    )


def test_a_name_that_does_not_resolve() -> None:
    answer = timed_probe(Address("tcp", "scheduler.invalid", 8786))
    assert answer == Probe(
        "unresolved", "the name 'scheduler.invalid' does not resolve"
    )


@pytest.mark.parametrize("host", ["a..b", "x" * 300])
def test_a_name_that_cannot_be_asked_for(host: str) -> None:
    answer = timed_probe(Address("tcp", host, 8786))
    assert answer == Probe("unresolved", f"the name {host!r} does not resolve")


def test_a_resolver_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    look_up = socket.getaddrinfo

    def hang(host: str, *arguments: Any, **options: Any) -> Any:
        if host != "slow.invalid":
            return look_up(host, *arguments, **options)
        over.wait(60)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    answer = timed_probe(Address("tcp", "slow.invalid", 8786), seconds=1)
    over.set()
    assert answer == Probe("unresolved", "the name 'slow.invalid' does not resolve")


def test_a_black_hole(black_hole: int) -> None:
    address = loopback(black_hole)
    assert timed_probe(address, seconds=1) == Probe(
        "unreachable", f"{address} did not answer within 1 s"
    )


def test_an_address_that_the_system_will_not_route() -> None:
    # A broadcast address: connecting to it over TCP fails at once.
    answer = timed_probe(Address("tcp", "255.255.255.255", 8786))
    assert answer.state == "unreachable"
    assert answer.reason.startswith("tcp://255.255.255.255:8786 cannot be reached (")
    assert "None" not in answer.reason


# Something else there


def test_a_listener_that_stays_silent(serve: Serve) -> None:
    port = serve(silent)
    assert timed_probe(loopback(port), seconds=1) == Probe(
        "silent",
        f"something at tcp://127.0.0.1:{port} accepts connections but is no Dask "
        "scheduler (no greeting within 1 s)",
    )


def close_at_once(connection: socket.socket) -> None:
    pass


def reset_at_once(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize("handler", [close_at_once, reset_at_once])
def test_a_listener_that_hangs_up(
    handler: Callable[[socket.socket], None], serve: Serve
) -> None:
    port = serve(handler)
    assert timed_probe(loopback(port)) == Probe(
        "closed",
        f"tcp://127.0.0.1:{port} accepts connections and closes them at once",
    )


def test_a_reset_while_still_connecting(
    closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reset(*_: object) -> socket.socket:
        raise ConnectionResetError(104, "Connection reset by peer")

    monkeypatch.setattr(module, "_connect", reset)
    assert timed_probe(loopback(closed_port)).state == "closed"


@pytest.mark.parametrize(
    "banner",
    [
        b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n",
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        b"220 mail ESMTP\r\n",
        b"J\0\0\0\x0a8.0.36\0" + bytes(60),  # MySQL
        b"pickle-protocol",
        b"\xff" * 5000,
    ],
)
def test_another_protocol_that_speaks_first(banner: bytes, serve: Serve) -> None:
    def greet(connection: socket.socket) -> None:
        connection.sendall(banner)
        silent(connection)

    port = serve(greet)
    assert timed_probe(loopback(port)) == Probe(
        "other", f"what answers at tcp://127.0.0.1:{port} is no Dask scheduler"
    )


@pytest.mark.parametrize("word", [b"hi", b"hello, world\n"])
def test_a_short_word_and_the_end(word: bytes, serve: Serve) -> None:
    port = serve(lambda connection: connection.sendall(word))
    assert timed_probe(loopback(port)).state == "other"


def test_a_short_word_and_silence(serve: Serve) -> None:
    def greet(connection: socket.socket) -> None:
        connection.sendall(b"hi")
        silent(connection)

    assert timed_probe(loopback(serve(greet)), seconds=1).state == "silent"


def test_a_web_server_waits_for_the_client() -> None:
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), http.server.BaseHTTPRequestHandler
    ) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        answer = timed_probe(loopback(server.server_port), seconds=1)
        server.shutdown()
        thread.join()
    assert answer.state == "silent"


@pytest.mark.parametrize("pace", [0.0, 0.02])
def test_a_drip_of_bytes_does_not_outlast_the_deadline(
    pace: float, serve: Serve
) -> None:
    over = threading.Event()

    def drip(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall((900).to_bytes(8, "little"))
        while not over.wait(pace):
            connection.sendall(b"\0")

    port = serve(drip)
    answer = timed_probe(loopback(port), seconds=1 if pace else 10)
    over.set()
    assert answer.state == ("silent" if pace else "other")


# Dask there


def test_a_scheduler(cluster: "LocalCluster") -> None:
    address = parse_address(cluster.scheduler_address)
    answer = timed_probe(address)
    assert answer == Probe("dask", f"a Dask process answers at {address}")
    assert answer.is_dask
    assert scheduler_reachable(address, seconds=10) is True
    assert scheduler_reachable(str(address), seconds=10) is True
    assert wait_for_scheduler(address) == answer


def test_a_scheduler_by_name(cluster: "LocalCluster") -> None:
    # localhost is often ::1 first, where this scheduler does not listen.
    port = parse_address(cluster.scheduler_address).port
    assert timed_probe(Address("tcp", "localhost", port)).is_dask


def test_the_address_in_the_environment_is_the_default(
    cluster: "LocalCluster", closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", cluster.scheduler_address)
    assert scheduler_reachable(seconds=5) is True
    assert wait_for_scheduler().is_dask
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", f"127.0.0.1:{closed_port}")
    assert scheduler_reachable(seconds=5) is False


def test_a_greeting_in_single_bytes(cluster: "LocalCluster", serve: Serve) -> None:
    greeting = read_greeting(parse_address(cluster.scheduler_address))
    assert 40 < len(greeting) < 200
    assert int.from_bytes(greeting[:8], "little") == len(greeting) - 8

    def spell(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in greeting:
            connection.sendall(bytes([byte]))
        silent(connection)

    assert timed_probe(loopback(serve(spell))).is_dask


def test_the_next_address_of_a_name_is_tried(
    cluster: "LocalCluster", closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = parse_address(cluster.scheduler_address).port
    stream = socket.SOCK_STREAM
    found = [
        (-7, stream, 0, "", ("no such family", port)),  # as where IPv6 is switched off
        (socket.AF_INET, stream, 0, "", ("127.0.0.1", closed_port)),
        (socket.AF_INET, stream, 0, "", ("127.0.0.1", port)),
    ]
    monkeypatch.setattr(module, "_resolve", lambda *_: found)
    assert timed_probe(Address("tcp", "three-addresses", port)).is_dask
    monkeypatch.setattr(module, "_resolve", lambda *_: found[:2])
    assert timed_probe(Address("tcp", "two-addresses", port)).state == "refused"


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
def test_ipv6() -> None:
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=0,
        processes=False,
        protocol="tcp",
        host="[::1]",
        dashboard_address="127.0.0.1:0",
    ) as running:
        address = parse_address(running.scheduler_address)
        assert address.host == "::1"
        assert timed_probe(address).is_dask


# TLS


def test_tls_without_certificates(serve: Serve, closed_port: int) -> None:
    for port in (serve(silent), closed_port):
        with pytest.raises(UsageError) as caught:
            timed_probe(Address("tls", "127.0.0.1", port))
        assert str(caught.value) == (
            "a tls:// address needs certificates: set distributed.comm.tls.ca-file, "
            "client.cert and client.key in Dask's configuration."
        )


def test_certificates_are_not_read_on_the_clock(
    tls_settings: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []

    def context() -> None:
        steps.append("certificates")

    def connect(address: Address, deadline: float) -> socket.socket:
        steps.append("connection")
        assert 0 < deadline - time.monotonic() <= 30
        raise ConnectionRefusedError

    monkeypatch.setattr(module, "tls_context", context)
    monkeypatch.setattr(module, "_connect", connect)
    assert timed_probe(Address("tls", "far", 8786), seconds=30).state == "refused"
    assert steps == ["certificates", "connection"]


@pytest.mark.parametrize("broken", ["missing file", "not a certificate"])
def test_tls_with_a_certificate_that_cannot_be_read(
    broken: str, serve: Serve, tmp_path: Path
) -> None:
    import dask

    path = str(tmp_path / "cert.pem")
    if broken == "not a certificate":
        Path(path).write_text("nonsense")
    settings = dict.fromkeys(
        (f"distributed.comm.tls.{name}" for name in ("ca-file", "client.cert")), path
    )
    address = Address("tls", "127.0.0.1", serve(silent))
    with (
        dask.config.set(settings),
        pytest.raises(UsageError, match=r"cannot be used") as caught,
    ):
        timed_probe(address)
    assert "distributed.comm.tls" in str(caught.value)


def test_a_tls_scheduler(tls_cluster: "LocalCluster") -> None:
    address = parse_address(tls_cluster.scheduler_address)
    assert address.scheme == "tls"
    answer = timed_probe(address)
    assert answer == Probe("dask", f"a Dask process answers at {address}")


def test_a_tls_scheduler_addressed_without_tls(tls_cluster: "LocalCluster") -> None:
    address = loopback(parse_address(tls_cluster.scheduler_address).port)
    assert timed_probe(address, seconds=1).state == "silent"


def test_a_plain_scheduler_addressed_with_tls(
    cluster: "LocalCluster", tls_settings: None
) -> None:
    port = parse_address(cluster.scheduler_address).port
    answer = timed_probe(Address("tls", "127.0.0.1", port))
    assert answer.state == "other"
    assert answer.reason.startswith(
        f"tls://127.0.0.1:{port} does not speak TLS as configured ("
    )


def test_a_tls_listener_that_never_shakes_hands(
    serve: Serve, tls_settings: None
) -> None:
    address = Address("tls", "127.0.0.1", serve(silent))
    assert timed_probe(address, seconds=1).state == "silent"


# Waiting


def test_waiting_for_a_scheduler_that_comes_late(
    cluster: "LocalCluster", monkeypatch: pytest.MonkeyPatch
) -> None:
    greeting = read_greeting(parse_address(cluster.scheduler_address))
    states = []
    with socket.socket() as late:
        late.bind(("127.0.0.1", 0))

        def greet() -> None:
            late.listen()
            connection, _ = late.accept()
            with connection:
                connection.sendall(greeting)

        thread = threading.Thread(target=greet, daemon=True)

        def counted(address: Address, *seconds: float) -> Probe:
            answer = probe(address, *seconds)
            states.append(answer.state)
            if len(states) == 3:
                thread.start()
            return answer

        monkeypatch.setattr(module, "probe", counted)
        answer = wait_for_scheduler(loopback(late.getsockname()[1]), seconds=ROOM)
        thread.join(ROOM)
    assert answer.is_dask
    assert states[:3] == ["refused"] * 3
    assert states[-1] == "dask"


def test_waiting_in_vain(closed_port: int) -> None:
    start = time.monotonic()
    with pytest.raises(LabError) as caught:
        wait_for_scheduler(f"127.0.0.1:{closed_port}", seconds=0.3)
    assert 0.3 <= time.monotonic() - start < ROOM
    assert str(caught.value) == (
        f"no scheduler after 0.3 s: nothing listens at tcp://127.0.0.1:{closed_port} "
        "(connection refused); 'make ps' and 'make logs' say more."
    )
    assert caught.value.exit_status == 1


def test_waiting_for_a_malformed_address() -> None:
    with pytest.raises(UsageError):
        wait_for_scheduler("http://127.0.0.1:8786")
    with pytest.raises(UsageError):
        scheduler_reachable("127.0.0.1")
