"""The metrics on a real cluster, as a real Prometheus sees them."""

import itertools
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from typing import Any

import cloudpickle
import pytest
from compose_cluster import ComposeCluster, docker
from distributed import Client
from monitoring_files import expressions, unanswered
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.parser import text_string_to_metric_families
from support import eventually

from dask_cluster_lab.metrics.labels import DIRECTIONS, STAGES, register, unbounded
from dask_cluster_lab.metrics.prometheus import Prometheus, samples
from dask_cluster_lab.metrics.push import pushed
from dask_cluster_lab.metrics.survey import THRESHOLD, TILES, expected, survey_tile
from dask_cluster_lab.metrics.totals import RunReader, run_totals
from dask_cluster_lab.metrics.work import WorkerMetrics

# Functions of this file travel to the cluster by value; it cannot import them there.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.compose
NIGHTS = 60


@pytest.fixture(scope="module")
def server(shared_cluster: ComposeCluster) -> Prometheus:
    return Prometheus(f"http://127.0.0.1:{shared_cluster.prometheus_port}")


@pytest.fixture(scope="module")
def client(shared_cluster: ComposeCluster) -> Iterator[Client]:
    with shared_cluster.client() as client:
        yield client


@pytest.fixture(scope="module")
def survey(client: Client, server: Prometheus) -> Iterator[RunReader]:
    """The whole survey was run, is still counted, and was scraped."""
    client.register_plugin(WorkerMetrics())
    try:
        with run_totals(client, "acceptance") as reader:
            eventually(
                lambda: server.value("count(survey_units_total)", default=0) == 36,
                "Prometheus to have every series of three workers",
            )
            client.gather(client.map(survey_tile, range(TILES), pure=False))

            def heard() -> set[float]:
                """Of the scheduler and of the workers: each is scraped on its own."""
                metrics = ("survey_run_units_total", "survey_units_total")
                return {server.value(f'sum({m}{{stage="ingest"}})') for m in metrics}

            eventually(lambda: heard() == {TILES}, "Prometheus to hear of all tiles")
            yield reader
    finally:
        client.unregister_worker_plugin(WorkerMetrics.name)


def test_every_query_returns_data(survey: RunReader, server: Prometheus) -> None:
    """Of every panel, recording rule and alert; an idle ratio is NaN, and that is
    data."""
    # The exporter of Dagster is no part of this cluster.
    other = ("dagster.yml", "exporter.json")
    asked = [e for e in expressions() if not e.where.startswith(other)]
    texts = {expression.text for expression in asked}
    assert len(texts) > 50
    assert unanswered(server, texts) == set()


def test_workers_and_scheduler_agree_with_the_truth(
    survey: RunReader, server: Prometheus
) -> None:
    truth = expected()
    rejected = '{stage="validate",outcome="rejected"}'
    for metric in ("survey_units_total", "survey_run_units_total"):
        assert server.value(f"sum({metric}{rejected})") == truth["rejected"]
    beyond = (
        "sum(survey_residual_metres_count)"
        f' - sum(survey_residual_metres_bucket{{le="{THRESHOLD}"}})'
    )
    assert server.value(beyond) == truth["rejected"]


def test_every_stage_emits_rows_in_and_out(
    survey: RunReader, server: Prometheus
) -> None:
    series = server.query("sum by (stage, direction) (survey_rows_total)")
    rows = {(s.labels["stage"], s.labels["direction"]): s.value for s in series}
    totals = survey.read().rows
    assert rows == totals
    assert set(rows) == {(stage, way) for stage in STAGES for way in DIRECTIONS}
    assert all(rows.values())
    for before, after in itertools.pairwise(STAGES):
        assert rows[after, "in"] == rows[before, "out"], "no row is lost in between"


def test_no_metric_has_an_unbounded_label(
    survey: RunReader, shared_cluster: ComposeCluster
) -> None:
    """Walks what scheduler and workers really expose, while the survey is counted.

    Task prefixes as well: of the survey, and of whatever else ran on this cluster.
    """
    dashboard = f"http://127.0.0.1:{shared_cluster.dashboard_port}/metrics"
    with urllib.request.urlopen(dashboard, timeout=30) as answer:
        texts = [answer.read().decode()]
    code = (
        "import urllib.request as r;"
        "print(r.urlopen('http://127.0.0.1:8790/metrics').read().decode())"
    )
    for worker in shared_cluster.containers("worker"):
        texts.append(docker("exec", worker, "python", "-c", code))
    for text in texts:
        registry = CollectorRegistry()
        registry.register(Exposed(text))
        assert unbounded(registry) == []
        assert any(name.startswith("survey_") for name in samples(text))


class Exposed:
    """A target's text as a collector."""

    def __init__(self, text: str) -> None:
        self.text = text

    def collect(self) -> Iterator[Any]:
        return iter(text_string_to_metric_families(self.text))


def test_the_workers_of_another_scale_are_found(
    shared_cluster: ComposeCluster, server: Prometheus
) -> None:
    def up() -> int:
        return list(server.targets("dask-workers").values()).count("up")

    eventually(lambda: up() == 3, "three workers are up")
    shared_cluster.make("scale", "N=5")
    try:
        eventually(lambda: up() == 5, "five workers are up")
    finally:
        shared_cluster.make("scale", "N=3")
    eventually(lambda: up() == 3, "three workers are up again")


def test_series_over_many_nights(
    shared_cluster: ComposeCluster, server: Prometheus
) -> None:
    """Flat with declared labels; with the tile as a label, exactly what was
    predicted."""
    gateway = f"http://127.0.0.1:{shared_cluster.pushgateway_port}"
    token = uuid.uuid4().hex
    head, mine = "prometheus_tsdb_head_series", f'{{run="{token}"}}'
    flat, growing = CollectorRegistry(), CollectorRegistry()
    units = register(
        Gauge, "survey_night_units", "U.", ["stage", "outcome"], registry=flat
    )
    tiles = Gauge("survey_night_tiles", "T.", ["night", "tile"], registry=growing)
    with pushed(gateway, "acceptance", run=token) as group:
        group.push(flat)
        count = f"count(survey_night_units{mine})"
        eventually(lambda: server.value(count, default=0) == 12, "the first night")
        before = server.value(head)
        for night in range(NIGHTS):
            units.labels("ingest", "ok").set(night)
            group.push(flat)
        last = f'survey_night_units{{run="{token}",stage="ingest",outcome="ok"}}'
        eventually(lambda: server.value(last) == NIGHTS - 1, "the last night")
        assert server.value(count) == 12
        assert server.value(head) - before < 100
        for night in range(NIGHTS):
            for tile in range(TILES):
                tiles.labels(str(night), str(tile)).set(1)
        group.push(growing)
        count = f"count(survey_night_tiles{mine})"
        eventually(
            lambda: server.value(count, default=0) == NIGHTS * TILES, "every tile"
        )
        eventually(
            lambda: server.value(head) - before >= NIGHTS * TILES,
            "Prometheus to tell of its own head",
        )
        assert server.value(head) - before < NIGHTS * TILES + 1000
    eventually(lambda: not server.query(count), "nothing of the group is left")
