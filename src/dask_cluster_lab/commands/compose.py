"""The cluster's life: up, wait, scale, restart, down, by way of ``docker compose``.

Each command is printed before it runs: what ``make up`` does can be done by hand.
"""

import http.client
import json
import os
import platform
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
import webbrowser
from pathlib import Path

from dask_cluster_lab.commands.catalogue import project_root
from dask_cluster_lab.errors import LabError, UsageError

OLDEST_COMPOSE = (2, 20)
SCHEDULER_PORT = 8786  # inside the container
DASHBOARD_PORT = 8787
OBJECT_STORE_PORT = 9000
PROFILES = ("storage", "monitoring", "orchestrator")
"""What compose.yml can start beside scheduler and workers."""
GRAFANA = "grafana"
"""Profile of its own, which comes with these two where its image can be had."""
WITH_GRAFANA = {"monitoring", "orchestrator"}
EVERY_PROFILE = {"COMPOSE_PROFILES": ",".join([*PROFILES, GRAFANA])}
_PROMETHEUS = [
    ("prometheus", 9090, "PROMETHEUS_PORT", "/-/ready"),
    ("pushgateway", 9091, "PUSHGATEWAY_PORT", "/-/ready"),
]
READY = {
    "storage": [("object-store", OBJECT_STORE_PORT, "OBJECT_STORE_PORT", "")],
    "monitoring": _PROMETHEUS,
    "orchestrator": [
        ("dagster-webserver", 3000, "DAGSTER_PORT", "/server_info"),
        ("dagster-exporter", 9101, "DAGSTER_EXPORTER_PORT", "/readyz"),
        *_PROMETHEUS,
    ],
    GRAFANA: [("grafana", 3000, "GRAFANA_PORT", "/api/health")],
}
"""Service, its port inside, the variable for that on this machine, and the page that
tells whether it is ready (``""``: a health check of its container tells), by
profile."""
UP_SECONDS = 180
WAIT_SECONDS = 60.0
ASK_SECONDS = 30.0


def up() -> None:
    """Build the image, start everything, return when all workers are registered."""
    workers = wanted_workers()
    require_docker()
    _require_known_profiles()
    with_grafana = WITH_GRAFANA & set(_profiles())
    if with_grafana and os.environ.get("GRAFANA_IMAGE") != "none":
        os.environ["COMPOSE_PROFILES"] = ",".join([*_profiles(), GRAFANA])
    _require_free_ports()
    _remove_strays()
    _unpause()
    _compose(
        "up",
        "--detach",
        "--build",
        "--remove-orphans",
        *_until_healthy(),
        environment=build_settings(),
        failure="the cluster did not come up; 'make logs' and the lines above say why",
    )
    if workers:
        wait(workers)
    else:
        print("No workers; the scheduler runs.")
    for service, port, _, page in _beside():
        if page:
            address = f"http://{published(port, service)}"
            _wait_until_ready(service, f"{address}{page}")
            print(f"{service.capitalize()} at {address}")


def _wait_until_ready(service: str, url: str) -> None:
    """Return when ``service`` answers at ``url`` that it is ready."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (OSError, http.client.HTTPException) as error:
            if time.monotonic() > deadline:
                raise LabError(
                    f"{service} is not ready at {url} within {WAIT_SECONDS:g} s "
                    f"({error}); 'make logs' says why."
                ) from None
        time.sleep(0.2)


def wait(workers: int | None = None) -> None:
    """Return when all worker containers are registered and the host can reach them."""
    from dask_cluster_lab.cluster import connect
    from dask_cluster_lab.probe import wait_for_scheduler

    require_docker()
    address = f"tcp://{published(SCHEDULER_PORT)}"
    wait_for_scheduler(address)
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        with connect(address, allow_fallback=False, seconds=60, quiet=True) as session:
            found = len(session.workers())
        if workers in (None, found):
            break
        if time.monotonic() > deadline:  # one that was stopped may still be listed
            raise LabError(
                f"{found} workers are registered, not {workers}; see 'make logs'."
            )
        time.sleep(0.5)
    print(session.label)
    print(f"Dashboard at {_dashboard()}")


def scale(workers: int) -> None:
    """Change the number of worker containers."""
    require_docker()
    _require_known_profiles()
    published(SCHEDULER_PORT)
    _remove_strays()
    _compose(
        "up",
        "--detach",
        "--no-recreate",
        "--scale",
        f"worker={workers}",
        failure=f"the cluster did not reach {workers} workers; 'make logs' says why",
    )
    if workers:
        wait(workers)
    else:
        print("No workers left; the scheduler runs on.")


def restart() -> None:
    """Restart every container, then wait as ``up`` does.

    There are as many workers afterwards as before, those that had ended included.
    """
    require_docker()
    _require_known_profiles()
    published(SCHEDULER_PORT)
    _remove_strays()
    _unpause()
    containers = _output("ps", "--all", "--quiet", "worker")
    if containers is None:
        raise LabError("docker compose ps failed; 'make ps' shows why.")
    workers = len(containers.split())
    _compose(
        "restart",
        environment=EVERY_PROFILE,
        failure="the cluster did not restart; 'make logs' says why",
    )
    _compose(
        "up",
        "--detach",
        "--no-recreate",
        "--scale",
        f"worker={workers}",  # or it would be DASK_WORKERS, whatever was scaled to
        *_until_healthy(),
        failure="the cluster did not come back; 'make logs' says why",
    )
    if workers:
        wait(workers)
    else:
        print("No workers; the scheduler runs.")


def down() -> None:
    """Stop and remove containers, network and volume."""
    require_docker()
    _all_profiles()
    containers = _output("ps", "--all", "--quiet")
    if containers is None:
        raise LabError("docker compose ps failed; 'make ps' shows why.")
    if not containers and not _volumes():
        print("Nothing to take down: this cluster is not up.")
        return
    _remove_strays()
    _compose(
        "down",
        "--volumes",
        "--remove-orphans",
        "--timeout",
        "10",
        failure="the cluster did not go down; 'make ps' shows what is left",
    )
    if left := _volumes():
        raise LabError(
            f"the cluster is down, but the volume {left[0]} stays, since "
            "something uses it; 'docker ps --all' shows what."
        )
    print("The cluster is down, and its volume with all files in /data is removed.")


def ps() -> None:
    """Show the containers."""
    require_docker()
    _all_profiles()
    _compose("ps", "--all", failure="docker compose ps failed")
    for name in _strays():
        print(f"{name}: of a lesson; if none runs, 'make up' removes it.")


def logs() -> None:
    """Print what scheduler and workers wrote."""
    require_docker()
    _all_profiles()
    _compose("logs", "--no-color", failure="docker compose logs failed")


def dashboard() -> None:
    """Print the dashboard's address, and open it if a browser can be."""
    require_docker()
    address = f"{_dashboard()}/status"
    print(address)
    if sys.stdout.isatty():
        webbrowser.open(address)


