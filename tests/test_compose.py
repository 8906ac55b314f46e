"""The cluster's life, with a ``docker`` of our own that writes down the calls."""

import platform
import re
import shlex
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support import Serve

from dask_cluster_lab.commands import compose
from dask_cluster_lab.errors import LabError, UsageError

if TYPE_CHECKING:
    from distributed import LocalCluster

Capture = pytest.CaptureFixture[str]
ROOM = 30.0
WITHOUT = "lessons run without it too ('make run'), on the in-process fallback."
UP = "compose up --detach --build --remove-orphans"
AGAIN = "compose up --detach --no-recreate"
UNTIL_HEALTHY = " --wait --wait-timeout 180"
EVERY = ["storage", "monitoring", "orchestrator", "grafana"]


OURS = "--filter=label=com.docker.compose.project=small"
ONE_OFF = "--filter=label=com.docker.compose.oneoff=True"
STRAYS = f"ps --all --format={{{{.Names}}}} {ONE_OFF} {OURS}"
PAUSED = f"ps --format={{{{.Names}}}} --filter=status=paused {OURS}"


class FakeDocker:
    """A shell script that answers by the beginning of its arguments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "calls"
        self.cases = {
            "compose version": "echo 2.30.1",
            "info": "echo 27.0",
            "compose port": "exit 1",
            "compose config": 'echo \'{"name": "small"}\'',
            "": "",
        }
        self.write()

    def on(self, beginning: str, code: str) -> None:
        """From now on run this shell code where the arguments begin like this."""
        self.cases[beginning] = code
        self.write()

    def write(self) -> None:
        arms = "\n".join(
            f"{shlex.quote(beginning)}*)\n{code}\n;;"
            for beginning, code in sorted(
                self.cases.items(), key=lambda case: -len(case[0])
            )
        )
        new = self.folder / "new"
        new.write_text(
            f'#!/bin/sh\necho "$*" >> {shlex.quote(str(self.log))}\n'
            f'case "$*" in\n{arms}\nesac\n'
        )
        new.chmod(0o755)
        new.rename(self.folder / "docker")

    def calls(self, beginning: str = "") -> list[str]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line for line in lines if line.startswith(beginning)]


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the PATH; empty."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("UV", raising=False)
    return folder


@pytest.fixture
def docker(bin_folder: Path, project: Path) -> FakeDocker:
    uv = bin_folder / "uv"
    uv.write_text("#!/bin/sh\necho uv 0.9.9 '(abc 2026-01-01)'\n")
    uv.chmod(0o755)
    return FakeDocker(bin_folder)


@pytest.fixture
def running(
    docker: FakeDocker, cluster: "LocalCluster", monkeypatch: pytest.MonkeyPatch
) -> FakeDocker:
    """A docker that publishes the ports of a scheduler in this process."""
    dashboard = cluster.dashboard_link.removesuffix("/status").removeprefix("http://")
    address = cluster.scheduler_address.removeprefix("tcp://")
    docker.on("compose port scheduler 8786", f"echo {address}")
    docker.on("compose port scheduler 8787", f"echo {dashboard}")
    monkeypatch.setenv("DASK_SCHEDULER_PORT", address.rpartition(":")[2])
    monkeypatch.setenv("DASK_DASHBOARD_PORT", dashboard.rpartition(":")[2])
    return docker


# Numbers from the user


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("3", 3), ("64", 64), ("007", 7)]
)
def test_worker_count(text: str, number: int) -> None:
    assert compose.worker_count(text, "N") == number


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "-1",
        "+3",
        "65",
        "3.0",
        "3 ",
        "three",
        "1e1",
        "\u0663",
        "\u00b2",
        "9" * 5000,
    ],
)
def test_bad_worker_counts(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        compose.worker_count(text, "N")
    assert str(caught.value) == (
        f"N={text!r} is not a number of workers; give 0 to 64, as in N=3."
    )
    assert caught.value.exit_status == 2


def test_wanted_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compose.wanted_workers() == 3
    monkeypatch.setenv("DASK_WORKERS", "")
    assert compose.wanted_workers() == 3
    monkeypatch.setenv("DASK_WORKERS", "5")
    assert compose.wanted_workers() == 5
    monkeypatch.setenv("DASK_WORKERS", "many")
    with pytest.raises(UsageError, match=r"^DASK_WORKERS='many' is not a number of "):
        compose.wanted_workers()


# What is missing


COMMANDS: list[Callable[[], Any]] = [
    compose.up,
    compose.wait,
    compose.restart,
    compose.down,
    compose.ps,
    compose.logs,
    compose.dashboard,
    lambda: compose.scale(2),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_docker_is_missing(
    command: Callable[[], Any], bin_folder: Path, project: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        command()
    assert str(caught.value) == (
        "the command docker is missing; install Docker Engine with Compose; " + WITHOUT
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_the_engine_does_not_answer(
    command: Callable[[], Any], docker: FakeDocker
) -> None:
    docker.on("info", "echo Cannot connect to the Docker daemon >&2; exit 1")
    with pytest.raises(UsageError) as caught:
        command()
    assert str(caught.value) == (
        "the Docker Engine does not answer; start it; " + WITHOUT
    )
    assert docker.calls("compose up") == []


def test_compose_is_missing(docker: FakeDocker) -> None:
    docker.on(
        "compose version", "echo docker: unknown command: docker compose >&2; exit 1"
    )
    with pytest.raises(UsageError) as caught:
        compose.ps()
    assert str(caught.value) == (
        "docker has no 'compose' command; install its plugin Docker Compose v2."
    )


@pytest.mark.parametrize("version", ["1.29.2", "2.19.9", "v2.2.3", "2", "dev", ""])
def test_compose_is_too_old(version: str, docker: FakeDocker) -> None:
    docker.on("compose version", f"echo {version}")
    with pytest.raises(UsageError) as caught:
        compose.ps()
    assert str(caught.value) == (
        f"Docker Compose {version or '(no version)'} is too old; install 2.20 or newer."
    )


@pytest.mark.parametrize(
    "version",
    [
        "2.20.0",
        "v2.39.1",
        "2.20",
        "2.40.3-desktop.1",
        "2.20-rc.1",
        "2.32.4+ds1",
        "5.1.2",
    ],
)
def test_compose_is_new_enough(
    version: str, docker: FakeDocker, capfd: Capture
) -> None:
    docker.on("compose version", f"echo {version}")
    compose.ps()
    assert capfd.readouterr().out == "$ docker compose ps --all\n"


@pytest.fixture
def hangs(docker: FakeDocker, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """From now on, calls that begin like this do not end; only they get no patience."""
    ask = compose._ask
    sleep = shutil.which("sleep", path="/bin:/usr/bin")

    def start(beginning: str) -> None:
        docker.on(beginning, f"exec {sleep} 300")

        def impatient(*command: str, folder: Path | None = None) -> str | None:
            hanging = " ".join(command[1:]).startswith(beginning)
            monkeypatch.setattr(compose, "ASK_SECONDS", 0.3 if hanging else ROOM)
            return ask(*command, folder=folder)

        monkeypatch.setattr(compose, "_ask", impatient)

    return start


def test_an_engine_that_hangs(hangs: Callable[[str], None]) -> None:
    hangs("info")
    start = time.monotonic()
    with pytest.raises(UsageError, match=r"^the Docker Engine does not answer; "):
        compose.up()
    assert time.monotonic() - start < ROOM


def test_an_engine_that_hangs_later(hangs: Callable[[str], None]) -> None:
    hangs("compose port")
    start = time.monotonic()
    with pytest.raises(LabError, match=r"^the cluster is not up; "):
        compose.restart()
    assert time.monotonic() - start < ROOM


# Ports


@pytest.mark.parametrize("variable", ["DASK_SCHEDULER_PORT", "DASK_DASHBOARD_PORT"])
@pytest.mark.parametrize("text", ["0", "65536", "-1", "http", "8786 ", "\u0668"])
def test_a_malformed_port(
    variable: str, text: str, running: FakeDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(UsageError) as caught:
        compose.up()
    assert str(caught.value) == (
        f"{variable}={text!r} is not a port; give a number from 1 to 65535."
    )
    assert running.calls("compose up") == []


@pytest.mark.parametrize("variable", ["DASK_SCHEDULER_PORT", "DASK_DASHBOARD_PORT"])
def test_a_port_that_another_program_holds(
    variable: str, running: FakeDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setenv(variable, str(port))
        with pytest.raises(UsageError) as caught:
            compose.up()
    assert str(caught.value) == (
        f"port {port} of this machine cannot be had (Address already in use); "
        f"choose another: '{variable}={port % 50000 + 10000} make up'."
    )
    assert running.calls("compose up") == []


def test_one_port_for_both(
    running: FakeDocker, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("DASK_SCHEDULER_PORT", "DASK_DASHBOARD_PORT"):
        monkeypatch.setenv(variable, str(closed_port))
    with pytest.raises(UsageError) as caught:
        compose.up()
    assert str(caught.value) == (
        "DASK_SCHEDULER_PORT and DASK_DASHBOARD_PORT are the same port, "
        f"{closed_port}; choose two."
    )


# Profiles


def test_an_unknown_profile(
    running: FakeDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for profiles in ("storag", "storage,extra", " storage"):
        monkeypatch.setenv("COMPOSE_PROFILES", profiles)
        with pytest.raises(UsageError) as caught:
            compose.up()
        name = profiles.rpartition(",")[2]
        assert str(caught.value) == (
            f"COMPOSE_PROFILES={name!r} is not a profile of this project; "
            "there is storage, monitoring, orchestrator."
        )
        assert caught.value.exit_status == 2
    assert running.calls("compose up") == []


def test_every_profile_of_the_compose_file_is_known() -> None:
    text = (Path(__file__).parents[1] / "compose.yml").read_text(encoding="utf-8")
    lists = re.findall(r"profiles: \[([a-z, ]+)\]", text)
    found = {profile for names in lists for profile in names.split(", ")}
    assert found == set(EVERY) == set(compose.READY)


@pytest.mark.parametrize("profiles", ["", "storage", "storage,"])
def test_up_leaves_the_profiles_to_compose(
    profiles: str,
    running: FakeDocker,
    closed_port: int,
    capfd: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DASK_WORKERS", "2")
    monkeypatch.setenv("COMPOSE_PROFILES", profiles)
    monkeypatch.setenv("OBJECT_STORE_PORT", "0" if not profiles else "28017")
    running.on("compose port object-store 9000", "echo 127.0.0.1:28017")
    running.on("compose up", 'echo "profiles: $COMPOSE_PROFILES."')
    compose.up()
    assert f"\nprofiles: {profiles}.\n" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("image", "started", "says"),
    [
        ("none", "monitoring", ["Prometheus", "Pushgateway"]),
        ("", "monitoring,grafana", ["Prometheus", "Pushgateway", "Grafana"]),
    ],
)
def test_up_with_monitoring_waits_until_all_of_it_answers(
    image: str,
    started: str,
    says: list[str],
    running: FakeDocker,
    capfd: Capture,
    monkeypatch: pytest.MonkeyPatch,
    serve: Serve,
) -> None:
    asked: list[str] = []

    def answer(connection: socket.socket) -> None:
        asked.append(connection.recv(1000).split()[1].decode())
        status = "503 Not yet" if len(asked) == 1 else "200 OK"
        connection.sendall(f"HTTP/1.0 {status}\r\n\r\n".encode())

    port = serve(answer)
    monkeypatch.setenv("DASK_WORKERS", "2")
    monkeypatch.setenv("COMPOSE_PROFILES", "monitoring")
    monkeypatch.setenv("GRAFANA_IMAGE", image)
    for number, service in enumerate(("prometheus", "pushgateway", "grafana")):
        monkeypatch.setenv(f"{service.upper()}_PORT", f"2801{number}")
        running.on(
            f"compose port {service}",
            f"[ -e up ] && echo 127.0.0.1:{port} || echo 127.0.0.1:2801{number}",
        )
    running.on("compose up", ': > up; echo "profiles: $COMPOSE_PROFILES."')
    compose.up()
    out = capfd.readouterr().out
    assert running.calls("compose up") == [UP + UNTIL_HEALTHY]
    assert f"\nprofiles: {started}.\n" in out
    assert out.splitlines()[-len(says) :] == [
        f"{service} at http://127.0.0.1:{port}" for service in says
    ]
    pages = ["/-/ready", "/-/ready", "/-/ready", "/api/health"]
    assert asked == pages[: len(says) + 1], "the first did not answer at first"


def test_a_service_that_never_gets_ready(
    closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compose, "WAIT_SECONDS", 0.3)
    with pytest.raises(LabError) as caught:
        compose._wait_until_ready("grafana", f"http://127.0.0.1:{closed_port}/")
    assert str(caught.value).startswith(
        f"grafana is not ready at http://127.0.0.1:{closed_port}/ within 0.3 s ("
    )
    assert str(caught.value).endswith("; 'make logs' says why.")


def test_the_object_stores_port(
    running: FakeDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPOSE_PROFILES", "storage")
    monkeypatch.setenv("OBJECT_STORE_PORT", "s3")
    with pytest.raises(UsageError, match=r"^OBJECT_STORE_PORT='s3' is not a port; "):
        compose.up()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setenv("OBJECT_STORE_PORT", str(port))
        with pytest.raises(UsageError) as caught:
            compose.up()
    assert str(caught.value) == (
        f"port {port} of this machine cannot be had (Address already in use); "
        f"choose another: 'OBJECT_STORE_PORT={port % 50000 + 10000} make up'."
    )
    assert caught.value.exit_status == 2
    monkeypatch.setenv("DASK_DASHBOARD_PORT", str(port))
    with pytest.raises(UsageError) as caught:
        compose.up()
    assert str(caught.value) == (
        f"DASK_DASHBOARD_PORT and OBJECT_STORE_PORT are the same port, {port}; "
        "choose two."
    )
    assert running.calls("compose up") == []


@pytest.mark.parametrize("command", [compose.down, compose.ps, compose.logs])
def test_what_any_profile_started_is_taken_down_and_shown(
    command: Callable[[], Any], docker: FakeDocker, capfd: Capture
) -> None:
    docker.on("compose ps", 'echo "profiles: $COMPOSE_PROFILES"')
    docker.on("compose down", 'echo "profiles: $COMPOSE_PROFILES"')
    docker.on("compose logs", 'echo "profiles: $COMPOSE_PROFILES"')
    command()
    assert f"\nprofiles: {','.join(EVERY)}\n" in capfd.readouterr().out


def test_published(docker: FakeDocker, project: Path) -> None:
    docker.on("compose port scheduler 8786", "echo 127.0.0.1:40001")
    assert compose.published(8786) == "127.0.0.1:40001"
    for code in ("echo", "echo :0", "echo no container found >&2; exit 1"):
        docker.on("compose port scheduler 8786", code)
        with pytest.raises(LabError, match=r"^the cluster is not up; 'make up' starts"):
            compose.published(8786)


# Up, wait, scale, restart, down


def wait_output(cluster: "LocalCluster") -> str:
    return (
        f"Remote scheduler at {cluster.scheduler_address}\n"
        "2 workers on 1 host, 2 threads\n"
        f"Dashboard at {cluster.dashboard_link.removesuffix('/status')}\n"
    )


def test_up(
    running: FakeDocker,
    cluster: "LocalCluster",
    capfd: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DASK_WORKERS", "2")
    running.on("compose up", 'echo "uv $UV_VERSION, $PYTHON_IMAGE, in $PWD"')
    compose.up()
    out, err = capfd.readouterr()
    version = platform.python_version()
    assert out == (
        f"$ docker {UP}\n"
        f"uv 0.9.9, python:{version}-slim-bookworm, in {Path.cwd()}\n"
        + wait_output(cluster)
    )
    assert err == ""
    assert running.calls("compose up") == [UP]


def test_up_with_another_base_image(
    running: FakeDocker, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASK_WORKERS", "2")
    monkeypatch.setenv("PYTHON_IMAGE", "mirror/python:3")
    running.on("compose up", 'echo "$PYTHON_IMAGE"')
    compose.up()
    assert "\nmirror/python:3\n" in capfd.readouterr().out


def test_up_with_too_few_workers(
    running: FakeDocker, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compose, "WAIT_SECONDS", 0)
    with pytest.raises(LabError) as caught:
        compose.up()
    assert str(caught.value) == "2 workers are registered, not 3; see 'make logs'."


def test_up_with_no_workers(
    running: FakeDocker, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASK_WORKERS", "0")
    compose.up()
    assert capfd.readouterr().out == (
        f"$ docker {UP}\nNo workers; the scheduler runs.\n"
    )


def test_up_fails(running: FakeDocker, capfd: Capture) -> None:
    running.on("compose up", "echo no space left >&2; exit 17")
    with pytest.raises(LabError) as caught:
        compose.up()
    assert str(caught.value) == (
        "the cluster did not come up; 'make logs' and the lines above say why."
    )
    assert caught.value.exit_status == 1
    assert capfd.readouterr().err == "no space left\n"


def test_up_without_uv(running: FakeDocker, bin_folder: Path) -> None:
    (bin_folder / "uv").unlink()
    with pytest.raises(UsageError, match=r"^uv is missing; start this with 'make up'"):
        compose.up()
    (bin_folder / "uv").write_text("#!/bin/sh\nexit 127\n")
    (bin_folder / "uv").chmod(0o755)
    with pytest.raises(UsageError, match=r"^uv is missing; start this with 'make up'"):
        compose.up()
    assert running.calls("compose up") == []


def test_bad_settings_come_before_docker(
    bin_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASK_WORKERS", "some")
    with pytest.raises(UsageError, match=r"^DASK_WORKERS='some' is not"):
        compose.up()


def test_wait(running: FakeDocker, cluster: "LocalCluster", capfd: Capture) -> None:
    compose.wait()
    assert capfd.readouterr() == (wait_output(cluster), "")


@pytest.mark.parametrize(
    "command", [compose.wait, compose.restart, compose.dashboard, COMMANDS[-1]]
)
def test_not_up(command: Callable[[], Any], docker: FakeDocker) -> None:
    with pytest.raises(LabError) as caught:
        command()
    assert str(caught.value) == "the cluster is not up; 'make up' starts it."
    assert caught.value.exit_status == 1
    assert docker.calls("compose up") == docker.calls("compose restart") == []


def test_scale(running: FakeDocker, cluster: "LocalCluster", capfd: Capture) -> None:
    compose.scale(2)
    assert running.calls("compose up") == [f"{AGAIN} --scale worker=2"]
    assert capfd.readouterr().out == (
        f"$ docker {AGAIN} --scale worker=2\n" + wait_output(cluster)
    )


def test_scale_that_is_not_reached(
    running: FakeDocker, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compose, "WAIT_SECONDS", 0)
    with pytest.raises(LabError, match=r"^2 workers are registered, not 5; see "):
        compose.scale(5)
    running.on("compose up", "exit 1")
    with pytest.raises(LabError) as caught:
        compose.scale(5)
    assert str(caught.value) == (
        "the cluster did not reach 5 workers; 'make logs' says why."
    )


def test_scale_to_none(running: FakeDocker, capfd: Capture) -> None:
    compose.scale(0)
    assert capfd.readouterr().out == (
        f"$ docker {AGAIN} --scale worker=0\nNo workers left; the scheduler runs on.\n"
    )


def test_restart(running: FakeDocker, cluster: "LocalCluster", capfd: Capture) -> None:
    running.on("compose ps --all --quiet worker", "echo 1111; echo 2222")
    compose.restart()
    assert capfd.readouterr().out == (
        f"$ docker compose restart\n$ docker {AGAIN} --scale worker=2\n"
        + wait_output(cluster)
    )
    running.on("compose up", "exit 1")
    with pytest.raises(LabError, match=r"^the cluster did not come back; "):
        compose.restart()
    running.on("compose restart", "exit 1")
    with pytest.raises(LabError, match=r"^the cluster did not restart; "):
        compose.restart()


def test_restart_without_workers(running: FakeDocker, capfd: Capture) -> None:
    compose.restart()
    assert running.calls("compose up") == [f"{AGAIN} --scale worker=0"]
    assert capfd.readouterr().out.endswith("No workers; the scheduler runs.\n")


def test_restart_when_the_workers_cannot_be_counted(running: FakeDocker) -> None:
    running.on("compose ps", "exit 15")
    with pytest.raises(LabError, match=r"^docker compose ps failed; 'make ps' "):
        compose.restart()
    assert running.calls("compose restart") == []


def test_down(docker: FakeDocker, capfd: Capture) -> None:
    docker.on("compose ps --all --quiet", "echo 0123456789ab")
    compose.down()
    assert capfd.readouterr().out == (
        "$ docker compose down --volumes --remove-orphans --timeout 10\n"
        "The cluster is down, and its volume with all files in /data is removed.\n"
    )


def test_down_with_only_a_volume_left(docker: FakeDocker, capfd: Capture) -> None:
    docker.on("volume ls", "[ -e down ] || echo small_data")
    docker.on("compose down", ": > down")
    compose.down()
    look = f"volume ls --quiet {OURS}"
    assert docker.calls("volume") == [look, look]
    assert docker.calls("compose down") == [
        "compose down --volumes --remove-orphans --timeout 10"
    ]
    assert "is removed" in capfd.readouterr().out


def test_down_does_not_say_that_a_volume_went_which_did_not(docker: FakeDocker) -> None:
    docker.on("volume ls", "echo small_data")
    with pytest.raises(LabError, match="the volume small_data stays"):
        compose.down()


def test_down_does_not_say_that_a_volume_went_when_it_cannot_know(
    docker: FakeDocker, capfd: Capture
) -> None:
    docker.on("compose ps --all --quiet", "echo 0123456789ab")
    docker.on("volume ls", "exit 1")
    with pytest.raises(LabError) as caught:
        compose.down()
    assert str(caught.value) == (
        "'docker volume' failed; 'docker info' says whether the engine answers."
    )
    assert "is removed" not in capfd.readouterr().out


@pytest.mark.parametrize(
    "command", [compose.up, compose.down, compose.restart, lambda: compose.scale(2)]
)
def test_workers_of_a_killed_lesson_are_removed(
    command: Callable[[], Any], running: FakeDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASK_WORKERS", "2")
    running.on("compose ps --all --quiet", "echo 1111; echo 2222")
    running.on(STRAYS, "echo eager_bell; echo calm_hall")
    command()
    assert running.calls("rm") == ["rm --force eager_bell calm_hall"]


@pytest.mark.parametrize("command", [compose.up, compose.down])
def test_a_worker_of_a_killed_lesson_that_stays(
    command: Callable[[], Any], running: FakeDocker
) -> None:
    running.on("compose ps --all --quiet", "echo 0123456789ab")
    running.on(STRAYS, "echo eager_bell")
    running.on("rm", "exit 1")
    with pytest.raises(LabError) as caught:
        command()
    assert str(caught.value) == (
        "the container eager_bell of a lesson cannot be removed; "
        "'docker rm --force eager_bell' says why."
    )
    assert running.calls("compose up") == running.calls("compose down") == []


def test_a_worker_that_its_lesson_removed_in_between(
    running: FakeDocker, capfd: Capture
) -> None:
    running.on(STRAYS, "[ -e gone ] || echo eager_bell")
    running.on("rm", ": > gone; exit 1")
    compose.scale(2)
    assert running.calls("compose up") == [f"{AGAIN} --scale worker=2"]


def test_ps_names_the_workers_of_a_killed_lesson(
    docker: FakeDocker, capfd: Capture
) -> None:
    docker.on(STRAYS, "echo eager_bell")
    compose.ps()
    assert capfd.readouterr().out == (
        "$ docker compose ps --all\n"
        "eager_bell: of a lesson; if none runs, 'make up' removes it.\n"
    )


@pytest.mark.parametrize("command", [compose.up, compose.restart])
def test_what_a_killed_lesson_froze_goes_on(
    command: Callable[[], Any], running: FakeDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASK_WORKERS", "2")
    running.on(PAUSED, "echo worker-1")
    command()
    assert running.calls("unpause") == ["unpause worker-1"]
    assert running.calls().index("unpause worker-1") < running.calls().index(
        UP if command is compose.up else "compose restart"
    )


def test_what_stays_frozen(running: FakeDocker) -> None:
    running.on(PAUSED, "echo worker-1")
    running.on("unpause", "exit 1")
    with pytest.raises(LabError) as caught:
        compose.restart()
    assert str(caught.value) == (
        "the container worker-1 is frozen and cannot be let go on; "
        "'docker unpause worker-1' says why."
    )
    assert running.calls("compose restart") == []


def test_restart_takes_every_profile_along_and_starts_none(
    running: FakeDocker, capfd: Capture
) -> None:
    running.on("compose restart", 'echo "restarts: $COMPOSE_PROFILES."')
    running.on("compose up", 'echo "starts: $COMPOSE_PROFILES."')
    compose.restart()
    out = capfd.readouterr().out
    assert f"restarts: {','.join(EVERY)}.\n" in out
    assert "starts: .\n" in out


@pytest.mark.parametrize("command", [compose.restart, lambda: compose.scale(2)])
def test_an_unknown_profile_elsewhere(
    command: Callable[[], Any], running: FakeDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPOSE_PROFILES", "nope")
    with pytest.raises(UsageError, match=r"^COMPOSE_PROFILES='nope' is not a profile"):
        command()


def test_down_when_nothing_is_up(docker: FakeDocker, capfd: Capture) -> None:
    compose.down()
    assert capfd.readouterr().out == "Nothing to take down: this cluster is not up.\n"
    assert docker.calls("compose down") == []


@pytest.mark.parametrize("how", ["fails", "hangs"])
def test_down_when_it_is_not_known_what_is_up(
    how: str, docker: FakeDocker, hangs: Callable[[str], None]
) -> None:
    if how == "hangs":
        hangs("compose ps")
    else:
        docker.on("compose ps", "echo yaml: line 3 >&2; exit 15")
    with pytest.raises(LabError) as caught:
        compose.down()
    assert str(caught.value) == "docker compose ps failed; 'make ps' shows why."


def test_down_fails(docker: FakeDocker, capfd: Capture) -> None:
    docker.on("compose ps --all --quiet", "echo 0123456789ab")
    docker.on("compose down", "exit 1")
    with pytest.raises(LabError, match=r"^the cluster did not go down; 'make ps' "):
        compose.down()
    assert "removed" not in capfd.readouterr().out


def test_ps_and_logs(docker: FakeDocker, capfd: Capture) -> None:
    docker.on("compose ps", "echo NAME IMAGE")
    docker.on("compose logs", "echo worker: hello")
    compose.ps()
    compose.logs()
    assert capfd.readouterr().out == (
        "$ docker compose ps --all\nNAME IMAGE\n"
        "$ docker compose logs --no-color\nworker: hello\n"
    )
    docker.on("compose logs", "exit 1")
    with pytest.raises(LabError, match=r"^docker compose logs failed\.$"):
        compose.logs()


# The dashboard


def test_dashboard(
    running: FakeDocker,
    cluster: "LocalCluster",
    capfd: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(compose.webbrowser, "open", opened.append)
    compose.dashboard()
    assert capfd.readouterr().out == f"{cluster.dashboard_link}\n"
    assert opened == []  # not a terminal
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    compose.dashboard()
    assert opened == [cluster.dashboard_link]


def test_a_dashboard_that_does_not_answer(docker: FakeDocker, closed_port: int) -> None:
    docker.on("compose port scheduler 8787", f"echo 127.0.0.1:{closed_port}")
    with pytest.raises(LabError) as caught:
        compose.dashboard()
    assert str(caught.value).startswith(
        f"the dashboard at http://127.0.0.1:{closed_port} does not answer ("
    )


# The commands that the messages name


def test_messages_name_targets_that_exist() -> None:
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):(?!=)", makefile, re.M))
    source = Path(compose.__file__).parents[1]
    named = {
        target
        for path in source.rglob("*.py")
        for target in re.findall(r"'make ([a-z-]+)", path.read_text(encoding="utf-8"))
    }
    assert {"up", "logs", "ps", "restart", "run"} <= named <= targets
