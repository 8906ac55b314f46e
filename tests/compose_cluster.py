"""A Compose cluster for tests: own project, ports and image, driven through make."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

from distributed import Client
from support import eventually

from dask_cluster_lab.probe import free_ports

ROOT = Path(__file__).parents[1]
IMAGE = "dask-cluster-lab-test"


def docker(*arguments: str) -> str:
    """Output of a docker command that must work."""
    done = subprocess.run(
        ["docker", *arguments], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout.strip()


def why_no_docker() -> str:
    """Why Compose tests cannot run here; empty if they can."""
    if shutil.which("docker") is None:
        return "docker is not installed"
    done = subprocess.run(["docker", "info"], capture_output=True, check=False)
    return "" if done.returncode == 0 else "no Docker Engine answers"


@dataclass
class ComposeCluster:
    """One Compose project and the environment in which commands find it."""

    name: str
    workers: int = 3
    scheduler_port: int = 0
    dashboard_port: int = 0
    object_store_port: int = 0
    prometheus_port: int = 0
    pushgateway_port: int = 0
    grafana_port: int = 0
    dagster_port: int = 0
    dagster_exporter_port: int = 0
    profiles: str = ""
    """What it starts beside scheduler and workers, as in ``storage,monitoring``."""

    def __post_init__(self) -> None:
        """Give each port that was not chosen one that is free."""
        names = [field.name for field in fields(self) if field.name.endswith("_port")]
        for name, port in zip(names, free_ports(len(names)), strict=True):
            setattr(self, name, getattr(self, name) or port)

    @property
    def project(self) -> str:
        """Its Compose project; ``.ci/run`` clears away what begins like this."""
        return f"dask-lab-test-{self.name}-{os.getpid()}"

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self.scheduler_port}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "COMPOSE_PROJECT_NAME": self.project,
            "LAB_IMAGE": IMAGE,
            "DASK_WORKERS": str(self.workers),
            "DASK_SCHEDULER_PORT": str(self.scheduler_port),
            "DASK_DASHBOARD_PORT": str(self.dashboard_port),
            "OBJECT_STORE_PORT": str(self.object_store_port),
            "PROMETHEUS_PORT": str(self.prometheus_port),
            "PUSHGATEWAY_PORT": str(self.pushgateway_port),
            "GRAFANA_PORT": str(self.grafana_port),
            "DAGSTER_PORT": str(self.dagster_port),
            "DAGSTER_EXPORTER_PORT": str(self.dagster_exporter_port),
            "COMPOSE_PROFILES": self.profiles,
        }

    def make(
        self, *arguments: str, expect: int | None = 0, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run ``make ARGUMENTS`` against this cluster, as a person would."""
        done = subprocess.run(
            ["make", *arguments],
            cwd=ROOT,
            env={**os.environ, **self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if expect is not None:
            assert done.returncode == expect, done.stdout + done.stderr
        return done

    def containers(self, service: str = "", running: bool = True) -> list[str]:
        """Names of this project's containers, sorted."""
        filters = ["--filter", f"label=com.docker.compose.project={self.project}"]
        if service:
            filters += ["--filter", f"label=com.docker.compose.service={service}"]
        names = docker(
            "ps", *([] if running else ["--all"]), *filters, "--format", "{{.Names}}"
        )
        return sorted(names.split())

    @contextlib.contextmanager
    def client(self) -> Iterator[Client]:
        """A plain Dask client, for looking into the cluster without the helper."""
        with Client(self.address, timeout=20, set_as_default=False) as client:
            yield client

    def heal(self) -> None:
        """Undo whatever a test did to the containers."""
        for name in self.containers():
            if docker("inspect", "-f", "{{.State.Paused}}", name) == "true":
                docker("unpause", name)
        eventually(lambda: "unhealthy" not in self.health(), "containers recover")
        self.make("up")

    def health(self) -> list[str]:
        """Health of every running container that has a health check."""
        told = "{{with .State.Health}}{{.Status}}{{end}}"
        found = [docker("inspect", "-f", told, name) for name in self.containers()]
        return [health for health in found if health]


@contextlib.contextmanager
def running_lesson(
    path: Path, environment: dict[str, str]
) -> Iterator[subprocess.Popen[str]]:
    """A lesson that runs in the background; killed at the end if it still does."""
    process = subprocess.Popen(
        [sys.executable, str(path)],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Started in the background, a test run would hand on that it ignores this.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()


def read_until(process: subprocess.Popen[str], text: str) -> None:
    """Read the process's output up to the line that holds ``text``."""
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f"the lesson ended without printing {text!r}")