def published(port: int, service: str = "scheduler") -> str:
    """``host:port`` at which this machine publishes the ``port`` of a service."""
    answer = _output("port", service, str(port))
    if answer is None or ":" not in answer or answer.endswith(":0"):
        raise LabError("the cluster is not up; 'make up' starts it.")
    return answer


def wanted_workers() -> int:
    """``DASK_WORKERS``, by default 3."""
    return worker_count(os.environ.get("DASK_WORKERS") or "3", "DASK_WORKERS")


def worker_count(text: str, name: str) -> int:
    """Read a number of workers from 0 to 64; ``UsageError`` names the variable."""
    if re.fullmatch(r"[0-9]{1,9}", text) and int(text) <= 64:
        return int(text)
    raise UsageError(
        f"{name}={text!r} is not a number of workers; give 0 to 64, as in {name}=3."
    )


def _dashboard() -> str:
    address = f"http://{published(DASHBOARD_PORT)}"
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=10):
            return address
    except (OSError, http.client.HTTPException) as error:
        raise LabError(
            f"the dashboard at {address} does not answer ({error})."
        ) from None


def require_docker() -> None:
    """One line that says which part is missing, and what works without it."""
    without = "lessons run without it too ('make run'), on the in-process fallback."
    if shutil.which("docker") is None:
        raise UsageError(
            "the command docker is missing; install Docker Engine with Compose; "
            + without
        )
    compose = _ask("docker", "compose", "version", "--short")
    if compose is None:
        raise UsageError(
            "docker has no 'compose' command; install its plugin Docker Compose v2."
        )
    numbers = re.match(r"v?(\d+)\.(\d+)", compose)
    if not numbers or (int(numbers[1]), int(numbers[2])) < OLDEST_COMPOSE:
        oldest = ".".join(map(str, OLDEST_COMPOSE))
        raise UsageError(
            f"Docker Compose {compose or '(no version)'} is too old; "
            f"install {oldest} or newer."
        )
    name = os.environ.get("COMPOSE_PROJECT_NAME") or "dask-cluster-lab"
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
        raise UsageError(
            f"COMPOSE_PROJECT_NAME={name!r} is not a project name; use lower-case "
            "letters, digits, dashes and underscores."
        )
    if _ask("docker", "info", "--format", "{{.ServerVersion}}") is None:
        raise UsageError(f"the Docker Engine does not answer; start it; {without}")


