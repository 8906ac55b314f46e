"""Sentences about failure, each with a test that stops, freezes or cuts something."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from compose_cluster import ROOT, ComposeCluster, docker, read_until, running_lesson
from distributed import Client
from support import eventually

pytestmark = [pytest.mark.compose, pytest.mark.usefixtures("docker_engine")]

CONNECT = ROOT / "examples" / "0101_connect.py"
WAITS = ROOT / "tests" / "lessons" / "waits.py"
LOSES = ROOT / "tests" / "lessons" / "loses.py"


@pytest.fixture(scope="module")
def own(docker_engine: None) -> Iterator[ComposeCluster]:
    """A cluster that these tests may break."""
    cluster = ComposeCluster("break")
    cluster.make("up")
    yield cluster
    cluster.make("down")


@pytest.fixture
def healed(own: ComposeCluster) -> Iterator[ComposeCluster]:
    """The same cluster, whole again after the test."""
    yield own
    own.heal()


def run_lesson(
    cluster: ComposeCluster, path: Path = CONNECT, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(path)],
        env={**os.environ, **cluster.environment, **environment},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def assert_one_sentence(stderr: str, *words: str) -> None:
    """Exactly one error line, no traceback, and these words in it."""
    lines = stderr.strip().splitlines()
    assert len(lines) == 1, stderr
    assert lines[0].startswith("error: "), stderr
    for word in words:
        assert word in lines[0], stderr


def ends_with(process: subprocess.Popen[str], status: int, seconds: float) -> str:
    """Wait for the lesson's end; its stderr."""
    _, stderr = process.communicate(timeout=seconds)
    assert process.returncode == status, stderr
    return stderr


def test_scheduler_stopped_in_the_middle_of_a_lesson(healed: ComposeCluster) -> None:
    with running_lesson(WAITS, healed.environment) as process:
        read_until(process, "under way")
        docker("stop", "--time", "2", healed.containers("scheduler")[0])
        stderr = ends_with(process, 1, 60)
    assert_one_sentence(stderr, healed.address, "was lost", "make up")


def test_scheduler_frozen_in_the_middle_of_a_lesson(healed: ComposeCluster) -> None:
    with running_lesson(WAITS, healed.environment) as process:
        read_until(process, "under way")
        docker("pause", healed.containers("scheduler")[0])
        stderr = ends_with(process, 1, 90)
    assert_one_sentence(stderr, healed.address, "was lost")


def test_lesson_on_a_frozen_scheduler(healed: ComposeCluster) -> None:
    docker("pause", healed.containers("scheduler")[0])
    done = run_lesson(healed)
    assert done.returncode == 2
    assert_one_sentence(done.stderr, "no greeting within")


def test_worker_frozen_in_the_middle_of_a_lesson(healed: ComposeCluster) -> None:
    with running_lesson(WAITS, healed.environment) as process:
        read_until(process, "under way")
        docker("pause", healed.containers("worker")[0])
        stderr = ends_with(process, 1, 90)
    assert_one_sentence(stderr, "no heartbeat", "frozen or cut off", "make restart")


def test_lesson_on_a_frozen_worker_ends_and_works_again(
    healed: ComposeCluster,
) -> None:
    frozen = healed.containers("worker")[0]
    docker("pause", frozen)
    done = run_lesson(healed)
    assert done.returncode == 1
    assert_one_sentence(done.stderr, "no heartbeat")
    docker("unpause", frozen)
    again = run_lesson(healed)
    assert again.returncode == 0, again.stdout + again.stderr


def test_worker_cut_off_from_the_network(healed: ComposeCluster) -> None:
    network = f"{healed.project}_default"
    worker = healed.containers("worker")[0]
    with running_lesson(WAITS, healed.environment) as process:
        read_until(process, "under way")
        docker("network", "disconnect", network, worker)
        stderr = ends_with(process, 1, 90)
    assert_one_sentence(stderr, "no heartbeat", "cut off")
    docker("rm", "--force", worker)
    # Its connection never ended: the scheduler lists it until a heartbeat is overdue.
    eventually(lambda: registered(healed) == 2, "it is forgotten", 400)


def test_data_that_died_with_its_worker(own: ComposeCluster) -> None:
    done = run_lesson(own, LOSES)
    assert done.returncode == 1
    assert_one_sentence(done.stderr, "a worker was lost", "CancelledError", "make up")
    eventually(lambda: registered(own) == 3, "its nanny starts another")


