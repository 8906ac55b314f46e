"""Dagster, its exporter and what asks it, in containers, as one command brings them."""

import contextlib
import re
import socket
import urllib.request
from collections.abc import Iterator

import pytest
from compose_cluster import ROOT, ComposeCluster, docker
from exporter.real_dagster import install
from lesson_runs import assert_passed
from monitoring_files import expressions, unanswered
from support import Serve, eventually

from dask_cluster_lab.commands.catalogue import LessonFile, lessons
from dask_cluster_lab.commands.runner import run_lesson
from dask_cluster_lab.commands.transcripts import NO_SCHEDULER, compare_outcome
from dask_cluster_lab.errors import LabError
from dask_cluster_lab.metrics.prometheus import Prometheus
from dask_cluster_lab.orchestrator.api import Dagster
from dask_cluster_lab.orchestrator.processes import other_server
from dask_cluster_lab.orchestrator.watched import Exporter
from dask_cluster_lab.probe import free_ports

compose = pytest.mark.compose
each_lesson = pytest.mark.parametrize(
    "lesson",
    [lesson for lesson in lessons() if lesson.name >= "07"],
    ids=lambda lesson: lesson.name,
)
DAGSTER = ("dagster-code", "dagster-daemon", "dagster-exporter", "dagster-webserver")
CHAPTER = ROOT / "docs" / "exporter.md"
# The lab's Dagster has no pools.
WITHOUT_DATA = ("dagster_op_pool_",)


def test_a_dagster_that_does_not_answer(closed_port: int) -> None:
    dagster = Dagster(f"http://127.0.0.1:{closed_port}/graphql")
    with pytest.raises(
        LabError, match=r"does not answer.*make up PROFILE=orchestrator"
    ):
        dagster.launch("good")
    assert not dagster.is_loaded()


def test_another_server_is_no_dagster() -> None:
    """It answers, and what it answers is not taken for Dagster's word."""
    (port,) = free_ports(1)
    dagster = Dagster(f"http://127.0.0.1:{port}/graphql")
    page = f"http://127.0.0.1:{port}/"
    with other_server(port):

        def answers() -> bool:
            with contextlib.suppress(OSError):
                return bool(urllib.request.urlopen(page, timeout=10).read())
            return False

        eventually(answers, "the server to listen")
        with pytest.raises(LabError, match="501"):
            dagster.ask("{version}")
    assert not answers()


def test_a_value_is_the_sum_of_what_has_the_labels(serve: Serve) -> None:
    text = 'a{x="1",y="1"} 2\na{x="1",y="2"} 3\na{x="2",y="1"} 5\n'

    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + text.encode())

    exporter = Exporter(f"http://127.0.0.1:{serve(answer)}")
    assert exporter.value("a") == 10
    assert exporter.value("a", x="1") == 5
    assert exporter.value("a", x="2", y="2") == 0
    assert exporter.value("b") == 0


@compose
@each_lesson
def test_lesson_on_a_cluster_without_dagster(
    lesson: LessonFile, shared_cluster: ComposeCluster
) -> None:
    """It says how to bring one, and shows nothing that it cannot."""
    outcome = run_lesson(lesson, shared_cluster.environment)
    assert outcome.status == 0
    assert outcome.stderr == ""
    assert outcome.score
    ok, failed, without = outcome.score
    assert (ok, failed) == (0, 0)
    assert without > 5
    assert "make up PROFILE=orchestrator" in outcome.stdout


@pytest.fixture(scope="module")
def orchestrated(shared_cluster: ComposeCluster) -> Iterator[ComposeCluster]:
    """The shared cluster with the profile ``orchestrator`` as well."""
    shared_cluster.make(
        "up", COMPOSE_PROFILES=f"{shared_cluster.profiles},orchestrator"
    )
    yield shared_cluster
    for service in DAGSTER:
        docker("rm", "--force", *shared_cluster.containers(service))


@pytest.fixture(scope="module")
def dagster(orchestrated: ComposeCluster) -> Dagster:
    return Dagster(f"http://127.0.0.1:{orchestrated.dagster_port}/graphql")


@pytest.fixture(scope="module")
def watcher(orchestrated: ComposeCluster) -> Exporter:
    return Exporter(f"http://127.0.0.1:{orchestrated.dagster_exporter_port}")


@pytest.fixture(scope="module")
def server(orchestrated: ComposeCluster) -> Prometheus:
    return Prometheus(f"http://127.0.0.1:{orchestrated.prometheus_port}")


