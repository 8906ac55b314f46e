"""Asking Prometheus and pushing to a gateway, against servers that play their parts."""

import json
import socket
from collections.abc import Callable

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, Gauge
from support import Serve, silent

from dask_cluster_lab.errors import LabError
from dask_cluster_lab.metrics import prometheus
from dask_cluster_lab.metrics.prometheus import (
    Prometheus,
    Series,
    families,
    samples,
    value_here,
)
from dask_cluster_lab.metrics.push import Group, groups, pushed

EXPOSED = """\
# HELP dask_workers Workers.
# TYPE dask_workers gauge
dask_workers{state="idle"} 2
dask_workers{state="paused"} 1
# TYPE dask_spilled counter
# TYPE dask_tasks_total counter
dask_tasks_total 7
"""


class Recorder:
    """Answers every request alike, and keeps what it was asked."""

    def __init__(self, status: str, body: str = "") -> None:
        self.status, self.body = status, body
        self.requests: list[str] = []

    def __call__(self, connection: socket.socket) -> None:
        text = ""
        while "\r\n\r\n" not in text:
            text += connection.recv(65536).decode()
        head, _, rest = text.partition("\r\n\r\n")
        length = next(
            (
                int(line.split(":")[1])
                for line in head.splitlines()
                if line.lower().startswith("content-length:")
            ),
            0,
        )
        while len(rest) < length:
            rest += connection.recv(65536).decode()
        self.requests.append(f"{head.splitlines()[0]}\n{rest}")
        connection.sendall(
            f"HTTP/1.0 {self.status}\r\nContent-Length: {len(self.body)}\r\n\r\n"
            f"{self.body}".encode()
        )


def answer(kind: str, result: object) -> str:
    return json.dumps(
        {"status": "success", "data": {"resultType": kind, "result": result}}
    )


@pytest.fixture
def played(serve: Serve) -> Callable[..., tuple[Prometheus, Recorder]]:
    def play(body: str, status: str = "200 OK") -> tuple[Prometheus, Recorder]:
        recorder = Recorder(status, body)
        return Prometheus(f"http://127.0.0.1:{serve(recorder)}/"), recorder

    return play


def test_series_of_a_query(played: Callable[..., tuple[Prometheus, Recorder]]) -> None:
    result = [{"metric": {"state": "idle"}, "value": [1.5, "3"]}]
    server, recorder = played(answer("vector", result))
    assert server.query('up{a="b"}') == [Series({"state": "idle"}, 3.0)]
    assert server.query("up", when=12.34567) == [Series({"state": "idle"}, 3.0)]
    assert server.value("up") == 3.0
    assert [request.split()[1] for request in recorder.requests] == [
        "/api/v1/query?query=up%7Ba%3D%22b%22%7D",
        "/api/v1/query?query=up&time=12.346",
        "/api/v1/query?query=up",
    ]


def test_a_scalar_and_nothing(
    played: Callable[..., tuple[Prometheus, Recorder]],
) -> None:
    server, _ = played(answer("scalar", [1.5, "42"]))
    assert server.value("42") == 42.0
    nothing, _ = played(answer("vector", []))
    assert nothing.value("absent", default=-1) == -1
    assert str(nothing.value("absent")) == "nan"


def test_several_series_are_not_one_value(
    played: Callable[..., tuple[Prometheus, Recorder]],
) -> None:
    result = [{"metric": {}, "value": [1, "3"]}] * 2
    server, _ = played(answer("vector", result))
    with pytest.raises(LabError, match=r"'up' gives 2 series, not one\."):
        server.value("up")


def test_targets_of_a_job(played: Callable[..., tuple[Prometheus, Recorder]]) -> None:
    active = [
        {"labels": {"instance": instance, "job": job}, "health": health}
        for instance, job, health in [
            ("a:1", "workers", "up"),
            ("b:1", "workers", "down"),
            ("c:1", "other", "up"),
        ]
    ]
    server, _ = played(json.dumps({"data": {"activeTargets": active}}))
    assert server.targets("workers") == {"a:1": "up", "b:1": "down"}