@contextlib.contextmanager
def worker_with_a_small_disk(cluster: ComposeCluster) -> Iterator[str]:
    """One more worker, whose disk holds two results; its container's name.

    A lower target than usual, so that the other thresholds are far away.
    """
    name = f"{cluster.project}-full"
    image = docker("inspect", "-f", "{{.Image}}", cluster.containers("scheduler")[0])
    docker(
        *("run", "--detach", "--init", f"--name={name}", "--memory=1g"),
        f"--network={cluster.project}_default",
        "--tmpfs=/scratch:size=48m,uid=1000",
        "--env=DASK_DISTRIBUTED__WORKER__MEMORY__TARGET=0.25",
        *(image, "dask", "worker", "tcp://scheduler:8786", "--name=full"),
        *("--nthreads=1", "--memory-limit=1GiB", "--local-directory=/scratch"),
    )
    try:
        yield name
    finally:
        docker("rm", "--force", name)


def test_worker_whose_disk_is_full(own: ComposeCluster) -> None:
    """It keeps what it makes and what is in its memory; what it spilled is stuck."""

    def noise(number: int) -> np.ndarray:  # in here, or it would be sent as a name
        return np.random.default_rng(number).random(2**21)  # 16 MiB, incompressible

    def joined(client: Client) -> bool:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        return "full" in {worker["name"] for worker in workers}

    with worker_with_a_small_disk(own) as name, own.client() as client:
        eventually(lambda: joined(client), "it is registered")
        made = client.map(noise, range(24), workers=["full"], pure=False)  # 384 MiB
        eventually(lambda: {f.status for f in made} == {"finished"}, "all are made")
        first, last = (
            client.submit(np.sum, future, workers=["full"], pure=False)
            for future in (made[0], made[-1])
        )
        assert last.result(timeout=60) == noise(23).sum()
        # To load what was used least recently, it has to make room, on the full disk.
        with pytest.raises(OSError, match="No space left on device"):
            first.result(timeout=60)
        log = subprocess.run(
            ["docker", "logs", name], capture_output=True, text=True, check=True
        ).stderr
    assert "Spill to disk failed; keeping data in memory" in log
    eventually(lambda: registered(own) == 3, "it is forgotten")


def test_interrupt_closes_the_client(own: ComposeCluster) -> None:
    with running_lesson(WAITS, own.environment) as process:
        read_until(process, "under way")
        process.send_signal(signal.SIGINT)
        stderr = ends_with(process, 130, 20)
    assert stderr == "interrupted; the client is closed.\n"
    with own.client() as client:
        eventually(lambda: client.who_has() == {}, "the keys are released")


def test_workers_return_after_the_scheduler_crashed(healed: ComposeCluster) -> None:
    crash_scheduler(healed)
    eventually(lambda: registered(healed) == 3, "three workers are back", 90)
    done = run_lesson(healed)
    assert done.returncode == 0, done.stdout + done.stderr


def crash_scheduler(cluster: ComposeCluster) -> None:
    """End the scheduler process with status 1, as a crash would."""
    before = restarts(cluster, "scheduler")
    code = (
        "import os\nfrom distributed import Client\n"
        f"Client({cluster.address!r}).run_on_scheduler(os._exit, 1)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.DEVNULL
    ) as crash:
        eventually(
            lambda: restarts(cluster, "scheduler") > before, "Docker restarts it", 60
        )
        crash.kill()


def restarts(cluster: ComposeCluster, service: str) -> int:
    name = cluster.containers(service, running=False)[0]
    return int(docker("inspect", "-f", "{{.RestartCount}}", name))


