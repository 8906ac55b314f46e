"""The watchdog: what it bites for, and what it lets pass."""

import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest
from support import eventually

from dask_cluster_lab import watchdog as module
from dask_cluster_lab.cluster import ClusterSession, Kind, connect
from dask_cluster_lab.errors import LabError
from dask_cluster_lab.lesson import Lesson
from dask_cluster_lab.watchdog import Watchdog

if TYPE_CHECKING:
    from distributed import Client, LocalCluster

ROOM = 60.0
WORKER = "tcp://10.0.0.2:40001"


def fake_session(kind: Kind, address: str = "tcp://127.0.0.1:1") -> ClusterSession:
    return ClusterSession(cast("Client", None), kind, address, "")


@pytest.fixture
def bites(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Thread and signal of every interrupt, which is recorded and not sent."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(signal, "pthread_kill", lambda *call: sent.append(call))
    return sent


@pytest.fixture
def nervous(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watchdog that looks often and has little patience."""
    monkeypatch.setattr(module, "LOOK_EVERY", 0.02)
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(module, "SILENT_SECONDS", 0.4)


class Scheduler:
    """Answers in place of a scheduler; ``None`` is no answer."""

    def __init__(self) -> None:
        self.heartbeats: dict[str, float] | None = {WORKER: 1.0}
        self.beating = False
        self.asked = 0

    def __call__(self, address: str, seconds: float) -> dict[str, Any]:
        self.asked += 1
        assert address == "tcp://127.0.0.1:1"
        if self.heartbeats is None:
            raise TimeoutError
        if self.beating:
            self.heartbeats = {a: seen + 1 for a, seen in self.heartbeats.items()}
        return {
            "workers": {a: {"last_seen": seen} for a, seen in self.heartbeats.items()}
        }


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    played = Scheduler()
    monkeypatch.setattr(module, "ask_identity", played)
    return played


@pytest.fixture
def started() -> Iterator[list[Watchdog]]:
    """Watchdogs that are called off at the end."""
    dogs: list[Watchdog] = []
    yield dogs
    for dog in dogs:
        dog.stop(None)
        dog.join(ROOM)
        assert not dog.is_alive()


def start(dogs: list[Watchdog], session: ClusterSession, seconds: float) -> Watchdog:
    dog = Watchdog(session, seconds)
    dogs.append(dog)
    dog.start()
    return dog


# The clock


def test_the_deadline(
    bites: list[tuple[int, int]], started: list[Watchdog], scheduler: Scheduler
) -> None:
    begin = time.monotonic()
    dog = start(started, fake_session("local"), 0.2)
    eventually(lambda: bites, "the interrupt")
    assert 0.2 <= time.monotonic() - begin < ROOM
    assert set(bites) == {(threading.main_thread().ident, signal.SIGUSR1)}
    verdict = dog.stop(KeyboardInterrupt())
    assert isinstance(verdict, LabError)
    assert verdict.exit_status == 1
    assert str(verdict) == (
        "the lesson did not end within 0.2 s; 'make logs' may say why."
    )
    assert scheduler.asked == 0


def test_a_lesson_that_ends_in_time(
    bites: list[tuple[int, int]], started: list[Watchdog]
) -> None:
    dog = start(started, fake_session("local"), 3600)
    assert dog.daemon
    assert dog.stop(None) is None
    dog.join(ROOM)
    assert not dog.is_alive()
    assert bites == []


def test_the_deadline_interrupts_the_main_thread(
    capsys: pytest.CaptureFixture[str],
) -> None:
    begin = time.monotonic()
    with (
        pytest.raises(LabError, match=r"^the lesson did not end within 1 s; "),
        Lesson(fake_session("local"), seconds=1),
    ):
        threading.Event().wait(ROOM)
    assert time.monotonic() - begin < ROOM
    assert "Summary" not in capsys.readouterr().out


def test_a_way_out_that_hangs_is_interrupted_too(
    monkeypatch: pytest.MonkeyPatch, started: list[Watchdog]
) -> None:
    monkeypatch.setattr(module, "LOOK_EVERY", 0.1)
    dog = start(started, fake_session("local"), 0.1)
    for _ in range(2):
        with pytest.raises(LabError, match=r"^the lesson did not end within 0.1 s; "):
            threading.Event().wait(ROOM)
    assert dog.stop(LabError("any")) is not None


DEAF = """
import signal, threading
from dask_cluster_lab.cluster import ClusterSession
from dask_cluster_lab.lesson import Lesson, run
assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN

def main():
    with Lesson(ClusterSession(None, "local", "", ""), seconds=1):
        threading.Event().wait(60)

run(main)
"""


def test_a_process_that_ignores_interrupts() -> None:
    """So starts whatever a shell script puts into the background."""
    done = subprocess.run(
        ["sh", "-c", 'trap "" INT; exec "$0" -c "$1"', sys.executable, DEAF],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stderr == (
        "error: the lesson did not end within 1 s; 'make logs' may say why.\n"
    )
    assert done.returncode == 1


# The scheduler and its workers


def test_a_scheduler_that_is_gone(
    nervous: None,
    bites: list[tuple[int, int]],
    started: list[Watchdog],
    closed_port: int,
) -> None:
    session = fake_session("compose", f"tcp://127.0.0.1:{closed_port}")
    dog = start(started, session, 3600)
    eventually(lambda: bites, "the interrupt")
    assert set(bites) == {(threading.main_thread().ident, signal.SIGUSR1)}
    assert str(dog.stop(KeyboardInterrupt())) == (
        f"the scheduler at tcp://127.0.0.1:{closed_port} was lost during the lesson; "
        "'make ps' shows what runs, 'make up' brings the cluster back."
    )


def test_a_scheduler_that_dies(
    nervous: None, bites: list[tuple[int, int]], started: list[Watchdog]
) -> None:
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tcp",
        dashboard_address="127.0.0.1:0",
    ) as dying:
        session = connect(dying.scheduler_address, quiet=True)
        dog = start(started, session, 3600)
    eventually(lambda: bites, "the interrupt")
    assert "was lost during the lesson" in str(dog.stop(KeyboardInterrupt()))
    session.close()


def test_a_scheduler_that_is_busy_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
    bites: list[tuple[int, int]],
    started: list[Watchdog],
    scheduler: Scheduler,
) -> None:
    monkeypatch.setattr(module, "LOOK_EVERY", 0.02)
    scheduler.heartbeats = None
    dog = start(started, fake_session("remote"), 3600)
    eventually(lambda: scheduler.asked > 2, "questions without an answer")
    scheduler.heartbeats = {}
    asked = scheduler.asked
    eventually(lambda: scheduler.asked > asked + 2, "questions with an answer")
    assert dog.is_alive()
    assert bites == []


def test_a_worker_without_heartbeat(
    nervous: None,
    bites: list[tuple[int, int]],
    started: list[Watchdog],
    scheduler: Scheduler,
) -> None:
    dog = start(started, fake_session("compose"), 3600)
    eventually(lambda: bites, "the interrupt")
    assert str(dog.stop(KeyboardInterrupt())) == (
        f"worker {WORKER} has sent no heartbeat for 0.4 s: it is frozen or cut off; "
        "'make ps' shows the containers, 'make restart' brings them back."
    )


def test_workers_with_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENT_SECONDS", 10.0)
    now = 1000.0
    clock = types.SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr(module, "time", clock)
    dog = Watchdog(fake_session("compose"), 3600)
    workers = {"a": 1.0, "b": 1.0}
    monkeypatch.setattr(
        module,
        "ask_identity",
        lambda *_: {"workers": {a: {"last_seen": w} for a, w in workers.items()}},
    )
    assert dog._trouble() is None
    now += 9
    workers["a"] += 1
    assert dog._trouble() is None
    del workers["b"]  # retired: no longer watched
    now += 9
    assert dog._trouble() is None
    workers["b"] = 1.0  # back under the same address: from the beginning
    workers["a"] += 1
    now += 9
    assert dog._trouble() is None
    workers["a"] += 1
    now += 9
    assert dog._trouble() is None
    workers["a"] += 1
    now += 2
    assert str(dog._trouble()).startswith("worker b has sent no heartbeat for 10 s: ")


def test_real_workers_send_heartbeats(
    cluster: "LocalCluster",
    monkeypatch: pytest.MonkeyPatch,
    bites: list[tuple[int, int]],
    started: list[Watchdog],
) -> None:
    monkeypatch.setattr(module, "LOOK_EVERY", 0.05)
    session = fake_session("remote", cluster.scheduler_address)
    dog = start(started, session, 3600)
    eventually(lambda: len(dog._heartbeats) == 2, "both workers")
    first = {address: seen for address, (seen, _) in dog._heartbeats.items()}
    eventually(
        lambda: all(
            seen != first[address] for address, (seen, _) in dog._heartbeats.items()
        ),
        "another heartbeat of both",
    )
    assert bites == []


# Errors of the lesson


def test_an_error_of_the_lesson_stays_its_own(cluster: "LocalCluster") -> None:
    session = fake_session("remote", cluster.scheduler_address)
    assert Watchdog(session, 60).stop(ValueError("of the lesson")) is None


def test_an_error_after_the_client_was_closed(cluster: "LocalCluster") -> None:
    session = connect(cluster.scheduler_address, quiet=True)
    session.client.close()
    dog = Watchdog(session, 60)
    assert dog._trouble() is None
    assert len(dog._heartbeats) == 2
    assert dog.stop(ValueError("of the lesson")) is None
    session.close()


def test_an_error_because_the_scheduler_is_gone(
    nervous: None, closed_port: int
) -> None:
    session = fake_session("remote", f"tcp://127.0.0.1:{closed_port}")
    verdict = Watchdog(session, 60).stop(OSError("Timed out"))
    assert "was lost during the lesson" in str(verdict)


def test_an_error_because_the_scheduler_was_gone(cluster: "LocalCluster") -> None:
    """It is back, but without the lesson's keys."""
    session = fake_session("compose", cluster.scheduler_address)
    error = RuntimeError("cancelled for reason: scheduler-connection-lost.")
    assert "was lost during the lesson" in str(Watchdog(session, 60).stop(error))


@pytest.mark.parametrize("error", [None, KeyboardInterrupt(), SystemExit(3)])
def test_the_end_that_the_user_wants(
    error: BaseException | None, closed_port: int
) -> None:
    session = fake_session("remote", f"tcp://127.0.0.1:{closed_port}")
    assert Watchdog(session, 60).stop(error) is None


def test_an_error_on_the_stand_in() -> None:
    error = ValueError("scheduler-connection-lost")
    assert Watchdog(fake_session("local"), 60).stop(error) is None