def _ask(*command: str, folder: Path | None = None) -> str | None:
    """Output of a short command; ``None`` if it fails or takes too long."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=ASK_SECONDS,
            check=False,
            cwd=folder,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _output(*arguments: str) -> str | None:
    """Output of ``docker compose ARGUMENTS``; ``None`` as in ``_ask``."""
    return _ask("docker", "compose", *arguments, folder=project_root())


def _of_this_project() -> str:
    """The filter for what Docker has of this Compose project."""
    project = _output("config", "--format", "json")
    if not project:
        raise LabError("docker compose config failed; 'make ps' shows why.")
    name = json.loads(project)["name"]
    return f"--filter=label=com.docker.compose.project={name}"


def _listed(*arguments: str) -> list[str]:
    """What ``docker ARGUMENTS`` lists of this project."""
    found = _ask("docker", *arguments, _of_this_project())
    if found is None:
        raise LabError(
            f"'docker {arguments[0]}' failed; 'docker info' says whether the engine "
            "answers."
        )
    return found.split()


def _volumes() -> list[str]:
    return _listed("volume", "ls", "--quiet")


def _strays() -> list[str]:
    """Names of what a lesson started that was killed, which Compose does not count."""
    one_off = "--filter=label=com.docker.compose.oneoff=True"
    return _listed("ps", "--all", "--format={{.Names}}", one_off)


def _paused() -> list[str]:
    return _listed("ps", "--format={{.Names}}", "--filter=status=paused")


def _remove_strays() -> None:
    if strays := _strays():
        removed = _ask("docker", "rm", "--force", *strays)
        # One that its lesson removed in between is a failure, and none of ours.
        if removed is None and (left := _strays()):
            raise LabError(
                f"the container {left[0]} of a lesson cannot be removed; "
                f"'docker rm --force {left[0]}' says why."
            )


def _unpause() -> None:
    """Let go on what a lesson froze that was killed: Compose cannot start that."""
    if not (paused := _paused()):
        return
    if _ask("docker", "unpause", *paused) is None and (left := _paused()):
        raise LabError(
            f"the container {left[0]} is frozen and cannot be let go on; "
            f"'docker unpause {left[0]}' says why."
        )
    # Nor does it start what depends on one that still counts as unhealthy.
    unhealthy = ("ps", "--quiet", "--filter=health=unhealthy")
    deadline = time.monotonic() + WAIT_SECONDS
    while _listed(*unhealthy) and time.monotonic() < deadline:
        time.sleep(0.5)


def _compose(
    *arguments: str, failure: str, environment: dict[str, str] | None = None
) -> None:
    """Run ``docker compose ARGUMENTS`` in sight of the user."""
    print(f"$ docker compose {shlex.join(arguments)}", flush=True)
    done = subprocess.run(
        ["docker", "compose", *arguments],
        cwd=project_root(),
        check=False,
        env={**os.environ, **(environment or {})},
    )
    if done.returncode:
        raise LabError(f"{failure}.")


def build_settings() -> dict[str, str]:
    """What the image takes from the client: the Python that runs this, and its uv."""
    uv = os.environ.get("UV") or shutil.which("uv") or ""
    version = (_ask(uv, "--version") or "" if uv else "").split()
    if len(version) < 2:
        raise UsageError("uv is missing; start this with 'make up', which brings it.")
    image = f"python:{platform.python_version()}-slim-bookworm"
    return {
        "UV_VERSION": version[1],
        "PYTHON_IMAGE": os.environ.get("PYTHON_IMAGE") or image,
    }


def _profiles() -> list[str]:
    """The profiles that are asked for."""
    return [name for name in os.environ.get("COMPOSE_PROFILES", "").split(",") if name]


def _until_healthy() -> list[str]:
    """Let Compose wait for the health checks of what a profile starts.

    Scheduler and workers need none of that: to be registered says more, and sooner.
    """
    waiting = ["--wait", "--wait-timeout", str(UP_SECONDS)]
    return waiting if _profiles() else []


def _beside() -> list[tuple[str, int, str, str]]:
    """What the profiles that are asked for start, each once; as in ``READY``."""
    found = [entry for profile in _profiles() for entry in READY[profile]]
    return list(dict.fromkeys(found))


def _all_profiles() -> None:
    """From now on Compose sees what any profile started."""
    os.environ.update(EVERY_PROFILE)


def _require_known_profiles() -> None:
    """Compose ignores a profile that it does not know, typing errors included."""
    for name in _profiles():
        if name not in PROFILES:
            raise UsageError(
                f"COMPOSE_PROFILES={name!r} is not a profile of this project; "
                f"there is {', '.join(PROFILES)}."
            )


def _require_free_ports() -> None:
    """A port that another program holds would leave half a cluster; look first."""
    ports = {
        "DASK_SCHEDULER_PORT": ("scheduler", SCHEDULER_PORT),
        "DASK_DASHBOARD_PORT": ("scheduler", DASHBOARD_PORT),
    }
    for service, inside, variable, _ in _beside():
        ports[variable] = (service, inside)
    chosen = {v: os.environ.get(v) or str(inside) for v, (_, inside) in ports.items()}
    for variable, (service, inside) in ports.items():
        text = chosen[variable]
        if not (re.fullmatch(r"[0-9]{1,5}", text) and 0 < int(text) < 65536):
            raise UsageError(
                f"{variable}={text!r} is not a port; give a number from 1 to 65535."
            )
        same = [name for name, port in chosen.items() if port == text]
        if len(same) > 1:
            raise UsageError(
                f"{' and '.join(same)} are the same port, {text}; choose two."
            )
        if (_output("port", service, str(inside)) or "").endswith(f":{text}"):
            continue  # it is this cluster that holds it
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(("127.0.0.1", int(text)))
            except OSError as error:
                raise UsageError(
                    f"port {text} of this machine cannot be had ({error.strerror}); "
                    f"choose another: '{variable}={int(text) % 50000 + 10000} make up'."
                ) from None
