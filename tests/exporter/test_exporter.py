"""The whole exporter as a process, in front of a made Dagster."""

import json
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support import Serve, eventually, silent

from dagster_exporter.__main__ import main

from .fake_dagster import FakeDagster, make_run, over_http
from .process import Process, exporter

SECRET = "hush-hush-4711"
CREDENTIALS = {"DAGSTER_EXPORTER_HEADERS": f"Authorization: Bearer {SECRET}"}
COLLECTORS = {
    "code_location_status",
    "active_runs",
    "completed_runs",
    "daemon_health",
    "definitions_roster",
    "op_pool_concurrency",
    "asset_status",
}


@pytest.fixture
def running(fake: FakeDagster, tmp_path: Path) -> Iterator[Process]:
    """An exporter that has polled everything once."""
    with (
        over_http(fake) as endpoint,
        exporter(tmp_path, endpoint, environ=CREDENTIALS) as process,
    ):
        process.ready()
        yield process


def test_it_counts_and_stops_when_told(fake: FakeDagster, running: Process) -> None:
    good = {"job_name": "good", "location": "lab", "status": "success"}
    running.reads(0, "dagster_completed_runs_total", **good)
    fake.runs = [make_run("a", at=time.time())]
    running.reads(1, "dagster_completed_runs_total", **good)
    success = running.samples().series("dagster_exporter_last_scrape_success")
    assert {dict(labels)["collector"] for labels in success} == COLLECTORS
    memory = running.value("process_resident_memory_bytes")
    assert memory is not None
    assert memory > 1e6
    assert running.stop() == 0
    events = [json.loads(line)["event"] for line in running.log().splitlines()]
    assert events == ["started", "stopped"]


def test_dagster_hangs_and_metrics_do_not(serve: Serve, tmp_path: Path) -> None:
    endpoint = f"http://127.0.0.1:{serve(silent)}/graphql"
    with exporter(tmp_path, endpoint, "--timeout", "3600") as process:
        eventually(lambda: process.get("/metrics").status_code == 200, "an answer")
        assert process.get("/healthz").status_code == 200
        assert process.get("/readyz").status_code == 503
        assert process.stop() == 0  # also with every request still open


def test_one_collector_fails_alone(fake: FakeDagster, running: Process) -> None:
    def broken(query: str, data: dict[str, object]) -> dict[str, object]:
        return {} if query == "daemons" else data

    fake.change = broken
    failures = "dagster_exporter_poll_failures_total"
    labels = {"collector": "daemon_health", "reason": "missing_field"}
    eventually(lambda: running.value(failures, **labels), "the failure")
    running.poll_again("completed_runs", "active_runs")
    assert len(running.samples().series(failures)) == 1
    fake.change = lambda query, data: data
    success = "dagster_exporter_last_scrape_success"
    running.reads(1, success, collector="daemon_health")


def test_odd_values_end_no_process(fake: FakeDagster, running: Process) -> None:
    """Half of a character, and a number that is none: JSON has both."""
    tags = {"dagster/concurrency_key": "x\ud800"}
    fake.runs = [make_run("a", "QUEUED", at=time.time(), tags=tags)]
    fake.pools = [
        {
            "concurrencyKey": "db",
            "limit": float("nan"),
            "usingDefaultLimit": False,
            "activeSlotCount": 0,
            "assignedStepCount": 0,
            "pendingStepCount": 0,
        }
    ]
    failures = "dagster_exporter_poll_failures_total"
    eventually(lambda: len(running.samples().series(failures)) == 2, "two failures")
    running.poll_again("completed_runs", "daemon_health")
    assert running.samples().series(failures).keys() == {
        frozenset({"collector": name, "reason": "missing_field"}.items())
        for name in ("active_runs", "op_pool_concurrency")
    }
    fake.runs, fake.pools = [], []
    success = "dagster_exporter_last_scrape_success"
    running.reads(1, success, collector="active_runs")
    running.reads(1, success, collector="op_pool_concurrency")
    assert running.stop() == 0


@pytest.mark.parametrize("mischief", ["echo", "union", "redirect", "close", "html"])
def test_credentials_are_nowhere_to_be_found(
    serve: Serve, tmp_path: Path, mischief: str
) -> None:
    asked = []

    def handle(connection: socket.socket) -> None:
        question = connection.recv(65536)
        asked.append(question)
        if mischief == "close":
            return
        body = question if mischief == "html" else b""
        if mischief == "echo":
            message = question.decode(errors="replace")
            body = json.dumps({"errors": [{"message": message}]}).encode()
        if mischief == "union":
            error = {"__typename": "PythonError", "message": 290 * "x" + SECRET}
            fields = ("workspaceOrError", "runsOrError")
            body = json.dumps({"data": dict.fromkeys(fields, error)}).encode()
        status = "302 Found" if mischief == "redirect" else "500 Error"
        status = "200 OK" if mischief == "union" else status
        place = f"Location: /login?{SECRET}\r\n" if mischief == "redirect" else ""
        head = f"HTTP/1.1 {status}\r\n{place}Content-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)

    file = tmp_path / "headers"
    file.write_text(f"X-Token: {SECRET}\n")
    endpoint = f"http://127.0.0.1:{serve(handle)}/graphql"
    arguments = ["--headers-file", str(file)]
    with exporter(tmp_path, endpoint, *arguments, environ=CREDENTIALS) as process:
        failed = "dagster_exporter_scrape_errors_total"
        eventually(
            lambda: process.samples().total(failed) >= len(COLLECTORS), "failures"
        )
        pages = [process.get(path).text for path in ("/metrics", "/readyz", "/")]
        assert process.stop() == 0
        assert all(SECRET not in page for page in pages)
        # Nor the beginning of it, where a long message is cut.
        assert SECRET[:5] not in process.log()
    assert asked[0].count(SECRET.encode()) == 2


def test_a_kill_loses_nothing_where_there_is_a_state_file(
    fake: FakeDagster, tmp_path: Path
) -> None:
    good = {"job_name": "good", "location": "lab", "status": "success"}
    arguments = ["--state-file", str(tmp_path / "state")]
    with over_http(fake) as endpoint:
        with exporter(tmp_path, endpoint, *arguments) as process:
            fake.runs = [make_run("a", at=time.time())]
            process.reads(1, "dagster_completed_runs_total", **good)
            process.process.send_signal(signal.SIGKILL)
        fake.runs.append(make_run("b", at=time.time()))
        with exporter(tmp_path, endpoint, *arguments) as process:
            process.reads(2, "dagster_completed_runs_total", **good)
            process.poll_again("completed_runs")
            process.reads(2, "dagster_completed_runs_total", **good)


def test_the_address_is_taken(
    closed_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--listen", f"127.0.0.1:{closed_port}"]) == 2
    error = capsys.readouterr().err
    assert error == f"error: cannot listen at 127.0.0.1:{closed_port}.\n"


def test_scrapes_at_once(running: Process) -> None:
    with httpx.Client(base_url=running.url, timeout=30) as client:
        for _ in range(50):
            assert client.get("/metrics").status_code == 200
