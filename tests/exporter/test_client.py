"""Servers that misbehave: each way is a failure with a name, in time, in bounds."""

import asyncio
import json
import re
import socket
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import Serve, silent

from dagster_exporter.client import Client
from dagster_exporter.failures import Failure
from dagster_exporter.settings import Settings

SECRET = "hush-hush-4711"
ROOM = 20.0
MIB = 1 << 20


def ask(port: int, scheme: str = "http", **given: Any) -> Any:
    """Ask once; the answer, or the failure raised."""
    settings = Settings(
        endpoint=f"{scheme}://127.0.0.1:{port}/graphql",
        headers={"Authorization": f"Bearer {SECRET}"},
        **{"timeout": ROOM, **given},
    )

    async def once() -> Any:
        client = Client(settings)
        try:
            return await client.ask("daemons")
        finally:
            await client.close()

    return asyncio.run(once())


def question(connection: socket.socket) -> bytes:
    """The whole request: who closes with something unread breaks the connection."""
    read, wanted = b"", 1
    while len(read) < wanted and (chunk := connection.recv(65536)):
        read += chunk
        head, end, _ = read.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        if end:
            wanted = len(head + end) + (int(length[1]) if length else 0)
        else:
            wanted = len(read) + 1
    return read


def reading_first(answer: Callable[[socket.socket], object]) -> Any:
    """A handler that reads the question before it does its mischief."""

    def handle(connection: socket.socket) -> None:
        question(connection)
        answer(connection)

    return handle


def http(status: str, body: bytes, *headers: str) -> bytes:
    head = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(head).encode() + body


def says(answer: bytes) -> Any:
    return reading_first(lambda connection: connection.sendall(answer))


def errors(*messages: str) -> bytes:
    listed = [{"message": message} for message in messages]
    return json.dumps({"data": None, "errors": listed}).encode()


def test_a_good_answer(serve: Serve) -> None:
    assert ask(serve(says(http("200 OK", b'{"data": {"a": 1}}')))) == {"a": 1}


