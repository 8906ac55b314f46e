"""What answers at a scheduler's address? A raw socket finds out, in milliseconds.

Dask's own ``Client`` times only the TCP connection: pointed at a port that accepts and
then stays silent (the dashboard, a database) it hangs for minutes (dask/distributed
issue 8071). But a Dask TCP listener speaks first: whoever connects receives a handshake
of about 66 bytes at once. So reading with a deadline tells a scheduler from all else.
"""

import contextlib
import ipaddress
import os
import re
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from typing import Any, Literal

from dask_cluster_lab.errors import LabError, UsageError

DEFAULT_PORT = 8786
PROBE_SECONDS = 1.8

State = Literal[
    "dask", "refused", "unresolved", "unreachable", "closed", "silent", "other"
]


@dataclass(frozen=True)
class Address:
    """A scheduler's address, for example ``tcp://127.0.0.1:8786``."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


_FORM = re.compile(
    r"(?:(?P<scheme>[a-z]+)://)?(?:\[(?P<ipv6>[0-9a-fA-F:.]+)\]|(?P<host>[\w.-]+)):(?P<port>\d{1,5})",
    re.ASCII,
)


def parse_address(text: str) -> Address:
    """Read ``tcp://host:port``, ``tls://host:port``, ``host:port`` or ``[ipv6]:port``.

    Raises ``UsageError`` for anything else: a typo must not turn into a fallback.
    """
    match = _FORM.fullmatch(text)
    if (
        match
        and (match["scheme"] or "tcp") in ("tcp", "tls")
        and (match["ipv6"] is None or _is_ipv6(match["ipv6"]))
        and 0 < int(match["port"]) < 65536
    ):
        return Address(
            match["scheme"] or "tcp", match["ipv6"] or match["host"], int(match["port"])
        )
    raise UsageError(
        f"{text!r} is not a scheduler address; write it like tcp://127.0.0.1:8786 "
        "(tcp:// or tls://, a host, a port from 1 to 65535)."
    )


def _is_ipv6(text: str) -> bool:
    try:
        return bool(ipaddress.IPv6Address(text))
    except ValueError:
        return False


def scheduler_address() -> Address:
    """The address to connect to, from the environment as it is now.

    ``DASK_SCHEDULER_ADDRESS`` if it is set; otherwise this machine's loopback and
    ``DASK_SCHEDULER_PORT``, the port at which ``compose.yml`` publishes the scheduler.
    """
    text = os.environ.get("DASK_SCHEDULER_ADDRESS")
    if text is None:
        text = (
            f"tcp://127.0.0.1:{os.environ.get('DASK_SCHEDULER_PORT') or DEFAULT_PORT}"
        )
    return parse_address(text)


@dataclass(frozen=True)
class Probe:
    """The answer of one probe: its kind, and a clause that explains it."""

    state: State
    reason: str

    @property
    def is_dask(self) -> bool:
        return self.state == "dask"


def probe(address: Address, seconds: float = PROBE_SECONDS) -> Probe:
    """Connect, read the greeting, hang up; never longer than ``seconds``.

    Raises ``UsageError`` for ``tls://`` without certificates.
    """
    # Not on the clock: this imports distributed, which may take longer than a probe.
    context = tls_context() if address.scheme == "tls" else None
    deadline = time.monotonic() + seconds
    try:
        connection = _connect(address, deadline)
    except socket.gaierror:
        return Probe("unresolved", f"the name {address.host!r} does not resolve")
    except ConnectionRefusedError:
        return Probe("refused", f"nothing listens at {address} (connection refused)")
    except ConnectionResetError:  # so early that connecting did not notice it was done
        return _closed(address)
    except TimeoutError:
        return Probe("unreachable", f"{address} did not answer within {seconds:g} s")
    except OSError as error:
        return Probe("unreachable", f"{address} cannot be reached ({error.strerror})")
    try:
        with connection:
            greeting = _read_greeting(connection, address.host, context, deadline)
    except TimeoutError:
        return Probe(
            "silent",
            f"something at {address} accepts connections but is no Dask scheduler "
            f"(no greeting within {seconds:g} s)",
        )
    except ssl.SSLError as error:
        return Probe(
            "other", f"{address} does not speak TLS as configured ({error.reason})"
        )
    except OSError:
        greeting = b""
    if not greeting:
        return _closed(address)
    if not _is_handshake(greeting):
        return Probe("other", f"what answers at {address} is no Dask scheduler")
    return Probe("dask", f"a Dask process answers at {address}")


def _closed(address: Address) -> Probe:
    return Probe("closed", f"{address} accepts connections and closes them at once")


def _connect(address: Address, deadline: float) -> socket.socket:
    """Try each of the host's addresses in turn until one accepts or time is up."""
    failure: OSError = TimeoutError()
    for family, kind, protocol, _, where in _resolve(address, deadline):
        try:
            connection = socket.socket(family, kind, protocol)
        except OSError as error:  # no such family here, as where IPv6 is switched off
            failure = error
            continue
        try:
            connection.settimeout(_left(deadline))
            connection.connect(where)
            return connection
        except OSError as error:
            failure = error
            connection.close()
    raise failure