def registered(cluster: ComposeCluster) -> int:
    """Registered workers, by a process of its own so that nothing lingers here."""
    code = (
        "from distributed import Client\n"
        f"print(len(Client({cluster.address!r}, timeout=5).nthreads()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    return int(done.stdout) if done.returncode == 0 else -1


def test_retired_worker_stays_away_until_make_up(healed: ComposeCluster) -> None:
    with healed.client() as client:
        victim = min(client.nthreads())
        client.retire_workers([victim])
    eventually(lambda: len(healed.containers("worker")) == 2, "its container ends")
    gone = set(healed.containers("worker", running=False)) - set(
        healed.containers("worker")
    )
    assert docker("inspect", "-f", "{{.State.ExitCode}}", gone.pop()) == "0"
    done = run_lesson(healed)  # two workers are what is expected now
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 workers on 2 hosts" in done.stdout
    healed.make("up")
    assert len(healed.containers("worker")) == 3


def test_no_workers_is_one_sentence(healed: ComposeCluster) -> None:
    healed.make("scale", "N=0")
    done = run_lesson(healed)
    assert done.returncode == 1
    assert_one_sentence(done.stderr, "no running worker", "make up")


def test_up_twice_changes_nothing(own: ComposeCluster) -> None:
    names = own.containers()
    ids = [docker("inspect", "-f", "{{.Id}}", name) for name in names]
    again = own.make("up")
    assert [
        docker("inspect", "-f", "{{.Id}}", name) for name in own.containers()
    ] == ids
    assert "3 workers on 3 hosts, 6 threads" in again.stdout


def test_two_lessons_at_once(own: ComposeCluster) -> None:
    with (
        running_lesson(CONNECT, own.environment) as first,
        running_lesson(CONNECT, own.environment) as second,
    ):
        outputs = [process.communicate(timeout=120) for process in (first, second)]
    for process, (stdout, stderr) in zip((first, second), outputs, strict=True):
        assert process.returncode == 0, stdout + stderr
        assert stderr == ""


def test_down_on_nothing() -> None:
    nowhere = ComposeCluster("nowhere")
    done = nowhere.make("down")
    assert done.stdout == "Nothing to take down: this cluster is not up.\n"


def test_occupied_port_leaves_nothing_behind() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = ComposeCluster("taken", scheduler_port=server.getsockname()[1])
        done = taken.make("up", expect=2)
    error = done.stderr.splitlines()[0]
    assert error.startswith(f"error: port {taken.scheduler_port} of this machine")
    assert "DASK_SCHEDULER_PORT=" in error
    assert taken.containers(running=False) == []


def test_two_clusters_side_by_side(own: ComposeCluster) -> None:
    other = ComposeCluster("other", workers=1)
    try:
        other.make("up")
        for cluster, size in ((own, "3 workers"), (other, "1 worker ")):
            done = run_lesson(cluster)
            assert done.returncode == 0, done.stdout + done.stderr
            first, second = done.stdout.splitlines()[:2]
            assert first == f"Compose cluster {cluster.project!r} at {cluster.address}"
            assert second.startswith(size)
            assert f"http://127.0.0.1:{cluster.dashboard_port}/status" in done.stdout
    finally:
        other.make("down")
    assert len(own.containers()) == 4  # the neighbour's end did not touch it


def test_down_removes_containers_network_and_volume() -> None:
    short = ComposeCluster("short", workers=1)
    short.make("up")
    done = short.make("down")
    assert "its volume" in done.stdout
    label = f"label=com.docker.compose.project={short.project}"
    assert docker("ps", "--all", "--quiet", "--filter", label) == ""
    assert docker("network", "ls", "--quiet", "--filter", label) == ""
    assert docker("volume", "ls", "--quiet", "--filter", label) == ""


def test_ports_are_on_loopback_only(own: ComposeCluster) -> None:
    """From another network namespace the host's side of the ports is closed."""
    scheduler = own.containers("scheduler")[0]
    bindings = docker("inspect", "-f", "{{json .HostConfig.PortBindings}}", scheduler)
    assert bindings.count('"HostIp":"127.0.0.1"') == 2
    assert bindings.count('"HostIp"') == 2
    network = f"dask-lab-test-elsewhere-{os.getpid()}"
    docker("network", "create", network)
    try:
        gateway = docker(
            "network", "inspect", "-f", "{{(index .IPAM.Config 0).Gateway}}", network
        )
        code = (
            "import socket\n"
            f"for port in ({own.scheduler_port}, {own.dashboard_port}):\n"
            "    with socket.socket() as s:\n"
            "        s.settimeout(5)\n"
            f"        print(s.connect_ex(({gateway!r}, port)) == 0)"
        )
        image = docker("inspect", "-f", "{{.Image}}", scheduler)
        answer = docker(
            "run", "--rm", "--network", network, image, "python", "-c", code
        )
    finally:
        docker("network", "rm", network)
    assert answer.split() == ["False", "False"]