def test_an_expression_that_it_refuses(
    played: Callable[..., tuple[Prometheus, Recorder]],
) -> None:
    server, _ = played(json.dumps({"error": "parse error"}), "400 Bad Request")
    with pytest.raises(LabError) as caught:
        server.query("up{")
    assert str(caught.value) == "Prometheus refused the question: parse error."
    server, _ = played("<html>", "503 Service Unavailable")
    with pytest.raises(LabError, match="refused the question: status 503"):
        server.query("up")


def test_a_server_that_does_not_answer(
    played: Callable[..., tuple[Prometheus, Recorder]],
    closed_port: int,
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prometheus, "SECONDS", 0.3)
    html, _ = played("<html>")
    for server in (
        Prometheus(f"http://127.0.0.1:{closed_port}"),
        Prometheus(f"http://127.0.0.1:{serve(silent)}"),
        html,
    ):
        with pytest.raises(LabError) as caught:
            server.query("up")
        assert str(caught.value).startswith(f"Prometheus at {server.address} does not")
        assert str(caught.value).endswith("'make up PROFILE=monitoring' starts it.")


def test_samples_and_families_of_a_target() -> None:
    assert samples(EXPOSED) == {
        "dask_workers": [
            Series({"state": "idle"}, 2.0),
            Series({"state": "paused"}, 1.0),
        ],
        "dask_tasks_total": [Series({}, 7.0)],
    }
    assert families(EXPOSED) == {"dask_workers", "dask_tasks"}, "one has no sample"
    assert samples("# Prometheus metrics are not available, see: x") == {}


def test_a_value_of_this_process() -> None:
    gauge = Gauge("survey_here", "H.", ["stage"])
    try:
        gauge.labels("grid").set(3)
        assert value_here("survey_here", {"stage": "grid"}) == 3
        assert value_here("survey_here") is None
    finally:
        REGISTRY.unregister(gauge)


# The Pushgateway


def registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    Gauge("survey_tiles", "T.", registry=registry).set(100)
    return registry


def test_a_gateway_that_is_gone_is_one_sentence(closed_port: int) -> None:
    gateway = f"http://127.0.0.1:{closed_port}"
    group = Group(gateway, "lesson")
    with pytest.raises(LabError, match=f"the Pushgateway at {gateway} does not"):
        group.push(registry())
    with pytest.raises(LabError, match=f"the Pushgateway at {gateway} does not"):
        group.delete()
    with pytest.raises(LabError, match=f"{gateway}/metrics does not answer"):
        groups(gateway)
    group.give_up()  # on the way out it does not matter


def test_what_is_sent_to_a_gateway(serve: Serve) -> None:
    recorder = Recorder("200 OK")
    gateway = f"http://127.0.0.1:{serve(recorder)}"
    group = Group(gateway, "lesson", {"run": "7"})
    group.push(registry())
    group.add(registry())
    group.delete()
    lines = [request.splitlines()[0] for request in recorder.requests]
    assert [line.rsplit(" ", 1)[0] for line in lines] == [
        "PUT /metrics/job/lesson/run/7",
        "POST /metrics/job/lesson/run/7",
        "DELETE /metrics/job/lesson/run/7",
    ]
    assert "survey_tiles 100.0" in recorder.requests[0]


@pytest.mark.parametrize("failure", [None, ZeroDivisionError])
def test_a_pushed_group_is_deleted_however_the_job_ends(
    failure: type[Exception] | None, serve: Serve
) -> None:
    recorder = Recorder("200 OK")
    gateway = f"http://127.0.0.1:{serve(recorder)}"

    def job() -> None:
        with pushed(gateway, "lesson", run="7") as group:
            group.push(registry())
            if failure:
                raise failure

    if failure:
        with pytest.raises(failure):
            job()
    else:
        job()
    assert recorder.requests[-1].startswith("DELETE /metrics/job/lesson/run/7 ")


def test_a_gateway_that_is_gone_does_not_hide_how_the_job_ended(
    closed_port: int,
) -> None:
    gateway = f"http://127.0.0.1:{closed_port}"
    with (
        pushed(gateway, "lesson", run="7") as group,
        pytest.raises(LabError),
    ):
        group.push(registry())
    with pytest.raises(ZeroDivisionError), pushed(gateway, "lesson", run="7"):
        _ = 1 / 0
