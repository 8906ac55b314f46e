"""Shared fixtures: real clusters (TCP, TLS), misbehaving sockets, a clone in small."""

import contextlib
import importlib.util
import logging
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from compose_cluster import ComposeCluster, why_no_docker
from docs_site import Site, build
from support import Handler, Serve

if TYPE_CHECKING:
    from distributed import LocalCluster

REQUIRE_ALL = os.environ.get("LAB_REQUIRE_ALL") == "1"
# As distributed's own configuration has them.
DASK_LOGGERS = {
    "distributed": logging.INFO,
    "distributed.client": logging.WARNING,
    "distributed.gc": logging.WARNING,
}

LESSON = '''"""{title}

What:  prints a line.
Why:   to be
       found.
Needs: nothing.
Run:   make run EXAMPLE={name}
"""
{code}
'''


def leave_out(reason: str, remedy: str) -> None:
    """Skip, with the reason and what would bring the test; in CI that is a failure."""
    message = f"{reason}; {remedy}"
    if REQUIRE_ALL:
        pytest.fail(f"{message} (LAB_REQUIRE_ALL=1: nothing may be left out)")
    pytest.skip(message)


@pytest.fixture(scope="session")
def docker_engine() -> None:
    """Leaves the test out where no Docker Engine answers."""
    reason = why_no_docker()
    if reason:
        leave_out(reason, "Docker Engine with Compose brings these tests")


@pytest.fixture(scope="session")
def shared_cluster(docker_engine: None) -> Iterator[ComposeCluster]:
    """A Compose cluster with everything, three workers; tests leave it as it was."""
    compose = ComposeCluster("shared", profiles="storage,monitoring")
    compose.make("up")
    yield compose
    compose.make("down")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No settings of the person who runs the tests; Dask's log levels restored."""
    for name in list(os.environ):
        ours = name.startswith(("DASK_", "COMPOSE_", "LAB_", "AWS_"))
        port = name.endswith("_PORT")
        if ours or port or name in ("NO_COLOR", "PROFILE"):
            monkeypatch.delenv(name)
    yield
    # A session that closes silences Dask, for the rest of what is usually one lesson.
    for logger, level in DASK_LOGGERS.items():
        logging.getLogger(logger).setLevel(level)
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("distributed.") and name not in DASK_LOGGERS:
            logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def cluster() -> Iterator["LocalCluster"]:
    """A scheduler with two workers that speak TCP, in this process."""
    from distributed import LocalCluster

    with LocalCluster(
        processes=False,
        protocol="tcp",
        n_workers=2,
        threads_per_worker=1,
        memory_limit="1GiB",
        dashboard_address="127.0.0.1:0",
    ) as running:
        yield running


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a fresh self-signed certificate: ``cert.pem`` and ``key.pem``."""
    if shutil.which("openssl") is None:
        leave_out("the command openssl is missing", "install it (Debian: openssl)")
    folder = tmp_path_factory.mktemp("certificate")
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=lab "
        "-keyout key.pem -out cert.pem"
    )
    subprocess.run(
        command.split(),
        cwd=folder,
        check=True,
        capture_output=True,
        timeout=60,
    )
    return folder


@pytest.fixture
def tls_settings(certificate: Path) -> Iterator[None]:
    """Dask's configuration names the certificate for every role."""
    import dask

    cert, key = str(certificate / "cert.pem"), str(certificate / "key.pem")
    settings = {"distributed.comm.tls.ca-file": cert}
    for role in ("scheduler", "worker", "client"):
        settings[f"distributed.comm.tls.{role}.cert"] = cert
        settings[f"distributed.comm.tls.{role}.key"] = key
    with dask.config.set(settings):
        yield


@pytest.fixture
def tls_cluster(tls_settings: None) -> Iterator["LocalCluster"]:
    """A scheduler with one worker that speak TLS, in this process."""
    from distributed import LocalCluster
    from distributed.security import Security

    with LocalCluster(
        processes=False,
        protocol="tls",
        security=Security(require_encryption=True),
        n_workers=1,
        threads_per_worker=1,
        memory_limit="1GiB",
        dashboard_address="127.0.0.1:0",
    ) as running:
        yield running


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port of this machine where nothing listens, and nothing will."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]


@pytest.fixture
def black_hole() -> Iterator[int]:
    """A port whose queue is full: the kernel drops whoever else knocks."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(50):
            guest = stack.enter_context(socket.socket())
            guest.settimeout(0.5)
            try:
                guest.connect(listener.getsockname())
            except TimeoutError:
                yield listener.getsockname()[1]
                return
        leave_out("no listener's queue fills up here", "Linux brings this test")


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a server: each connection goes to the handler, in a thread of its own.

    The connection is closed when the handler returns, and at the end of the test.
    """
    listeners: list[socket.socket] = []
    connections: list[socket.socket] = []
    accepting: list[threading.Thread] = []
    handling: list[threading.Thread] = []

    def handle(connection: socket.socket, handler: Handler) -> None:
        with connection, contextlib.suppress(OSError):
            handler(connection)

    def accept(listener: socket.socket, handler: Handler) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connections.append(connection)
                thread = threading.Thread(target=handle, args=(connection, handler))
                handling.append(thread)
                thread.start()

    def start(handler: Handler) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        thread = threading.Thread(target=accept, args=(listener, handler))
        accepting.append(thread)
        thread.start()
        return int(listener.getsockname()[1])

    yield start
    for ends, threads in ((listeners, accepting), (connections, handling)):
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()
    for listener in listeners:
        listener.close()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone in small, which is also the working directory: three lessons."""
    root = tmp_path / "project"
    (root / "examples").mkdir(parents=True)
    (root / "compose.yml").write_text("name: small\n")
    for name, code in {
        "0101_first": "print('first')",
        "0102_second": "raise SystemExit(3)",
        "0201_third": "print('third')",
    }.items():
        text = LESSON.format(title=f"Title of {name}.", name=name, code=code)
        (root / "examples" / f"{name}.py").write_text(text)
    monkeypatch.chdir(root)
    return root


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The documentation site, built anew."""
    if importlib.util.find_spec("sphinx") is None:
        leave_out("Sphinx is not installed", "'make test' brings it")
    return build(tmp_path_factory.mktemp("docs"))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int
) -> None:
    """Say in one line what was left out and what would bring it."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = {
        str(report.longrepr[2]).removeprefix("Skipped: ")
        for report in skipped
        if isinstance(report.longrepr, tuple)
    }
    if skipped:
        terminalreporter.write_line(
            f"left out {len(skipped)} tests: {' | '.join(sorted(reasons))}"
        )
