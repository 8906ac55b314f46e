"""Connecting: to a scheduler, to the labelled stand-in, or not at all."""

import contextlib
import functools
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from support import Serve, eventually, silent

from dask_cluster_lab import cluster as module
from dask_cluster_lab.cluster import (
    ClusterSession,
    WorkerInfo,
    ask_identity,
    connect,
    describe_workers,
)
from dask_cluster_lab.errors import LabError, UsageError
from dask_cluster_lab.wire import NoWire, WireMeter

if TYPE_CHECKING:
    from distributed import Client, LocalCluster

ROOM = 120.0
"""Seconds that connecting or closing may take on a very busy machine."""


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less patience with what will never answer."""
    monkeypatch.setattr(module, "STARTING_SECONDS", 0.3)
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.5)


@contextlib.contextmanager
def bounded(seconds: float = ROOM) -> Iterator[None]:
    start = time.monotonic()
    yield
    assert time.monotonic() - start < seconds


# The stand-in


def test_nothing_listens_so_a_stand_in_starts(
    closed_port: int,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with bounded(), connect(f"127.0.0.1:{closed_port}", meter_wire=True) as session:
        assert session.kind == "local"
        assert session.name == ""
        assert session.label == (
            "LocalCluster, in this process, as a fallback: nothing listens at\n"
            f"tcp://127.0.0.1:{closed_port} (connection refused).\n"
            "'make up' starts the real cluster; n/a marks what this one cannot show."
        )
        assert session.address.startswith("inproc://")
        assert [(w.threads, w.memory_limit, w.nanny) for w in session.workers()] == [
            (2, 3 * 2**29, ""),
            (2, 3 * 2**29, ""),
        ]
        assert session.client.submit(os.getpid).result(timeout=ROOM) == os.getpid()
        assert not session.wire.present
        monkeypatch.setenv("DASK_LAB_ALLOW_DISRUPTION", "1")
        assert session.may_disrupt is False
        assert not session.dashboard.endswith("/")
        with urllib.request.urlopen(f"{session.dashboard}/health", timeout=ROOM) as got:
            assert got.read() == b"ok"
        label = session.label
    out, err = capfd.readouterr()
    assert (out, err) == (label + "\n", "")


def test_the_stand_in_leaves_nothing(
    closed_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    session = connect(f"127.0.0.1:{closed_port}", quiet=True)
    (scratch,) = tmp_path.glob("dask-cluster-lab-*")
    assert any(scratch.iterdir())
    assert {str(scratch)} == {
        str(Path(folder).parents[1])
        for folder in session.client.run(
            lambda dask_worker: dask_worker.local_directory
        ).values()
    }
    session.close()
    assert list(tmp_path.iterdir()) == []
    assert session.client.status == "closed"


def test_the_dashboards_usual_port_may_be_taken(
    closed_port: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with contextlib.ExitStack() as stack:
        holder = stack.enter_context(socket.socket())
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # then another program holds it
            holder.bind(("127.0.0.1", 8787))
            holder.listen()
        caught = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        connect(f"127.0.0.1:{closed_port}", quiet=True).close()
    assert [str(w.message) for w in caught if "8787" in str(w.message)] == []
    assert capfd.readouterr() == ("", "")


def test_a_name_that_does_not_resolve_is_told(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", "tcp://scheduler.invalid:8786")
    with connect() as session:
        assert session.kind == "local"
    lines = capfd.readouterr().out.splitlines()
    assert " ".join(lines[:2]) == (
        "LocalCluster, in this process, as a fallback: "
        "the name 'scheduler.invalid' does not resolve."
    )


def test_no_stand_in_wanted(closed_port: int) -> None:
    with bounded(), pytest.raises(LabError) as caught:
        connect(f"127.0.0.1:{closed_port}", allow_fallback=False)
    assert str(caught.value) == (
        f"nothing listens at tcp://127.0.0.1:{closed_port} (connection refused); "
        "'make up' starts the cluster."
    )
    assert caught.value.exit_status == 1


# What is no scheduler


@pytest.mark.parametrize("address", ["http://127.0.0.1:8787", "", "127.0.0.1"])
@pytest.mark.parametrize("given", ["argument", "environment"])
def test_a_malformed_address_is_never_the_stand_in(
    address: str, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if given == "environment":
        monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", address)
    with pytest.raises(UsageError, match="is not a scheduler address"):
        connect(address if given == "argument" else None)


def test_a_port_that_stays_silent(serve: Serve) -> None:
    port = serve(silent)
    with bounded(), pytest.raises(UsageError) as caught:
        connect(f"127.0.0.1:{port}")
    assert str(caught.value) == (
        f"something at tcp://127.0.0.1:{port} accepts connections but is no Dask "
        "scheduler (no greeting within 1.8 s); "
        "give the scheduler's own port (8786 by default)."
    )


def test_the_dashboards_port(
    cluster: "LocalCluster", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "probe", functools.partial(module.probe, seconds=1))
    port = int(cluster.dashboard_link.removesuffix("/status").rpartition(":")[2])
    with bounded(), pytest.raises(UsageError, match="is no Dask scheduler"):
        connect(f"127.0.0.1:{port}")


def test_a_port_that_hangs_up(serve: Serve, quick: None) -> None:
    port = serve(lambda connection: None)
    with bounded(), pytest.raises(UsageError) as caught:
        connect(f"127.0.0.1:{port}")
    assert str(caught.value) == (
        f"tcp://127.0.0.1:{port} accepts connections and closes them at once; "
        "give the scheduler's own port (8786 by default)."
    )


def test_another_protocol(serve: Serve) -> None:
    port = serve(lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n"))
    with bounded(), pytest.raises(UsageError) as caught:
        connect(f"127.0.0.1:{port}")
    assert str(caught.value) == (
        f"what answers at tcp://127.0.0.1:{port} is no Dask scheduler; "
        "give the scheduler's own port (8786 by default)."
    )


@pytest.mark.parametrize("meter_wire", [False, True])
def test_the_port_of_a_worker(meter_wire: bool, cluster: "LocalCluster") -> None:
    address = cluster.workers[0].address
    threads = threading.active_count()
    with bounded(), pytest.raises(UsageError) as caught:
        connect(address, meter_wire=meter_wire)
    assert str(caught.value) == (
        f"what answers at {address} is a Dask Worker, not a scheduler."
    )
    eventually(lambda: threading.active_count() <= threads, "the end of the meter")


def test_a_scheduler_that_greets_and_no_more(
    cluster: "LocalCluster", serve: Serve, quick: None
) -> None:
    host, port = cluster.scheduler_address.removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port)), timeout=ROOM) as real:
        greeting = real.recv(1024)

    def greet(connection: socket.socket) -> None:
        connection.sendall(greeting)
        silent(connection)

    frozen = serve(greet)
    with bounded(), pytest.raises(LabError) as caught:
        connect(f"127.0.0.1:{frozen}")
    assert str(caught.value) == (
        f"the scheduler at tcp://127.0.0.1:{frozen} greets but does not answer "
        "(TimeoutError); 'make restart' brings it back."
    )
    assert caught.value.exit_status == 1


def test_a_scheduler_without_workers() -> None:
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=0, processes=False, protocol="tcp", dashboard_address="127.0.0.1:0"
    ) as empty:
        with bounded(), pytest.raises(LabError) as caught:
            connect(empty.scheduler_address, seconds=0.3)
        assert str(caught.value) == (
            f"0 of 1 workers registered at {empty.scheduler_address} within 0.3 s; "
            "'make logs' says why, 'make up' mends it."
        )
        assert caught.value.exit_status == 1
        assert ask_identity(empty.scheduler_address, ROOM)["n_workers"] == 0


def test_a_worker_that_comes_late() -> None:
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=0,
        threads_per_worker=1,
        processes=False,
        protocol="tcp",
        dashboard_address="127.0.0.1:0",
    ) as growing:
        later = threading.Timer(0.2, growing.scale, args=(1,))
        later.start()
        with connect(growing.scheduler_address, seconds=ROOM, quiet=True) as session:
            assert len(session.workers()) == 1
        later.join()


# A remote scheduler


def test_a_remote_scheduler(
    cluster: "LocalCluster",
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = cluster.scheduler_address
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", address.removeprefix("tcp://"))
    with bounded(), connect() as session:
        assert session.kind == "remote"
        assert session.name == ""
        assert session.address == address
        assert session.client.submit(sum, [1, 2, 3]).result(timeout=ROOM) == 6
        assert session.dashboard == cluster.dashboard_link.removesuffix("/status")
        assert isinstance(session.wire, NoWire)
        assert session.may_disrupt is False
        monkeypatch.setenv("DASK_LAB_ALLOW_DISRUPTION", "yes")
        assert session.may_disrupt is False
        monkeypatch.setenv("DASK_LAB_ALLOW_DISRUPTION", "1")
        assert session.may_disrupt is True
    out, err = capfd.readouterr()
    assert out == f"Remote scheduler at {address}\n2 workers on 1 host, 2 threads\n"
    assert err == ""


def test_closing_twice_is_harmless(
    cluster: "LocalCluster", capfd: pytest.CaptureFixture[str]
) -> None:
    session = connect(cluster.scheduler_address, meter_wire=True, quiet=True)
    with bounded():
        session.close()
        session.close()
    assert session.client.status == "closed"
    assert capfd.readouterr() == ("", "")


# In a process of its own, since Dask's log goes to the standard error of its import.
SCHEDULER_DIES = """
import time
from distributed import LocalCluster
from dask_cluster_lab.cluster import connect
with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, protocol="tcp",
                  dashboard_address="127.0.0.1:0") as dying:
    session = connect(dying.scheduler_address, quiet=True)
