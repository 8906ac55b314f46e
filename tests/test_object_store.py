"""The object store of a session: who has one, and how a client calls it."""

import json
import os
from typing import Any

import fsspec
import pytest
from compose_cluster import ComposeCluster, docker
from support import eventually

from dask_cluster_lab.cluster import OBJECT_STORE, ClusterSession, connect
from dask_cluster_lab.errors import LabError

THEIRS = {
    "AWS_ENDPOINT_URL": "http://object-store:9000",
    "AWS_ACCESS_KEY_ID": "stand-in",
    "AWS_SECRET_ACCESS_KEY": "stand-in",
    "AWS_DEFAULT_REGION": "us-east-1",
    OBJECT_STORE: "http://127.0.0.1:9000",
}
ENDPOINT = "http://192.0.2.1:9000"


class FakeClient:
    """A cluster of which only environments and the store's name in DNS matter."""

    def __init__(self, *workers: dict[str, str], known: bool = True) -> None:
        self.workers = workers
        self.known = known
        self.asked: list[str] = []

    def run(self, function: Any, name: str) -> dict[str, str | None]:
        assert function is os.getenv
        return {str(i): them.get(name) for i, them in enumerate(self.workers)}

    def run_on_scheduler(self, function: Any, name: str) -> str | None:
        self.asked.append(name)
        if function is os.getenv:
            return self.workers[0].get(name)
        if not self.known:
            raise OSError("Name or service not known")
        return "172.18.0.2"


def session_of(client: FakeClient, kind: Any = "compose") -> ClusterSession:
    return ClusterSession(client, kind, "tcp://x:1", "")  # type: ignore[arg-type]


def test_the_projects_own_while_its_name_resolves() -> None:
    assert session_of(FakeClient(THEIRS)).object_store == "http://127.0.0.1:9000"
    assert session_of(FakeClient(THEIRS, known=False)).object_store == ""


def test_it_is_asked_for_once() -> None:
    client = FakeClient(THEIRS)
    session = session_of(client)
    assert session.object_store == session.object_store
    assert client.asked == ["object-store", OBJECT_STORE]


def test_the_users_own_if_every_worker_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    both, one = FakeClient(THEIRS, THEIRS), FakeClient(THEIRS, {})
    assert session_of(both, "remote").object_store == ""
    monkeypatch.setenv("AWS_ENDPOINT_URL", ENDPOINT)
    assert session_of(both, "remote").object_store == ENDPOINT
    assert session_of(one, "remote").object_store == ""


def test_environment_of_the_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "work")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "secret")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "mine")
    monkeypatch.setenv("HTTP_PROXY", "http://192.0.2.1:3128")
    before = dict(os.environ)
    with session_of(FakeClient(THEIRS)).object_store_environment():
        ours = {k: v for k, v in os.environ.items() if k.startswith("AWS_")}
        assert ours == {
            **{k: v for k, v in THEIRS.items() if k != OBJECT_STORE},
            "AWS_ENDPOINT_URL": "http://127.0.0.1:9000",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }
        assert os.environ["NO_PROXY"] == "127.0.0.1"
    assert dict(os.environ) == before


def test_elsewhere_the_environment_is_the_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", ENDPOINT)
    before = dict(os.environ)
    with session_of(FakeClient(THEIRS), "remote").object_store_environment():
        assert dict(os.environ) == before
    assert dict(os.environ) == before


def test_a_store_that_does_not_answer_is_one_sentence(closed_port: int) -> None:
    endpoint = f"http://127.0.0.1:{closed_port}"
    session = session_of(FakeClient({**THEIRS, OBJECT_STORE: endpoint}))
    before = dict(os.environ)

    def call() -> None:
        with session.object_store_environment():
            os.environ["AWS_MAX_ATTEMPTS"] = "1"
            fsspec.filesystem("s3", skip_instance_cache=True).mkdir("a-bucket")

    with pytest.raises(LabError) as caught:
        call()
    assert str(caught.value).startswith(
        f"the object store at {endpoint} cannot be used (EndpointConnectionError: "
    )
    assert str(caught.value).endswith("; 'make up PROFILE=storage' mends it.")
    assert dict(os.environ) == before


