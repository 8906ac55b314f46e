"""The containers of a Compose session, seen, stopped and started through ``docker``.

What happens to a container is not visible from inside Dask: whether it ended, with
which exit status, and since when it runs. Only containers that carry the label of the
session's own Compose project are looked at or touched.
"""

import json
import shutil
import subprocess
import uuid
from dataclasses import dataclass

from dask_cluster_lab.cluster import WORKER_SERVICE, ClusterSession
from dask_cluster_lab.errors import LabError

SECONDS = 60


@dataclass(frozen=True)
class Container:
    """What the Docker Engine says of one container."""

    name: str
    host: str
    """Its host name, which processes inside see as their own."""
    running: bool
    exit_status: int
    """Of the last time that it ended; 0 while it has not."""
    started: str
    """When it was started last, as the engine writes it."""
    restarts: int
    """How often the engine restarted it by itself."""


def worker_containers(session: ClusterSession) -> dict[str, Container]:
    """The session's worker containers by host name, those that ended included.

    Empty and errors as in ``service_containers``.
    """
    found = service_containers(session, WORKER_SERVICE)
    return {container.host: container for container in found}


def service_containers(session: ClusterSession, service: str) -> list[Container]:
    """The session's containers of a service of compose.yml, those that ended included.

    Empty where the session is not a Compose cluster, where there is no ``docker``, and
    where its engine is not the one that runs the cluster. Raises ``LabError`` if the
    engine does not answer.
    """
    if session.kind != "compose" or shutil.which("docker") is None:
        return []
    names = _docker(
        "ps",
        "--all",
        "--quiet",
        f"--filter=label=com.docker.compose.project={session.name}",
        f"--filter=label=com.docker.compose.service={service}",
    ).split()
    if not names:
        return []
    return [
        Container(
            name=facts["Name"].lstrip("/"),
            host=facts["Config"]["Hostname"],
            running=facts["State"]["Running"],
            exit_status=facts["State"]["ExitCode"],
            started=facts["State"]["StartedAt"],
            restarts=facts["RestartCount"],
        )
        for facts in json.loads(_docker("inspect", *names))
    ]


def at_hand(session: ClusterSession) -> bool:
    """Whether the session's containers can be seen and started from here."""
    try:
        return bool(worker_containers(session))
    except LabError:  # a docker command, but no engine that answers
        return False


def start(container: Container) -> None:
    """Start a container that ended; ``LabError`` if it cannot be started."""
    _docker("start", container.name)


def restart(container: Container) -> None:
    """End a container if it still runs, and start it; ``LabError`` if that fails."""
    _docker("restart", container.name)


def stop(container: Container) -> None:
    """End a container at once, and leave it down; ``LabError`` if that fails."""
    _docker("stop", "--time=0", container.name)


def pause(container: Container) -> None:
    """Freeze all processes of a container; ``LabError`` if that fails."""
    _docker("pause", container.name)


def unpause(container: Container) -> None:
    """Let the processes of a container go on."""
    _docker("unpause", container.name)


def add_worker(session: ClusterSession) -> Container:
    """Start one more worker container, as the others are; gone with ``remove``.

    Reachable under the name of the workers' service, as those that ``make scale`` adds.
    Returns before it is registered. Raises ``LabError`` if it cannot be started.
    """
    return _run_like_a_worker(session, WORKER_SERVICE, None)


def other_server(session: ClusterSession, service: str, port: int) -> Container:
    """Start a server of files where others look for a service that is stopped.

    Gone with ``remove``. Raises ``LabError`` if it cannot be started.
    """
    command = ["python", "-m", "http.server", str(port)]
    return _run_like_a_worker(session, service, command)


def _run_like_a_worker(
    session: ClusterSession, service: str, command: list[str] | None
) -> Container:
    """A container of the workers' image; reached under the name of ``service``."""
    model = next(iter(worker_containers(session).values()))
    (facts,) = json.loads(_docker("inspect", model.name))
    (network,) = facts["NetworkSettings"]["Networks"]
    project = "com.docker.compose.project"
    created = _docker(
        "run",
        "--detach",
        "--init",
        # Begins as the names do that Compose gives, so that it is found beside them.
        f"--name={session.name}-{service}-extra-{uuid.uuid4().hex[:8]}",
        f"--network={network}",
        f"--network-alias={service}",
        f"--memory={facts['HostConfig']['Memory']}",
        f"--label={project}={session.name}",
        f"--label=com.docker.compose.service={service}",
        "--label=com.docker.compose.oneoff=True",  # so that Compose counts without it
        *(f"--env={setting}" for setting in facts["Config"]["Env"]),
        *(f"--volume={m['Name']}:{m['Destination']}" for m in facts["Mounts"]),
        facts["Image"],
        *(command or facts["Config"]["Cmd"]),
    ).strip()
    return next(
        container
        for container in service_containers(session, service)
        if created.startswith(container.host)
    )


def remove(container: Container) -> None:
    """End a container and remove it; it does not matter whether it still runs."""
    _docker("rm", "--force", container.name)


def _docker(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["docker", *arguments],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise LabError(
            f"'docker {arguments[0]}' failed ({said[-1] if said else 'no reason'}); "
            "'docker info' says whether the engine answers."
        ) from None
    return done.stdout