@pytest.mark.parametrize(
    ("answer", "reason", "detail"),
    [
        (http("302 Found", b"", "Location: /login"), "redirect", "login page"),
        (http("307 Temporary Redirect", b"", "Location: x"), "redirect", "login page"),
        (http("200 OK", b"<html>Log in</html>"), "not_json", "no GraphQL answer"),
        (http("200 OK", b"[1]"), "not_json", "no GraphQL answer"),
        (http("200 OK", b'{"data": {'), "not_json", "no GraphQL answer"),
        (http("200 OK", b'{"hello": 1}'), "not_json", "no GraphQL answer"),
        (http("200 OK", b'{"data": null}'), "missing_field", "no data"),
        (http("401 Unauthorized", b""), "unauthorized", "HTTP 401"),
        (http("403 Forbidden", b"{}"), "unauthorized", "HTTP 403"),
        (http("404 Not Found", b"<html>"), "http_status", "HTTP 404"),
        (http("500 Internal Server Error", b"oops"), "http_status", "HTTP 500"),
        (http("502 Bad Gateway", b'{"data": {}}'), "http_status", "HTTP 502"),
        (
            http("500 Internal Server Error", errors("a PythonError: no server")),
            "python_error",
            "no server",
        ),
        (
            http("400 Bad Request", errors("Cannot query field 'x'")),
            "graphql_error",
            "Cannot query field",
        ),
        (http("200 OK", errors("half of it failed")), "graphql_error", "half of it"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "connection_lost", "broke"),
        (b"", "connection_lost", "broke"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", "connection_lost", "broke"),
    ],
)
def test_answers(serve: Serve, answer: bytes, reason: str, detail: str) -> None:
    with pytest.raises(Failure, match=detail) as caught:
        ask(serve(says(answer)))
    assert caught.value.reason == reason


def test_nothing_listens(closed_port: int) -> None:
    with pytest.raises(Failure) as caught:
        ask(closed_port)
    assert caught.value.reason == "unreachable"


def test_a_reset(serve: Serve) -> None:
    def reset(connection: socket.socket) -> None:
        linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    with pytest.raises(Failure) as caught:
        ask(serve(reading_first(reset)))
    assert caught.value.reason == "connection_lost"


def drip_headers(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    for number in range(10_000):
        connection.sendall(b"X-%d: y\r\n" % number)
        time.sleep(0.02)


def drip_body(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
    for _ in range(10_000):
        connection.sendall(b" ")
        time.sleep(0.02)


@pytest.mark.parametrize("handler", [silent, drip_headers, drip_body])
def test_the_deadline_is_for_all_of_it(serve: Serve, handler: Any) -> None:
    start = time.monotonic()
    with pytest.raises(Failure, match=r"no complete answer in 0\.5 s") as caught:
        ask(serve(reading_first(handler)), timeout=0.5)
    assert caught.value.reason == "timeout"
    assert time.monotonic() - start < ROOM


def test_a_queue_that_is_full(black_hole: int) -> None:
    with pytest.raises(Failure) as caught:
        ask(black_hole, timeout=0.5)
    assert caught.value.reason == "timeout"


@pytest.mark.parametrize("length", ["Content-Length: 104857600\r\n", ""])
def test_a_body_of_100_mb(serve: Serve, length: str) -> None:
    sent = []

    def flood(connection: socket.socket) -> None:
        connection.sendall(f"HTTP/1.1 200 OK\r\n{length}\r\n".encode())
        for _ in range(100):
            connection.sendall(b" " * MIB)
            sent.append(MIB)

    with pytest.raises(Failure, match=f"more than {MIB} bytes") as caught:
        ask(serve(reading_first(flood)), max_body=MIB)
    assert caught.value.reason == "too_large"
    assert sum(sent) < 50 * MIB


def test_credentials_are_sent_and_never_told(serve: Serve) -> None:
    asked = []

    def echo(connection: socket.socket) -> None:
        asked.append(question(connection))
        message = f"no access with Bearer {SECRET}; {SECRET} is unknown"
        connection.sendall(http("500 Error", errors(message)))

    with pytest.raises(Failure) as caught:
        ask(serve(echo))
    assert f"Bearer {SECRET}".encode() in asked[0]
    assert "no access with" in str(caught.value)
    assert SECRET not in str(caught.value)


def tls(certificate: Path) -> Any:
    """A handler that speaks TLS with the test's own certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")

    def handle(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secure:
            question(secure)
            secure.sendall(http("200 OK", b'{"data": {}}'))

    return handle


def test_a_certificate_that_nobody_knows(serve: Serve, certificate: Path) -> None:
    port = serve(tls(certificate))
    with pytest.raises(Failure) as caught:
        ask(port, "https")
    assert caught.value.reason == "tls"
    assert ask(port, "https", verify=False) == {}


def test_an_own_authority(serve: Serve, certificate: Path) -> None:
    # The certificate is for the name "lab", and the address is another.
    with pytest.raises(Failure) as caught:
        ask(serve(tls(certificate)), "https", ca_file=certificate / "cert.pem")
    assert caught.value.reason == "tls"
    assert "CERTIFICATE_VERIFY_FAILED" in str(caught.value)


def test_an_own_authority_with_the_right_name(
    serve: Serve, certificate: Path, tmp_path: Path
) -> None:
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=lab "
        "-addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem"
    )
    subprocess.run(
        command.split(), cwd=tmp_path, check=True, capture_output=True, timeout=60
    )
    port = serve(tls(tmp_path))
    assert ask(port, "https", ca_file=tmp_path / "cert.pem") == {}


def test_tls_to_a_server_without(serve: Serve) -> None:
    def plain(connection: socket.socket) -> None:
        connection.recv(65536)  # a greeting of TLS, which has no end that it could see
        connection.sendall(http("400 Bad Request", b""))

    with pytest.raises(Failure) as caught:
        ask(serve(plain), "https")
    assert caught.value.reason == "tls"