deadline = time.monotonic() + 20
while session.client.status != "connecting":
    assert time.monotonic() < deadline
    time.sleep(0.01)
start = time.monotonic()
session.close()
print(session.client.status, time.monotonic() - start < 8)
"""


def test_closing_when_the_scheduler_is_gone() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCHEDULER_DIES],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "closed True\n"


def test_the_meter_sees_an_argument(cluster: "LocalCluster") -> None:
    payload = os.urandom(1_000_000)
    address = cluster.scheduler_address
    with connect(address, meter_wire=True, quiet=True) as session:
        assert session.address == address
        assert isinstance(session.wire, WireMeter)
        with session.wire.count() as traffic:
            length = session.client.submit(len, payload, pure=False).result(ROOM)
        assert length == 1_000_000
        assert 1_000_000 <= traffic.sent < 1_100_000
        assert 0 < traffic.received < 100_000
        port = session.wire.local_port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=ROOM)


class HangsUpTwice(WireMeter):
    """Like a published port before the scheduler listens behind it."""

    seen = 0

    def _relay(self, client: socket.socket) -> None:
        self.seen += 1
        if self.seen <= 2:
            client.close()
        else:
            super()._relay(client)


def test_a_scheduler_that_is_about_to_listen(cluster: "LocalCluster") -> None:
    host, port = cluster.scheduler_address.removeprefix("tcp://").split(":")
    early = HangsUpTwice(host, int(port))
    with connect(f"127.0.0.1:{early.local_port}", quiet=True) as session:
        assert session.kind == "remote"
    assert early.seen >= 4
    early.close()


def test_a_tls_scheduler(tls_cluster: "LocalCluster") -> None:
    address = tls_cluster.scheduler_address
    with connect(address, meter_wire=True, quiet=True) as session:
        assert session.kind == "remote"
        assert session.address == address
        assert address.startswith("tls://")
        with session.wire.count() as traffic:
            assert session.client.submit(len, b"x" * 100_000).result(ROOM) == 100_000
        assert 100_000 < traffic.sent < 150_000


# Our own containers, played by a scheduler in this process


def all_workers(name: str) -> tuple[str, list[str], list[str]]:
    """As the containers' DNS answers; the workers of these tests share a host."""
    assert name == "worker"
    return name, [], ["127.0.0.1"]


