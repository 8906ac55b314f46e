"""Dagster and the exporter as processes of this machine, in a folder of their own."""

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from dask_cluster_lab.commands.catalogue import project_root
from dask_cluster_lab.errors import LabError
from dask_cluster_lab.orchestrator.api import Dagster
from dask_cluster_lab.probe import free_ports

START_SECONDS = 300.0
"""Dagster starts within ten seconds or so on an idle machine, minutes on a busy one."""
END_SECONDS = 20.0
STORAGE = """
from dagster import DagsterInstance

with DagsterInstance.get() as instance:
    instance.get_runs()
    instance.get_asset_keys()
    instance.all_instigator_state()
"""


def dagster_project() -> Path:
    """The project that pins Dagster, with the lab's sample jobs."""
    return project_root() / "monitoring" / "dagster"


def programs() -> Path:
    """Where Dagster's programs are, if that project has been installed."""
    return dagster_project() / ".venv" / "bin"


def is_installed() -> bool:
    """Whether Dagster and what the exporter needs are there."""
    return (programs() / "dagster-webserver").exists() and bool(
        importlib.util.find_spec("httpx")
    )


class LocalDagster:
    """One instance of Dagster; its state, and what it logs, is in ``folder``.

    Three processes, as in containers: the code, the webserver, the daemon. Nothing runs
    until ``start``, and nothing is left of it after ``close``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir()
        shutil.copy(dagster_project() / "dagster.yaml", self.home)
        self.port, self.code_port = free_ports(2)
        self.dagster = Dagster(f"http://127.0.0.1:{self.port}/graphql")
        self._processes: list[subprocess.Popen[str]] = []
        self.web: subprocess.Popen[str] | None = None
        self.daemon: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start everything; return when it works. ``LabError`` if it does not."""
        self.make_storage()
        code = self.run(
            *("dagster", "api", "grpc", "--host", "127.0.0.1"),
            *("--port", str(self.code_port)),
            *("--python-file", str(dagster_project() / "sample_jobs.py")),
        )
        self._wait_for(code, self._code_answers, "Dagster's code server")
        self.start_daemon()
        self.start_web()
        self._wait_for(self.daemon, self.dagster.daemons_are_well, "Dagster's daemon")

    def make_storage(self) -> None:
        """Make all tables: two programs would be in each other's way doing that."""
        made = self.run("python", "-c", STORAGE)
        wait_until(lambda: made.poll() is not None, "Dagster's storage")

    def _code_answers(self) -> bool:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.code_port)).close()
            return True
        return False

    def start_web(self) -> None:
        """Start the webserver; return when every code location was tried."""
        where = ("--host", "127.0.0.1", "--port", str(self.port))
        self.web = self.run("dagster-webserver", *where, *self.workspace("web"))
        self._wait_for(self.web, self.dagster.is_loaded, "Dagster's webserver")

    def start_daemon(self) -> None:
        """Start the daemon; do not wait for it."""
        self.daemon = self.run("dagster-daemon", "run", *self.workspace("daemon"))

    def _wait_for(
        self,
        process: subprocess.Popen[str] | None,
        condition: Callable[[], bool],
        what: str,
    ) -> None:
        """Wait for a condition that a process brings about, as long as it runs."""
        assert process
        wait_until(lambda: process.poll() is not None or condition(), what)
        if process.poll() is not None:
            log = (self.folder / "dagster.log").read_text().strip().splitlines()
            raise LabError(f"{what} ended: {log[-1] if log else 'it said nothing'}.")

    def workspace(self, name: str) -> tuple[str, str]:
        """Write a workspace file for a program; the option that names it."""
        server = {"host": "127.0.0.1", "port": self.code_port, "location_name": "lab"}
        path = self.folder / f"{name}.yaml"
        path.write_text(json.dumps({"load_from": [{"grpc_server": server}]}))
        return "--workspace", str(path)  # JSON is YAML too

    def run(
        self, name: str, *arguments: str, talks: bool = False
    ) -> subprocess.Popen[str]:
        """Start one of Dagster's programs; it ends with ``close`` at the latest.

        If this process is killed, it ends as well (where the system can do that). One
        that ``talks`` does so through pipes; of the others all goes into a log.
        """
        pipe = subprocess.PIPE
        with (self.folder / "dagster.log").open("a") as log:
            process = subprocess.Popen(
                [*with_parent(), str(programs() / name), *arguments],
                env={
                    **os.environ,
                    "DAGSTER_HOME": str(self.home),
                    "DAGSTER_DISABLE_TELEMETRY": "1",
                },
                stdin=pipe if talks else subprocess.DEVNULL,
                stdout=pipe if talks else log,
                stderr=log,
                text=True,
                cwd=self.folder,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    @contextlib.contextmanager
    def frozen(self, process: subprocess.Popen[str] | None) -> Iterator[None]:
        """The process neither ends nor answers, for the length of a block."""
        assert process
        os.kill(process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            self.wake(process)

    def wake(self, process: subprocess.Popen[str] | None) -> None:
        """Let a frozen process go on."""
        assert process
        os.kill(process.pid, signal.SIGCONT)

    def stop(
        self, process: subprocess.Popen[str] | None, patience: float = END_SECONDS
    ) -> None:
        """End a process with everything that it started."""
        if process is None:
            return
        for number in (signal.SIGCONT, signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            if number == signal.SIGTERM:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(patience)
        process.wait(END_SECONDS)
        for pipe in (process.stdin, process.stdout):
            if pipe:
                pipe.close()

    def close(self) -> None:
        """Leave nothing behind; the runs that Dagster started end as well."""
        for process in self._processes:
            self.stop(process)


@contextlib.contextmanager
def local_exporter(endpoint: str, log: Path) -> Iterator[str]:
    """An exporter that watches ``endpoint`` and logs to a file; its address."""
    arguments = ("--listen=127.0.0.1:0", "--interval=1", "--timeout=5")
    command = ("-m", "dagster_exporter", f"--endpoint={endpoint}", *arguments)
    with running_python(*command, log=log) as process:
        wait_until(
            lambda: "\n" in log.read_text() or process.poll() is not None,
            "the exporter",
        )
        said = log.read_text().partition("\n")[0]
        if process.poll() is not None:
            raise LabError(f"the exporter did not start: {said}")
        yield f"http://127.0.0.1:{json.loads(said)['port']}"


@contextlib.contextmanager
def other_server(port: int) -> Iterator[None]:
    """A server of files at a port of this machine, which is no Dagster."""
    with tempfile.TemporaryDirectory() as folder:
        command = ("-m", "http.server", str(port), "--bind", "127.0.0.1")
        with running_python(*command, "--directory", folder, log=Path(folder) / "log"):
            yield


@contextlib.contextmanager
def running_python(*arguments: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Python with these arguments, for the length of a block."""
    with log.open("w") as file:
        command = [*with_parent(), sys.executable, *arguments]
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(END_SECONDS)


def with_parent() -> tuple[str, ...]:
    """What to put before a command that is to end if this process is killed."""
    if shutil.which("setpriv") is None:
        return ()
    return ("setpriv", "--pdeathsig", "TERM", "--")


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Return as soon as ``condition()`` holds; ``LabError`` if it never does."""
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise LabError(f"{what} did not start within {START_SECONDS:g} s.")
        time.sleep(0.1)