@compose
def test_one_command_brings_all_of_it(
    orchestrated: ComposeCluster, dagster: Dagster, server: Prometheus
) -> None:
    for service in (*DAGSTER, "prometheus", "pushgateway", "scheduler"):
        assert len(orchestrated.containers(service)) == 1
    assert set(orchestrated.health()) == {"healthy"}
    assert dagster.is_loaded()
    eventually(dagster.daemons_are_well, "the daemon")

    def up() -> list[str]:
        return list(server.targets("dagster-exporter").values())

    eventually(lambda: up() == ["up"], "Prometheus to have the exporter")
    assert docker("exec", orchestrated.containers("dagster-daemon")[0], "id", "-u") == (
        "1000"
    )


@compose
def test_a_job_computes_on_the_dask_cluster(
    dagster: Dagster, watcher: Exporter
) -> None:
    run = dagster.launch("on_dask")
    eventually(lambda: dagster.ended(run), "the run to end", 180)
    assert dagster.status(run) == "SUCCESS"
    labels = {"job_name": "on_dask", "status": "success"}
    eventually(
        lambda: watcher.value("dagster_completed_runs_total", **labels) == 1,
        "the exporter to count it",
    )


@compose
@each_lesson
def test_lesson_in_containers(
    lesson: LessonFile, orchestrated: ComposeCluster, watcher: Exporter
) -> None:
    before = orchestrated.containers(running=False)
    outcome = run_lesson(lesson, orchestrated.environment)
    assert_passed(outcome)
    assert outcome.score
    assert outcome.score[2] == 0, "the profile can show every claim"
    assert compare_outcome(outcome, "compose") == ""
    assert orchestrated.containers(running=False) == before
    assert orchestrated.containers() == before
    pushed = f"http://127.0.0.1:{orchestrated.pushgateway_port}"
    eventually(
        lambda: "push_time_seconds" not in Exporter(pushed).scrape(), "nothing pushed"
    )
    eventually(
        lambda: (
            watcher.value("dagster_active_runs") == 0
            and watcher.value("dagster_exporter_last_scrape_success") == 7
        ),
        "Dagster at rest, and the exporter well",
    )


@each_lesson
def test_lesson_with_local_processes(lesson: LessonFile) -> None:
    from conftest import leave_out

    install(leave_out)
    outcome = run_lesson(lesson, {"DASK_SCHEDULER_ADDRESS": NO_SCHEDULER})
    assert_passed(outcome)
    assert compare_outcome(outcome, "local") == ""


def questions() -> list[str]:
    """The PromQL of the chapter's table."""
    rows = re.findall(r"^\| .+\? .*\| `(.+)` \|$", CHAPTER.read_text(), re.MULTILINE)
    assert len(rows) > 8
    return rows


@compose
def test_the_chapter_s_questions_are_answered(
    dagster: Dagster, watcher: Exporter, server: Prometheus
) -> None:
    """Each by a number that is known, or by nothing where nothing is wrong."""
    run = dagster.launch("failing")
    eventually(lambda: dagster.ended(run), "the run to end", 180)
    asked = questions()

    def answered() -> dict[str, float]:
        return {
            question: sum(series.value for series in found)
            for question in asked
            if (found := server.query(question))
        }

    last_failed = next(q for q in asked if q.startswith("dagster_last_run_info"))
    eventually(lambda: last_failed in answered(), "Prometheus to hear of the failure")
    found = answered()
    for name, value in {
        "dagster_last_run_info": 1,
        "sum by (status) (dagster_active_runs)": 0,
    }.items():
        (question,) = [q for q in asked if q.startswith(name)]
        assert found[question] >= value
    age = next(q for q in asked if "seconds_since_success" in q)
    assert 0 <= found[age] < 60
    heartbeat = next(q for q in asked if "heartbeat" in q)
    assert 0 <= found[heartbeat] < 120
    late = next(q for q in asked if "schedule_missed" in q)
    assert late not in found, "no schedule is on"


@compose
def test_every_query_returns_data(dagster: Dagster, server: Prometheus) -> None:
    """Of every panel of the exporter's dashboard, and of every alert on Dagster."""
    runs = [dagster.launch(job) for job in ("survey", "limited", "keyed", "failing")]
    eventually(lambda: dagster.ended(*runs), "the runs to end", 240)
    asked = {
        expression.text
        for expression in expressions()
        if expression.where.startswith(("dagster.yml", "exporter.json"))
        and not any(name in expression.text for name in WITHOUT_DATA)
    }
    assert len(asked) > 15
    assert unanswered(server, asked) == set()