def one_more(name: str) -> tuple[str, list[str], list[str]]:
    return name, [], ["127.0.0.1", "10.0.0.4"]


def no_workers(name: str) -> tuple[str, list[str], list[str]]:
    raise socket.gaierror(-2, "Name or service not known")


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The marker is in the scheduler's environment."""
    monkeypatch.setenv("DASK_LAB_CLUSTER", "lab-test")
    monkeypatch.setenv("DASK_LAB_DASHBOARD", "http://127.0.0.1:12345")
    monkeypatch.setattr(socket, "gethostbyname_ex", all_workers)
    return monkeypatch


def test_our_own_cluster(cluster: "LocalCluster", marked: pytest.MonkeyPatch) -> None:
    with connect(cluster.scheduler_address, quiet=True) as session:
        assert session.kind == "compose"
        assert session.name == "lab-test"
        assert session.may_disrupt is True
        assert session.dashboard == "http://127.0.0.1:12345"
        assert session.label == (
            f"Compose cluster 'lab-test' at {cluster.scheduler_address}\n"
            "2 workers on 1 host, 2 threads"
        )


def test_a_worker_container_that_does_not_register(
    cluster: "LocalCluster", marked: pytest.MonkeyPatch
) -> None:
    marked.setattr(socket, "gethostbyname_ex", one_more)
    with bounded(), pytest.raises(LabError, match=r"^1 of 2 workers registered at "):
        connect(cluster.scheduler_address, seconds=0.3)


