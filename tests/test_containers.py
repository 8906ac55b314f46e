"""What the lab reads of containers, against a ``docker`` that plays its part."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dask_cluster_lab import containers
from dask_cluster_lab.cluster import ClusterSession
from dask_cluster_lab.containers import (
    Container,
    add_worker,
    at_hand,
    remove,
    restart,
    start,
    worker_containers,
)
from dask_cluster_lab.errors import LabError
from dask_cluster_lab.lesson import Lesson

Play = Callable[..., Path]

PLAYED = """#!{python} -S
import json, sys, time
plays = json.loads({plays!r})
with open({log!r}, "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
out, err, status, seconds = plays[sys.argv[1]]
time.sleep(seconds)
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(status)
"""


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Put a ``docker`` on PATH; what it was called with is in the file returned."""

    def put(**plays: tuple[str, str, int, float]) -> Path:
        log = tmp_path / "calls"
        command = tmp_path / "docker"
        command.write_text(
            PLAYED.format(python=sys.executable, plays=json.dumps(plays), log=str(log))
        )
        command.chmod(0o755)
        return log

    monkeypatch.setenv("PATH", str(tmp_path))
    return put


def session(kind: str = "compose", name: str = "mine") -> ClusterSession:
    return cast("ClusterSession", SimpleNamespace(kind=kind, name=name))


def inspected(host: str, **state: Any) -> dict[str, Any]:
    """What ``docker inspect`` says of one container, as far as the lab reads it."""
    return {
        "Name": f"/mine-worker-{host}",
        "Config": {"Hostname": host},
        "RestartCount": 2,
        "State": {"StartedAt": "2026-11-30T10:00:00Z", **state},
    }


def calls(log: Path) -> list[list[str]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_containers_by_host_name(play: Play) -> None:
    facts = [
        inspected("aaa", Running=True, ExitCode=0),
        inspected("bbb", Running=False, ExitCode=137),
    ]
    log = play(ps=("1\n2\n", "", 0, 0), inspect=(json.dumps(facts), "", 0, 0))
    assert worker_containers(session()) == {
        "aaa": Container("mine-worker-aaa", "aaa", True, 0, "2026-11-30T10:00:00Z", 2),
        "bbb": Container(
            "mine-worker-bbb", "bbb", False, 137, "2026-11-30T10:00:00Z", 2
        ),
    }
    listed, asked = calls(log)
    assert listed == [
        "ps",
        "--all",
        "--quiet",
        "--filter=label=com.docker.compose.project=mine",
        "--filter=label=com.docker.compose.service=worker",
    ]
    assert asked == ["inspect", "1", "2"]


@pytest.mark.parametrize("kind", ["remote", "local"])
def test_only_a_compose_session_has_containers(play: Play, kind: str) -> None:
    log = play()
    assert worker_containers(session(kind)) == {}
    assert not at_hand(session(kind))
    assert not log.exists(), "docker was asked"


def test_without_the_command(play: Play) -> None:
    assert worker_containers(session()) == {}
    assert not at_hand(session())


def test_an_engine_that_runs_another_cluster(play: Play) -> None:
    log = play(ps=("\n", "", 0, 0))
    assert worker_containers(session()) == {}
    assert not at_hand(session())
    assert [call[0] for call in calls(log)] == ["ps", "ps"]


def test_an_engine_that_does_not_answer(play: Play) -> None:
    play(ps=("", "x\nCannot connect to the Docker daemon.\n", 1, 0))
    with pytest.raises(LabError, match=r"'docker ps' failed \(Cannot connect to the"):
        worker_containers(session())
    assert not at_hand(session())
    assert not Lesson(session()).can("docker")


def test_a_container_that_is_removed_in_between(play: Play) -> None:
    play(ps=("1\n", "", 0, 0), inspect=("[]\n", "no such object: 1\n", 1, 0))
    with pytest.raises(LabError, match=r"'docker inspect' failed \(no such object"):
        worker_containers(session())


def test_an_engine_that_hangs(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "SECONDS", 0.5)
    play(ps=("1\n", "", 0, 60))
    with pytest.raises(LabError, match=r"'docker ps' failed \(.* timed out after"):
        worker_containers(session())


@pytest.mark.parametrize("act", [start, restart])
def test_start_and_restart(play: Play, act: Callable[[Container], None]) -> None:
    log = play(**{act.__name__: ("mine-worker-bbb\n", "", 0, 0)})
    act(Container("mine-worker-bbb", "bbb", False, 0, "", 0))
    assert calls(log) == [[act.__name__, "mine-worker-bbb"]]


def test_a_container_that_cannot_be_started(play: Play) -> None:
    play(start=("", "", 1, 0))
    with pytest.raises(LabError, match=r"'docker start' failed \(.*exit status 1"):
        start(Container("gone", "bbb", False, 0, "", 0))


def test_a_lesson_can_use_docker_where_containers_are_seen(play: Play) -> None:
    fact = inspected("aaa", Running=True, ExitCode=0)
    play(ps=("1\n", "", 0, 0), inspect=(json.dumps([fact]), "", 0, 0))
    assert at_hand(session())
    assert Lesson(session()).can("docker")


def test_a_worker_more_is_like_the_others(play: Play) -> None:
    facts = {
        **inspected("0123456789ab", Running=True, ExitCode=0),
        "Image": "sha256:1",
        "HostConfig": {"Memory": 2147483648},
        "Mounts": [{"Name": "mine_data", "Destination": "/data"}],
        "NetworkSettings": {"Networks": {"mine_default": {}}},
    }
    facts["Config"] |= {"Env": ["A=1", "B=two words"], "Cmd": ["dask", "worker"]}
    log = play(
        ps=("1\n", "", 0, 0),
        inspect=(json.dumps([facts]), "", 0, 0),
        run=("0123456789abcdef\n", "", 0, 0),
    )
    assert add_worker(session()).host == "0123456789ab"
    (started,) = [call for call in calls(log) if call[0] == "run"]
    (name,) = [word for word in started if word.startswith("--name=")]
    assert re.fullmatch(r"--name=mine-worker-extra-[0-9a-f]{8}", name)
    started.remove(name)
    assert started == [
        "run",
        "--detach",
        "--init",
        "--network=mine_default",
        "--network-alias=worker",
        "--memory=2147483648",
        "--label=com.docker.compose.project=mine",
        "--label=com.docker.compose.service=worker",
        "--label=com.docker.compose.oneoff=True",
        "--env=A=1",
        "--env=B=two words",
        "--volume=mine_data:/data",
        "sha256:1",
        "dask",
        "worker",
    ]


def test_remove(play: Play) -> None:
    log = play(rm=("", "", 0, 0))
    remove(Container("mine-x", "bbb", True, 0, "", 0))
    assert calls(log) == [["rm", "--force", "mine-x"]]