def _resolve(address: Address, deadline: float) -> list[Any]:
    """``getaddrinfo`` with a deadline, which the system call itself does not have."""
    answer: list[Any] = []

    def ask() -> None:
        try:
            answer.append(
                socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
            )
        except (OSError, UnicodeError):  # UnicodeError: a label of the name is too long
            answer.append([])

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_left(deadline))
    if not answer or not answer[0]:
        raise socket.gaierror(f"cannot resolve {address.host!r}")
    return answer[0]


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 1e-3)


def _read_greeting(
    connection: socket.socket,
    host: str,
    context: ssl.SSLContext | None,
    deadline: float,
) -> bytes:
    connection.settimeout(_left(deadline))
    if context is not None:
        connection = context.wrap_socket(connection, server_hostname=host)
    greeting = b""
    with connection:
        while b"pickle-protocol" not in greeting and len(greeting) < 1024:
            connection.settimeout(_left(deadline))
            more = connection.recv(1024)
            if not more:
                break
            greeting += more
            if not _is_handshake_start(greeting):
                break
    return greeting


def _is_handshake_start(data: bytes) -> bool:
    """Dask's framing: 8 bytes of length (little-endian), then the frames."""
    return len(data) < 8 or int.from_bytes(data[:8], "little") < 1024


def _is_handshake(data: bytes) -> bool:
    return _is_handshake_start(data) and b"pickle-protocol" in data


def tls_context() -> ssl.SSLContext:
    """The client's TLS context from Dask's configuration (``distributed.comm.tls``)."""
    from distributed.security import Security

    try:
        context = Security().get_connection_args("client").get("ssl_context")
    except OSError as error:  # a missing file, or one that holds no certificate
        raise UsageError(
            "the certificates that distributed.comm.tls names in Dask's configuration "
            f"cannot be used ({error.strerror})."
        ) from error
    if context is None:
        raise UsageError(
            "a tls:// address needs certificates: set distributed.comm.tls.ca-file, "
            "client.cert and client.key in Dask's configuration."
        )
    return context


def scheduler_reachable(
    address: str | Address | None = None, seconds: float = PROBE_SECONDS
) -> bool:
    """Whether Dask answers at ``address`` (default: ``scheduler_address()``)."""
    return probe(_as_address(address), seconds).is_dask


def wait_for_scheduler(
    address: str | Address | None = None, seconds: float = 30
) -> Probe:
    """Probe until Dask answers; ``LabError`` with the last reason after ``seconds``."""
    target = _as_address(address)
    deadline = time.monotonic() + seconds
    while not (answer := probe(target)).is_dask:
        if time.monotonic() > deadline:
            raise LabError(
                f"no scheduler after {seconds:g} s: {answer.reason}; "
                "'make ps' and 'make logs' say more."
            )
        time.sleep(0.1)
    return answer


def _as_address(address: str | Address | None) -> Address:
    if address is None:
        return scheduler_address()
    return parse_address(address) if isinstance(address, str) else address


def free_ports(number: int) -> list[int]:
    """Different ports of this machine's loopback that nothing uses at the moment."""
    with contextlib.ExitStack() as stack:
        return [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            for _ in range(number)
        ]