def test_no_worker_container(
    cluster: "LocalCluster", marked: pytest.MonkeyPatch
) -> None:
    marked.setattr(socket, "gethostbyname_ex", no_workers)
    with bounded(), pytest.raises(LabError) as caught:
        connect(cluster.scheduler_address)
    assert str(caught.value) == (
        f"the cluster at {cluster.scheduler_address} has a scheduler but no running "
        "worker; 'make up' brings the workers back."
    )


# Describing


def test_eight_workers() -> None:
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=8,
        threads_per_worker=3,
        memory_limit=0,
        processes=False,
        protocol="tcp",
        dashboard_address="127.0.0.1:0",
    ) as wide:
        with connect(wide.scheduler_address, quiet=True) as session:
            found = describe_workers(session.client)
            assert session.workers() == found
            assert session.label.endswith("\n8 workers on 1 host, 24 threads")
        assert sorted(w.address for w in wide.workers.values()) == [
            w.address for w in found
        ]
    assert [(w.host, w.threads, w.memory_limit) for w in found] == [
        ("127.0.0.1", 3, 0)
    ] * 8
    assert [(w.nanny, w.status) for w in found] == [("", "running")] * 8


class FakeClient:
    """Answers like a client, without a cluster."""

    def __init__(self) -> None:
        self.scheduler = self

    def sync(self, ask: Callable[..., dict[str, Any]], **arguments: int) -> Any:
        return ask(**arguments)

    def identity(self, n_workers: int) -> dict[str, Any]:
        assert n_workers == -1
        info = {
            "host": "10.0.0.3",
            "nthreads": 2,
            "memory_limit": None,
            "nanny": "tcp://10.0.0.3:41",
            "status": "paused",
            "resources": {},
        }
        second = {**info, "memory_limit": 5, "nanny": None}
        return {"workers": {"tcp://10.0.0.3:2": info, "tcp://10.0.0.3:1": second}}


def test_workers_are_never_missing_by_chance(cluster: "LocalCluster") -> None:
    """The client's own list loses them whenever its periodic callback comes by."""
    import dask
    from distributed import Client

    with (
        dask.config.set({"distributed.client.scheduler-info-interval": "2ms"}),
        Client(cluster.scheduler_address, set_as_default=False) as client,
    ):
        assert {len(describe_workers(client)) for _ in range(500)} == {2}


def test_workers_are_sorted_and_gaps_filled() -> None:
    assert describe_workers(cast("Client", FakeClient())) == [
        WorkerInfo("tcp://10.0.0.3:1", "10.0.0.3", 2, 5, "", "paused"),
        WorkerInfo("tcp://10.0.0.3:2", "10.0.0.3", 2, 0, "tcp://10.0.0.3:41", "paused"),
    ]


def test_closing_never_raises() -> None:
    session = ClusterSession(cast("Client", FakeClient()), "local", "inproc://x", "")
    closed = []

    def fail() -> None:
        closed.append(1)
        raise RuntimeError("cannot close")

    session._closing.callback(fail)
    session.close()
    assert closed == [1]