def test_other_errors_stay_what_they_are() -> None:
    before = dict(os.environ)
    with (
        pytest.raises(ZeroDivisionError),
        session_of(FakeClient(THEIRS)).object_store_environment(),
    ):
        _ = 1 / 0
    assert dict(os.environ) == before


# On a real cluster


@pytest.mark.compose
def test_the_store_is_on_loopback_only_and_not_root(
    shared_cluster: ComposeCluster,
) -> None:
    (name,) = shared_cluster.containers("object-store")
    bindings = json.loads(
        docker("inspect", "-f", "{{json .NetworkSettings.Ports}}", name)
    )
    assert bindings == {
        "9000/tcp": [
            {"HostIp": "127.0.0.1", "HostPort": str(shared_cluster.object_store_port)}
        ]
    }
    assert docker("exec", name, "id", "-u") == "1000"
    assert docker("inspect", "-f", "{{json .Mounts}}", name) == "[]"


@pytest.mark.compose
def test_workers_have_s3fs_and_what_it_needs_of_botocore(
    shared_cluster: ComposeCluster,
) -> None:
    worker = shared_cluster.containers("worker")[0]
    code = (
        "import botocore.session, pathlib, s3fs\n"
        "s = botocore.session.get_session()\n"
        "s.create_client('s3'), s.create_client('sts')\n"
        "print(*sorted(s.get_available_services()))"
    )
    assert docker("exec", worker, "python", "-c", code) == "s3 sts"


@pytest.mark.compose
def test_both_sides_reach_it_each_by_its_own_endpoint(
    shared_cluster: ComposeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = shared_cluster.address
    with connect(address, allow_fallback=False, quiet=True) as session:
        assert session.object_store == (
            f"http://127.0.0.1:{shared_cluster.object_store_port}"
        )
        theirs = session.client.run(os.getenv, "AWS_ENDPOINT_URL")
        assert set(theirs.values()) == {"http://object-store:9000"}
        with session.object_store_environment():
            files = fsspec.filesystem("s3", skip_instance_cache=True)
            files.mkdir("written-by-the-client")
            try:
                files.pipe("written-by-the-client/x", b"hello")
                worker = shared_cluster.containers("worker")[0]
                code = (
                    "import fsspec; f = fsspec.filesystem('s3')\n"
                    "print(f.cat('written-by-the-client/x'))"
                )
                assert docker("exec", worker, "python", "-c", code) == "b'hello'"
            finally:
                files.rm("written-by-the-client", recursive=True)


@pytest.mark.compose
def test_the_profiles_life(docker_engine: None) -> None:
    """Up without it, with it, without again; down takes it down unasked."""
    own = ComposeCluster("storage", workers=1)
    service = "object-store"
    try:
        own.make("up")
        assert own.containers(service, running=False) == []
        with connect(own.address, allow_fallback=False, quiet=True) as session:
            assert session.object_store == ""
        own.make("up", PROFILE="storage")
        (name,) = own.containers(service)
        eventually(lambda: set(own.health()) == {"healthy"}, "all are healthy")
        with connect(own.address, allow_fallback=False, quiet=True) as session:
            assert session.object_store != ""
        assert name in own.make("ps").stdout
        assert "moto" in own.make("logs").stdout
        own.make("restart")
        assert own.containers(service) == [name]
        own.make("up")
        assert own.containers(service) == [name], "it is not stopped by a plain up"
    finally:
        own.make("down")
    label = f"label=com.docker.compose.project={own.project}"
    for things in (["ps", "--all"], ["network", "ls"], ["volume", "ls"]):
        assert docker(*things, "--quiet", "--filter", label) == ""


@pytest.mark.compose
def test_an_unknown_profile_starts_nothing(docker_engine: None) -> None:
    nowhere = ComposeCluster("nowhere", profiles="storag")
    done = nowhere.make("up", expect=2)
    assert done.stderr.splitlines()[0] == (
        "error: COMPOSE_PROFILES='storag' is not a profile of this project; "
        "there is storage, monitoring, orchestrator."
    )
    assert nowhere.containers(running=False) == []
