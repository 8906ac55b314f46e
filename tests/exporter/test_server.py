"""What is served, from the state alone."""

import json
from collections.abc import Iterator

import httpx
import pytest
from conftest import leave_out

from dagster_exporter import metrics
from dagster_exporter.server import Server
from dagster_exporter.state import State


@pytest.fixture
def state() -> State:
    return State(["a", "b"])


@pytest.fixture
def client(state: State) -> Iterator[httpx.Client]:
    server = Server(("127.0.0.1", 0), state)
    server.serve_in_background()
    address = f"http://127.0.0.1:{server.port}"
    with httpx.Client(base_url=address, timeout=30) as client:
        yield client
    server.stop()


def test_metrics(client: httpx.Client, state: State) -> None:
    state.good("a", [metrics.LOAD_ERROR.family([(("lab",), 1)])], 0.1)
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert 'dagster_code_location_load_error{location="lab"} 1.0' in answer.text
    assert answer.content.endswith(b"\n")


def test_ready_only_after_a_good_poll_of_each(
    client: httpx.Client, state: State
) -> None:
    assert client.get("/healthz").status_code == 200
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert json.loads(answer.text)["no good poll yet"] == ["a", "b"]
    state.good("a", [], 0.1)
    state.failed("b", "timeout", 0.1)
    assert client.get("/readyz").status_code == 503
    state.good("b", [], 0.1)
    assert client.get("/readyz").status_code == 200
    # A failure later on does not take it back: the metrics tell about that.
    state.failed("b", "timeout", 0.1)
    assert client.get("/readyz").status_code == 200


def test_the_landing_page_leads_to_the_others(client: httpx.Client) -> None:
    page = client.get("/").text
    for path in ("/metrics", "/healthz", "/readyz"):
        assert f'href="{path}"' in page
    assert client.get("/nothing").status_code == 404
    head = client.head("/metrics")
    assert (head.status_code, head.content) == (200, b"")


def test_the_other_internet_protocol(state: State) -> None:
    try:
        server = Server(("::1", 0), state)
    except OSError:
        leave_out("there is no loopback for IPv6", "a machine with IPv6 brings it")
        return
    server.serve_in_background()
    with httpx.Client(base_url=f"http://[::1]:{server.port}", timeout=30) as client:
        assert client.get("/healthz").status_code == 200
    server.stop()


def test_what_it_does_not_know(
    client: httpx.Client, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(httpx.HTTPError):
        client.post("/metrics").raise_for_status()
    assert client.get("/metrics").status_code == 200
    assert capfd.readouterr() == ("", "")
